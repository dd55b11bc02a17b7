import { chmodSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { createBroker } from '../../src/broker/broker.ts'
import type { BrokerDeps, CredentialBroker } from '../../src/broker/broker.ts'
import type { ValueSource } from '../../src/issuers/port.ts'
import { revokedKey } from '../../src/store/port.ts'
import { openSeal } from '../../src/store/seal.ts'
import { openSqliteStore } from '../../src/store/sqlite.ts'
import { accessTo, inputOf } from '../helpers/credentials.ts'
import { manualClock } from '../helpers/manual-clock.ts'
import { memorySeal, memoryStore } from '../helpers/memory-store.ts'

let folder: string
let brokers: CredentialBroker[]
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'octroi-broker-'))
  brokers = []
})
afterEach(() => {
  for (const broker of brokers) broker.close()
  rmSync(folder, { recursive: true, force: true })
})

const first = 'sk-live-4fJq9ZkPw81mC2'
const second = 'sk-live-XXb7Rt0LmN3vQ5'
const never = new AbortController().signal

const world = () => ({
  store: memoryStore(),
  seal: memorySeal(),
  clock: manualClock(),
  env: { KEY: first } as Record<string, string | undefined>,
})

async function open(input: ReturnType<typeof inputOf>, deps: BrokerDeps) {
  const broker = await createBroker({ ...input, ...deps })
  brokers.push(broker)
  return broker
}

/** Lets seconds pass until whatever they start has come to what is expected. */
async function secondsLater(
  deps: ReturnType<typeof world>,
  expected: () => void | Promise<void>,
): Promise<void> {
  const tick = (): void | Promise<void> => {
    deps.clock.advance(1_000)
    return expected()
  }
  await vi.waitFor(tick, { timeout: 5_000, interval: 5 })
}

const env = (name: string): ValueSource => ({ kind: 'env', name })
const values = (broker: CredentialBroker, tenant = 'web') =>
  broker.redactionSet(tenant).entries.map((entry) => entry.value.reveal())

