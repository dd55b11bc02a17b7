import { describe, expect, it } from 'vitest'
import { createThrottle, identifyThrottled } from '../../src/identity/throttle.ts'
import { basic, factsOf, identityBench } from '../helpers/identity-bench.ts'

async function setUp() {
  const bench = await identityBench('version: 1\nsandboxes: { s1: {}, s2: {} }\n')
  const snapshot = await bench.snapshot()
  const throttle = createThrottle(bench.clock, 0x5eed)
  const ask = (remoteAddress: string, authorization?: string): string => {
    const facts = factsOf({ remoteAddress })
    const now = bench.clock.now()
    const result = identifyThrottled({ snapshot, facts, proxyAuthorization: authorization, now, throttle })
    return result.ok ? result.sandbox.name : result.reason
  }
  return { bench, ask }
}

describe('wrong passwords', () => {
  it('are throttled after ten in a minute from one source for one user', async () => {
    const { ask } = await setUp()
    const answers = Array.from({ length: 200 }, () => ask('192.0.2.1', basic('s1', 'wrong')))
    expect(answers.slice(0, 10)).toEqual(Array<string>(10).fill('auth_invalid'))
    expect(new Set(answers.slice(10))).toEqual(new Set(['rate_limited']))
  })

  it('lock nobody out: the right one is taken at once, from there and from elsewhere', async () => {
    const { bench, ask } = await setUp()
    for (let i = 0; i < 200; i++) ask('192.0.2.1', basic('s1', 'wrong'))
    const [token = ''] = await bench.tokens('s1')
    expect(ask('192.0.2.2', basic('s1', token))).toBe('s1')
    expect(ask('192.0.2.1', basic('s1', token))).toBe('s1')
    expect(ask('192.0.2.1', basic('s2', 'wrong'))).toBe('auth_invalid')
  })

  it('are forgotten after a minute', async () => {
    const { bench, ask } = await setUp()
    for (let i = 0; i < 20; i++) ask('192.0.2.1', basic('s1', 'wrong'))
    bench.clock.advance(60_000)
    expect(ask('192.0.2.1', basic('s1', 'wrong'))).toBe('auth_invalid')
  })

  it('under 10,000 made-up names are counted in memory that does not grow', () => {
    const throttle = createThrottle({ monotonic: () => 0 }, 7)
    const before = process.memoryUsage().arrayBuffers
    for (let i = 0; i < 10_000; i++) throttle.failed('192.0.2.1', `name-${i}`)
    expect(process.memoryUsage().arrayBuffers).toBeLessThanOrEqual(before)
  })

  it('are not those of a client that sends none', async () => {
    const { ask } = await setUp()
    const answers = Array.from({ length: 50 }, () => ask('192.0.2.1'))
    expect(new Set(answers)).toEqual(new Set(['auth_missing']))
  })
})
