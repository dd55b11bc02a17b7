import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { Refusal } from '../../src/core/errors.ts'
import { Secret } from '../../src/core/secret.ts'
import type { IssuerWorld, ValueSource } from '../../src/issuers/port.ts'
import { createStaticIssuer } from '../../src/issuers/static.ts'
import { isShort, requireSendable, valueId } from '../../src/issuers/value-checks.ts'

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'octroi-issuer-'))
})
afterEach(() => rmSync(folder, { recursive: true, force: true }))

const good = 'sk-live-4fJq9ZkPw81mC2'
const world: IssuerWorld = {
  env: { PATH: process.env['PATH'], KEY: good },
  secret: () => Promise.resolve(undefined),
  secretStamp: () => Promise.resolve(undefined),
}
const issue = (value: ValueSource, signal = new AbortController().signal) =>
  createStaticIssuer({ name: 'k', issuer: 'static', value, allowShort: false }, world).issue(signal)
const command = (...argv: string[]): ValueSource => ({ kind: 'command', argv })
async function refusalOf(work: Promise<unknown>): Promise<Refusal> {
  const error = await work.catch((reason: unknown) => reason)
  if (error instanceof Refusal) return error
  throw new TypeError('not refused')
}

describe('requireSendable', () => {
  const refused: { name: string; text: string; detail: RegExp }[] = [
    { name: 'nothing', text: '', detail: /missing or empty/ },
    { name: 'blanks only', text: '  ', detail: /missing or empty/ },
    { name: 'what JavaScript prints for no value', text: 'undefined', detail: /missing or empty/ },
    { name: 'what JSON prints for no value', text: 'null', detail: /missing or empty/ },
    { name: 'CR LF', text: `${good}\r\nx-admin: 1`, detail: /line break/ },
    { name: 'LF at the end', text: `${good}\n`, detail: /line break/ },
    { name: 'NUL', text: `${good}\0`, detail: /control character/ },
    { name: 'an escape', text: `${good}\u001b[2J`, detail: /control character/ },
    { name: 'letters outside ISO 8859-1', text: `${good}ł`, detail: /ISO 8859-1/ },
    { name: 'a leading space', text: ` ${good}`, detail: /white space/ },
    { name: 'a trailing space', text: `${good} `, detail: /white space/ },
    { name: '64 KiB', text: 'x'.repeat(65_536), detail: /longer than 16384 bytes/ },
    { name: 'a media type', text: 'application/json', detail: /common word/ },
  ]
  for (const { name, text, detail } of refused) {
    it(`refuses ${name} with a detail that does not show it`, () => {
      const error = (() => {
        try {
          requireSendable(text)
          return undefined
        } catch (reason) {
          return reason
        }
      })()
      expect(error).toBeInstanceOf(Refusal)
      expect((error as Refusal).detail).toMatch(detail)
      expect((error as Refusal).detail).not.toContain('sk-live')
    })
  }

  it('takes what upstreams give out, up to 16 KiB', () => {
    for (const text of [good, 'pä55 with blanks inside', 'Zm9v'.repeat(4_096), 'postgres://u:p@h/db']) {
      expect(() => requireSendable(text)).not.toThrow()
    }
  })
})

describe('isShort', () => {
  const cases: [string, boolean][] = [
    ['abc123', true],
    ['aB3$efgh1jk', true],
    ['123456789012', true],
    ['abcdefabcdef', true],
    ['0123456789abcdef', false],
    ['a'.repeat(40), true],
    ['ab'.repeat(20), true],
    ['correcthorse', true],
    ['correcthorsebattery', false],
    ['aB3efgh1jkLm', false],
    [good, false],
    ['12345678901234567890', false],
  ]
  for (const [text, short] of cases) {
    it(`calls ${text} ${short ? 'short' : 'long enough'}`, () => expect(isShort(text)).toBe(short))
  }
})

describe('createStaticIssuer', () => {
  it('reads the environment, a file without its final line break, and the output of a command', async () => {
    const path = join(folder, 'key')
    writeFileSync(path, `${good}\r\n`, { mode: 0o600 })
    const sources: ValueSource[] = [
      { kind: 'env', name: 'KEY' },
      { kind: 'file', path },
      command('echo', good),
    ]
    for (const source of sources) {
      const issued = await issue(source)
      expect(issued.value.reveal()).toBe(good)
      expect(issued).toMatchObject({ id: valueId(new Secret(good)), short: false, expiresAt: undefined })
    }
  })

  it('runs a command without a shell', async () => {
    const issued = await issue(command('printf', '%s', '$(id)-`id`-longer'))
    expect(issued.value.reveal()).toBe('$(id)-`id`-longer')
  })

  it('names what failed and nothing that was printed', async () => {
    const failing = command('sh', '-c', `echo ${good}; echo ${good} >&2; exit 3`)
    const error = await refusalOf(issue(failing))
    expect(error).toMatchObject({
      reason: 'issuer_unavailable',
      detail: 'the command sh failed with exit code 3',
    })
    expect(JSON.stringify({ ...error, cause: error.cause })).not.toContain('sk-live')
    expect((await refusalOf(issue(command('octroi-no-such-program')))).detail).toMatch(
      /could not be run \(ENOENT\)/,
    )
    expect((await refusalOf(issue(command('head', '-c', '200000', '/dev/zero')))).detail).toMatch(
      /printed too much/,
    )
  })

  it('kills a command when the wait for it ends', async () => {
    const stop = new AbortController()
    const wait = refusalOf(issue(command('sleep', '60'), stop.signal))
    setTimeout(() => stop.abort(), 50)
    expect((await wait).reason).toBe('issuer_unavailable')
  })

  it('does not hang on a named pipe or take a folder for a file', async () => {
    const pipe = join(folder, 'pipe')
    execFileSync('mkfifo', [pipe])
    const kinds = [pipe, folder].map((path) => refusalOf(issue({ kind: 'file', path })))
    for (const error of await Promise.all(kinds)) expect(error.detail).toMatch(/is not a file/)
  })
})
