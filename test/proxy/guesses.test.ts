import { describe, expect, it } from 'vitest'
import type { SandboxView } from '../../src/identity/model.ts'
import type { Destination } from '../../src/policy/model.ts'
import { Guesses } from '../../src/proxy/guesses.ts'

// `as`: what the count looks at.
const sandbox = (name: string, budgetKey = name): SandboxView =>
  ({ id: `id of ${name}`, name, tenant: 't', agent: 'a', budgetKey }) as SandboxView
const destination = { host: 'api.test', port: 443 } as Destination

const bench = (pause: () => Promise<unknown> = () => Promise.resolve()) => {
  const alerts: string[] = []
  const paused: string[] = []
  const failures: unknown[] = []
  const guesses = new Guesses({
    most: 3,
    alert: ({ reason, sandbox: name, host }) => void alerts.push(`${name} ${host} ${reason}`),
    pause: (name) => {
      paused.push(name)
      return pause()
    },
    failed: (error) => void failures.push(error),
  })
  const saw = (who: SandboxView, ...runs: string[]): void => {
    for (const run of runs) guesses.watching(who, destination)('entry', run)
  }
  return { guesses, alerts, paused, failures, saw }
}

const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

describe('the count of parts that a sandbox was shown', () => {
  it('alerts at each new part and pauses at the last one, once', async () => {
    const { alerts, paused, saw } = bench()
    saw(sandbox('s'), 'a', 'a', 'b', 'b', 'a')
    expect(alerts).toEqual(['s api.test credential_part', 's api.test credential_part'])
    expect(paused).toEqual([])
    saw(sandbox('s'), 'c', 'd', 'e')
    expect(alerts.at(-1)).toBe('s api.test credential_guessed')
    expect(alerts).toHaveLength(3)
    expect(paused).toEqual(['s'])
    await settled()
    // Resumed, it has the whole count before it again.
    saw(sandbox('s'), 'x', 'y')
    expect(paused).toEqual(['s'])
    saw(sandbox('s'), 'z')
    expect(paused).toEqual(['s', 's'])
  })

  it('belongs to the budget key and the value', () => {
    const { guesses, paused, saw } = bench()
    saw(sandbox('old', 'key'), 'a', 'b')
    guesses.watching(sandbox('old', 'key'), destination)('another entry', 'c')
    saw(sandbox('stranger'), 'c')
    expect(paused).toEqual([])
    saw(sandbox('made again', 'key'), 'c')
    expect(paused).toEqual(['made again'])
  })

  it('refuses the sandbox from the last part until its pause is in force, and for good when it cannot be paused', async () => {
    const gate = Promise.withResolvers<undefined>()
    const good = bench(() => gate.promise)
    good.saw(sandbox('s'), 'a', 'b')
    expect(good.guesses.isHeld('id of s')).toBe(false)
    good.saw(sandbox('s'), 'c')
    expect(good.guesses.isHeld('id of s')).toBe(true)
    gate.resolve(undefined)
    await settled()
    expect(good.guesses.isHeld('id of s')).toBe(false)

    const error = new TypeError('disk full')
    const bad = bench(() => Promise.reject(error))
    bad.saw(sandbox('s'), 'a', 'b', 'c')
    await settled()
    expect(bad.guesses.isHeld('id of s')).toBe(true)
    expect(bad.failures).toEqual([error])
  })
})
