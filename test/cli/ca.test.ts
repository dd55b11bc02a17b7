import { X509Certificate } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Command } from 'commander'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { ownerSocketPath } from '../../src/admin/owner-socket.ts'
import { registerCa } from '../../src/cli/ca.ts'
import type { CommandContext } from '../../src/cli/io.ts'
import { systemClock } from '../../src/core/clock.ts'
import { OperatorError } from '../../src/core/errors.ts'
import { openSeal } from '../../src/store/seal.ts'
import { loadOrCreateAuthority } from '../../src/tls/authority.ts'
import { memoryIo } from '../helpers/memory-io.ts'

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'octroi-ca-cli-'))
})
afterEach(() => rmSync(folder, { recursive: true }))

interface Outcome {
  readonly code: number
  readonly out: string
  readonly err: string
}

/** Runs `octroi ARGS` with the one command group. */
async function octroi(...args: readonly string[]): Promise<Outcome> {
  const { io, out, err } = memoryIo()
  let code = 0
  const context: CommandContext = {
    io,
    run:
      (action) =>
      async (...given) => {
        try {
          code = await action(...given)
        } catch (error) {
          if (!(error instanceof OperatorError)) throw error
          err.push(error.message)
          code = error.exitCode
        }
      },
    configPath: () => join(folder, 'octroi.yaml'),
  }
  const program = new Command().exitOverride()
  registerCa(program, context, { stateFolder: () => Promise.resolve(folder) })
  await program.parseAsync([...args], { from: 'user' })
  return { code, out: out.join('\n'), err: err.join('\n') }
}

const makeCa = async () => loadOrCreateAuthority({ folder, seal: await openSeal(folder), clock: systemClock })

describe('octroi ca show', () => {
  it('prints the certificate and nothing else', async () => {
    const { certificatePem } = await makeCa()
    const { code, out, err } = await octroi('ca', 'show')
    expect([code, err]).toEqual([0, ''])
    expect(`${out}\n`).toBe(certificatePem)
    expect(new X509Certificate(out).ca).toBe(true)
  })

  it('prints fingerprint, dates and PEM as JSON', async () => {
    const authority = await makeCa()
    const shown: unknown = JSON.parse((await octroi('ca', 'show', '--json')).out)
    expect(shown).toEqual({
      fingerprint: authority.fingerprint,
      subject: authority.subject,
      not_before: new Date(authority.notBefore).toISOString(),
      not_after: new Date(authority.notAfter).toISOString(),
      pem: authority.certificatePem,
      previous: null,
    })
  })

  it('says what makes the CA where there is none', async () => {
    const { code, out, err } = await octroi('ca', 'show')
    expect([code, out]).toEqual([1, ''])
    expect(err).toContain('octroi serve')
  })
})

describe('octroi ca rotate', () => {
  it('makes a new CA that the next start loads, and shows the old one beside it', async () => {
    const old = await makeCa()
    expect((await octroi('ca', 'rotate')).out).toContain('new CA: CN=Octroi CA')
    const { fingerprint } = await makeCa()
    expect(fingerprint).not.toBe(old.fingerprint)
    const shown = JSON.parse((await octroi('ca', 'show', '--json')).out) as Record<string, unknown>
    expect(shown).toMatchObject({ fingerprint, previous: { fingerprint: old.fingerprint } })
  })

  it('never prints a key', async () => {
    await makeCa()
    const { out, err } = await octroi('ca', 'rotate', '--json')
    expect(out + err).not.toContain('PRIVATE KEY')
    expect(out + err).not.toContain(readFileSync(join(folder, 'ca.key'), 'utf8').trim())
  })

  it('is refused while the broker runs, and leaves the CA as it is', async () => {
    const { fingerprint } = await makeCa()
    const status = {
      policy: 'x',
      sandboxes: 0,
      listeners: [],
      audit: 'ok',
      started_at: '2030-01-01T00:00:00.000Z',
      pid: 1,
      private: false,
      runs: 0,
      ready: true,
      not_ready: [],
    }
    const broker = createServer((_, response) => response.end(JSON.stringify(status)))
    await new Promise<void>((done) => broker.listen(ownerSocketPath(folder), done))
    try {
      const { code, err } = await octroi('ca', 'rotate')
      expect(code).toBe(1)
      expect(err).toContain('the broker is running')
    } finally {
      await new Promise((done) => broker.close(done))
    }
    expect((await makeCa()).fingerprint).toBe(fingerprint)
  })
})
