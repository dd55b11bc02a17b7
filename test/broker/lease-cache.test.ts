import { describe, expect, it } from 'vitest'
import { LeaseCache } from '../../src/broker/lease-cache.ts'
import type { Credential } from '../../src/broker/port.ts'
import { Refusal } from '../../src/core/errors.ts'
import { Secret } from '../../src/core/secret.ts'
import { manualClock } from '../helpers/manual-clock.ts'

const never = new AbortController().signal

function setup() {
  const clock = manualClock()
  let issued = 0
  const issue = (lifeMs?: number) => (): Promise<Credential> => {
    issued += 1
    const expiresAt = lifeMs === undefined ? undefined : clock.now() + lifeMs
    return Promise.resolve({ value: new Secret('v'), lease: `lease-${issued}`, expiresAt })
  }
  return { clock, cache: new LeaseCache(clock), issue, count: () => issued }
}

describe('LeaseCache', () => {
  it('asks the issuer once for all who wait, and keeps what does not expire', async () => {
    const { cache, issue, count, clock } = setup()
    const all = await Promise.all([1, 2, 3].map(() => cache.get('k', issue(), never)))
    expect(new Set(all.map((lease) => lease.lease)).size).toBe(1)
    clock.advance(1e9)
    await cache.get('k', issue(), never)
    expect(count()).toBe(1)
  })

  it('renews a lease before it ends', async () => {
    const { cache, issue, clock } = setup()
    const life = 15 * 60_000
    await cache.get('k', issue(life), never)
    clock.advance(life - 91_000)
    expect((await cache.get('k', issue(life), never)).lease).toBe('lease-1')
    clock.advance(32_000)
    expect((await cache.get('k', issue(life), never)).lease).toBe('lease-2')
  })

  it('asks again after a failure only when a growing time has passed', async () => {
    const { cache, clock } = setup()
    let asked = 0
    const fail = (): Promise<Credential> => {
      asked += 1
      return Promise.reject(new Refusal('issuer_unavailable'))
    }
    for (let ms = 0; ms < 120_000; ms += 100) {
      await cache.get('k', fail, never).catch(() => undefined)
      clock.advance(100)
    }
    // At 0, 1, 3, 7, 15, 31, 61 and 91 s.
    expect(asked).toBe(8)
    cache.drop('k')
    await cache.get('k', fail, never).catch(() => undefined)
    expect(asked).toBe(9)
  })

  it('ends the wait of who goes away and not that of the others', async () => {
    const { cache, issue, count } = setup()
    const gate = Promise.withResolvers<Credential>()
    const gone = new AbortController()
    const leaver = cache.get('k', () => gate.promise, gone.signal)
    const stayer = cache.get('k', issue(), never)
    gone.abort(new TypeError('client gone'))
    await expect(leaver).rejects.toThrow('client gone')
    gate.resolve({ value: new Secret('v'), lease: 'late', expiresAt: undefined })
    expect((await stayer).lease).toBe('late')
    expect(count()).toBe(0)
  })

  it('gives up on an issuer that does not answer', async () => {
    const { cache, clock } = setup()
    const wait = cache.get('k', () => new Promise<Credential>(() => undefined), never)
    clock.advance(15_000)
    await expect(wait).rejects.toMatchObject({ reason: 'issuer_unavailable' })
  })

  it('does not keep a lease that was dropped while it was issued', async () => {
    const { cache, issue } = setup()
    const gate = Promise.withResolvers<Credential>()
    const old = cache.get('k', () => gate.promise, never)
    cache.drop('k')
    const fresh = await cache.get('k', issue(), never)
    gate.resolve({ value: new Secret('v'), lease: 'old', expiresAt: undefined })
    expect((await old).lease).toBe('old')
    expect((await cache.get('k', issue(), never)).lease).toBe(fresh.lease)
  })
})