describe('createBroker', () => {
  it('gives the value to a tenant that has it and to no other', async () => {
    const broker = await open(inputOf({ openai: env('KEY') }), world())
    const got = await broker.credential(accessTo('openai'), 'web', never)
    expect(got.value.reveal()).toBe(first)
    expect(got).toMatchObject({ lease: 'static:openai:1', expiresAt: undefined })
    await expect(broker.credential(accessTo('openai'), 'other', never)).rejects.toMatchObject({
      reason: 'issuer_unavailable',
    })
    await expect(broker.credential(accessTo('absent'), 'web', never)).rejects.toMatchObject({
      reason: 'issuer_unavailable',
    })
    expect(values(broker)).toEqual([first])
    expect(values(broker, 'other')).toEqual([])
  })

  it('says at once which credentials are dead, without their values, and keeps the others going', async () => {
    const deps = world()
    deps.env['SHORT'] = 'abc123'
    deps.env['BAD'] = `${first}\r\nx: y`
    const sources = { good: env('KEY'), unset: env('NOPE'), short: env('SHORT'), bad: env('BAD') }
    const broker = await open(inputOf(sources), deps)
    const problems = broker.problems()
    expect(problems.map((problem) => problem.credential)).toEqual(['unset', 'short', 'bad'])
    expect(JSON.stringify(problems)).not.toMatch(/abc123|sk-live/)
    expect(problems[0]?.message).toContain('NOPE is not set')
    await broker.credential(accessTo('good'), 'web', never)
    await expect(broker.credential(accessTo('unset'), 'web', never)).rejects.toMatchObject({
      reason: 'issuer_unavailable',
    })
    await expect(broker.credential(accessTo('bad'), 'web', never)).rejects.toMatchObject({
      reason: 'credential_invalid',
    })
    expect(values(broker)).toEqual([first])
  })

  it('takes a short value when it is told to, and marks it as one', async () => {
    const deps = world()
    deps.env['SHORT'] = 'abc123'
    const broker = await open(inputOf({ pin: env('SHORT') }, ['web'], true), deps)
    expect(broker.problems()).toEqual([])
    expect(broker.redactionSet('web').entries).toMatchObject([{ credential: 'pin', short: true }])
  })

  it('takes a changed file within a second and still looks for the old value', async () => {
    const path = join(folder, 'key')
    writeFileSync(path, `${first}\n`, { mode: 0o600 })
    const deps = world()
    const broker = await open(inputOf({ k: { kind: 'file', path } }), deps)
    const before = broker.redactionSet('web')
    expect(broker.redactionSet('web')).toBe(before)

    writeFileSync(path, `${second}\n`)
    await secondsLater(deps, () => expect(values(broker)).toEqual([first, second]))
    const got = await broker.credential(accessTo('k'), 'web', never)
    expect([got.value.reveal(), got.lease]).toEqual([second, 'static:k:2'])
    expect(broker.redactionSet('web').version).toBeGreaterThan(before.version)
  })

  it('is dead while its file is missing, empty or open to writers, and alive again when it is mended', async () => {
    const path = join(folder, 'key')
    writeFileSync(path, first, { mode: 0o600 })
    const deps = world()
    const broker = await open(inputOf({ k: { kind: 'file', path } }), deps)
    const damages: [() => void, RegExp][] = [
      [() => rmSync(path), /cannot be read \(ENOENT\)/],
      [() => writeFileSync(path, ''), /missing or empty/],
      [() => writeFileSync(path, 'undefined\n'), /missing or empty/],
      [
        () => {
          writeFileSync(path, first)
          chmodSync(path, 0o622)
        },
        /others can write .* chmod go-w/,
      ],
    ]
    for (const [damage, message] of damages) {
      damage()
      await secondsLater(deps, () => expect(broker.problems()[0]?.message).toMatch(message))
      await expect(broker.credential(accessTo('k'), 'web', never)).rejects.toMatchObject({
        reason: 'issuer_unavailable',
      })
      expect(values(broker)).toEqual([first])
    }
    chmodSync(path, 0o600)
    await secondsLater(deps, () => expect(broker.problems()).toEqual([]))
    expect((await broker.credential(accessTo('k'), 'web', never)).lease).toBe('static:k:1')
  })

  it('follows the sealed store: set, rotate, remove and set again', async () => {
    const deps = world()
    const broker = await open(inputOf({ k: { kind: 'secret', name: 'api' } }), deps)
    expect(broker.problems()[0]?.message).toContain('octroi secret set api')
    const put = async (value: string, version: number) => {
      const updatedAt = deps.clock.now()
      await deps.store.putSecret({ name: 'api', sealed: await deps.seal.seal(value), version, updatedAt })
    }
    const current = async () => (await broker.credential(accessTo('k'), 'web', never)).value.reveal()
    await put(first, 1)
    await broker.refresh()
    expect(await current()).toBe(first)
    await put(second, 2)
    await secondsLater(deps, async () => expect(await current()).toBe(second))
    await deps.store.deleteSecret('api')
    await broker.refresh()
    await expect(current()).rejects.toMatchObject({ reason: 'issuer_unavailable' })
    await put(first, 2)
    await broker.refresh()
    expect(await current()).toBe(first)
    expect(values(broker).sort()).toEqual([first, second].sort())
  })

  it('knows the values of before a restart, each number of a lease standing for one value', async () => {
    const deps = world()
    const run = async (value: string) => {
      deps.env['KEY'] = value
      const broker = await open(inputOf({ k: env('KEY') }), deps)
      const { lease } = await broker.credential(accessTo('k'), 'web', never)
      broker.close()
      return { lease, known: values(broker) }
    }
    expect(await run(first)).toEqual({ lease: 'static:k:1', known: [first] })
    expect(await run(first)).toEqual({ lease: 'static:k:1', known: [first] })
    deps.clock.advance(5)
    expect(await run(second)).toEqual({ lease: 'static:k:2', known: [first, second] })
    deps.clock.advance(5)
    expect(await run(first)).toEqual({ lease: 'static:k:3', known: [second, first] })
    expect(await run(first)).toEqual({ lease: 'static:k:3', known: [second, first] })
  })

  it('does not hand out a value that could not be recorded for redaction', async () => {
    const deps = world()
    deps.store.failWrites = /putPastValue/
    const broker = await open(inputOf({ k: env('KEY') }), deps)
    await expect(broker.credential(accessTo('k'), 'web', never)).rejects.toMatchObject({
      reason: 'issuer_unavailable',
    })
    deps.store.failWrites = undefined
    await secondsLater(deps, () => expect(broker.problems()).toEqual([]))
    expect((await broker.credential(accessTo('k'), 'web', never)).value.reveal()).toBe(first)
  })

  it('looks for a value in a tenant that is granted it later', async () => {
    const deps = world()
    const broker = await open(inputOf({ k: env('KEY') }), deps)
    await broker.configure(inputOf({ k: env('KEY') }, ['web', 'ops']))
    expect(values(broker, 'ops')).toEqual([first])
    expect((await deps.store.pastValues()).map((past) => past.tenant)).toEqual(['web', 'ops'])
    expect((await broker.credential(accessTo('k'), 'ops', never)).lease).toBe('static:k:1')
  })

  it('runs no command again when only the tenants change', async () => {
    const count = join(folder, 'count')
    const argv = ['sh', '-c', `echo x >> ${count}; echo ${first}`]
    const input = inputOf({ k: { kind: 'command', argv } })
    const deps = world()
    deps.env['PATH'] = process.env['PATH']
    const broker = await open(input, deps)
    await broker.configure({ ...input, tenants: new Map([['k', new Set(['web', 'ops'])]]) })
    expect(values(broker, 'ops')).toEqual([first])
    await broker.credential(accessTo('k'), 'ops', never)
    expect(readFileSync(count, 'utf8')).toBe('x\n')
    await broker.configure(inputOf({ k: { kind: 'command', argv } }))
    expect(readFileSync(count, 'utf8')).toBe('x\nx\n')
  })

  it('serves the new source after a reload, and still looks for values of credentials that are gone', async () => {
    const deps = world()
    deps.env['OTHER'] = second
    const broker = await open(inputOf({ k: env('KEY') }), deps)
    await broker.configure(inputOf({ k: env('OTHER') }))
    expect((await broker.credential(accessTo('k'), 'web', never)).value.reveal()).toBe(second)
    await expect(broker.forgetCredential('k')).rejects.toThrow(/in use/)
    await broker.configure(inputOf({}))
    await expect(broker.credential(accessTo('k'), 'web', never)).rejects.toMatchObject({
      reason: 'issuer_unavailable',
    })
    expect(values(broker)).toEqual([first, second])
    await broker.forgetCredential('k')
    expect(values(broker)).toEqual([])
    expect(await deps.store.pastValues()).toEqual([])
  })

  it('refuses a revoked credential, also after a restart, and still looks for its value', async () => {
    const deps = world()
    const broker = await open(inputOf({ k: env('KEY') }), deps)
    await broker.revokeCredential('k')
    await expect(broker.credential(accessTo('k'), 'web', never)).rejects.toMatchObject({ reason: 'revoked' })
    expect(values(broker)).toEqual([first])
    const again = await open(inputOf({ k: env('KEY') }), deps)
    await expect(again.credential(accessTo('k'), 'web', never)).rejects.toMatchObject({ reason: 'revoked' })
    await again.reinstateCredential('k')
    await again.credential(accessTo('k'), 'web', never)
    await expect(broker.revokeCredential('absent')).rejects.toThrow('there is no credential absent')
  })

  it('sees a revocation that another process wrote within a second, of a credential or of one lease', async () => {
    const deps = world()
    deps.env['OTHER'] = second
    const broker = await open(inputOf({ k: env('KEY'), l: env('OTHER') }), deps)
    await deps.store.putMeta(revokedKey('credential', 'k'), 'now')
    await deps.store.putMeta(revokedKey('lease', 'static:l:1'), 'now')
    for (const name of ['k', 'l']) {
      const use = () => broker.credential(accessTo(name), 'web', never)
      await secondsLater(deps, () => expect(use()).rejects.toMatchObject({ reason: 'revoked' }))
    }
    deps.env['OTHER'] = `${second}-new`
    await broker.configure(inputOf({ k: env('KEY'), l: env('OTHER') }))
    expect((await broker.credential(accessTo('l'), 'web', never)).lease).toBe('static:l:2')
  })

  it('keeps a bounded number of past values', async () => {
    const deps = world()
    const broker = await open(inputOf({ k: env('KEY') }), deps)
    for (let n = 0; n < 80; n += 1) {
      deps.env['KEY'] = `${first}-${n}`
      deps.clock.advance(1)
      await broker.configure(inputOf({ k: env('KEY') }))
    }
    expect(values(broker)).toHaveLength(64)
    expect(values(broker).at(-1)).toBe(`${first}-79`)
    expect(await deps.store.pastValues()).toHaveLength(64)
  })

  it('writes no value to disk that a reader of the files could find', async () => {
    const store = await openSqliteStore({ folder })
    const seal = await openSeal(folder)
    const broker = await open(inputOf({ k: env('KEY') }), { ...world(), store, seal })
    expect(values(broker)).toEqual([first])
    for (const file of readdirSync(folder)) {
      const bytes = readFileSync(join(folder, file))
      expect(bytes.includes(first)).toBe(false)
      expect(bytes.includes(Buffer.from(first).toString('base64').slice(0, 20))).toBe(false)
    }
    await store.close()
  })
})
