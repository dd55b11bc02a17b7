import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { rootCertificates } from 'node:tls'
import { describe, expect, it } from 'vitest'
import { runProgram } from '../../src/cli/program.ts'
import { registerRun } from '../../src/cli/run.ts'
import { OperatorError } from '../../src/core/errors.ts'
import { writeTrustFiles } from '../../src/sandbox/bundle.ts'
import { fakeBroker } from '../helpers/fake-broker.ts'
import { memoryIo } from '../helpers/memory-io.ts'
import { stateFolder } from '../helpers/state-folder.ts'

const path = process.env['PATH'] ?? ''
const hasBubblewrap = spawnSync('bwrap', ['--unshare-all', '--ro-bind', '/', '/', 'true']).status === 0

async function octroiRun(args: readonly string[], own: Record<string, string> = {}) {
  const folder = stateFolder()
  const trust = await writeTrustFiles({ folder: join(folder, 'certs'), caPem: rootCertificates[0] ?? '' })
  const broker = await fakeBroker({ socketPath: join(folder, 's'), answer: () => '403 octroi host_denied' })
  const calls: string[] = []
  const register = registerRun({
    open(configPath, sandbox) {
      calls.push(`open ${configPath} ${sandbox}`)
      if (sandbox !== 's1') return Promise.reject(new OperatorError(`no sandbox is called "${sandbox}"`))
      return Promise.resolve({
        socketPath: broker.socketPath,
        trust,
        placeholders: [],
        protectedPaths: [join(folder, 'state')],
        ended: (exit) => Promise.resolve(void calls.push(`ended ${exit}`)),
        close: () => Promise.resolve(void calls.push('close')),
      })
    },
  })
  const { io, out, err } = memoryIo({ env: { PATH: path, ...own }, cwd: folder })
  try {
    const code = await runProgram(['--config', '/c.yaml', 'run', ...args], { io, groups: [register] })
    return { code, out, err: err.join('\n'), calls, folder, requests: broker.requests }
  } finally {
    await broker.close()
  }
}

describe.skipIf(!hasBubblewrap)('octroi run (skipped without a bubblewrap that may make namespaces)', () => {
  it('passes the exit code on, records it, and prints nothing itself', async () => {
    const result = await octroiRun(['--sandbox', 's1', '--', 'sh', '-c', 'exit 9'])
    expect(result).toMatchObject({ code: 9, out: [], err: '' })
    expect(result.calls).toEqual(['open /c.yaml s1', 'ended 9', 'close'])
  })

  it('leaves the options of the command alone, with or without the dashes', async () => {
    expect((await octroiRun(['--sandbox', 's1', 'sh', '-c', 'exit 5'])).code).toBe(5)
    expect((await octroiRun(['--sandbox', 's1', '--', 'test', '--input', '=', '--input'])).code).toBe(0)
  })

  it('makes the output folder and keeps what the command writes there', async () => {
    const result = await octroiRun([
      '--sandbox',
      's1',
      '--output',
      'made/here',
      '--',
      'touch',
      'output/artifact',
    ])
    expect(result.code).toBe(0)
    expect(await readdir(join(result.folder, 'made/here'))).toEqual(['artifact'])
  })

  it('sets and passes on variables that are asked for, and no other', async () => {
    const script = 'test "$A" = "1=2" && test "$KEPT" = yes && test -z "$OTHER"'
    const args = ['--sandbox', 's1', '--env', 'A=1=2', '--env', 'KEPT', '--', 'sh', '-c', script]
    expect((await octroiRun(args, { KEPT: 'yes', OTHER: 'no' })).code).toBe(0)
  })

  it('sends what the command asks for to the broker', async () => {
    const script = 'require("http").get("http://a.test/", (r) => process.exit(r.statusCode - 400))'
    const result = await octroiRun(['--sandbox', 's1', '--', 'node', '-e', script])
    expect(result).toMatchObject({ code: 3, requests: ['GET http://a.test/ HTTP/1.1'] })
  })

  it('closes the session when the sandbox cannot be started', async () => {
    const result = await octroiRun(['--sandbox', 's1', '--ro', 'missing', '--', 'true'])
    expect(result).toMatchObject({ code: 125, out: [] })
    expect(result.err).toContain('missing does not exist')
    expect(result.calls).toEqual(['open /c.yaml s1', 'close'])
  })
})

describe('octroi run', () => {
  it('fails with 125 and says why, so that no failure is taken for the command', async () => {
    expect(await octroiRun(['--sandbox', 'other', '--', 'true'])).toMatchObject({
      code: 125,
      err: 'octroi: no sandbox is called "other"',
    })
    const without = await octroiRun(['--sandbox', 's1', '--', 'true'], { PATH: '/nonexistent' })
    expect(without.code).toBe(125)
    expect(without.err).toContain('install the package "bubblewrap"')
    expect((await octroiRun(['--sandbox', 's1', '--env', 'NOT_SET', '--', 'true'])).code).toBe(125)
    expect((await octroiRun(['--sandbox', 's1', '--env', 'a-b=c', '--', 'true'])).code).toBe(125)
  })

  it('wants a sandbox and a command', async () => {
    expect((await octroiRun(['--', 'true'])).code).toBe(2)
    expect((await octroiRun(['--sandbox', 's1'])).code).toBe(2)
    expect(existsSync('/workspace')).toBe(false)
  })
})
