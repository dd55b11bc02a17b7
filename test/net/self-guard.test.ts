import { networkInterfaces } from 'node:os'
import { describe, expect, it } from 'vitest'
import { createSelfGuard } from '../../src/net/self-guard.ts'
import type { ListenerAddress } from '../../src/net/self-guard.ts'

const guardWith = (listeners: readonly ListenerAddress[], names: readonly string[] = []) =>
  createSelfGuard({
    listeners: () => listeners,
    names: () => names,
    localAddresses: () => ['192.0.2.99', 'fd00::99'],
  })

describe('an address', () => {
  const guard = guardWith([{ address: '127.0.0.1', port: 18080 }])

  it.each([
    '127.0.0.1',
    '127.255.255.254',
    '0.0.0.0',
    '::1',
    '::',
    '::ffff:7f00:1',
    '64:ff9b::7f00:1',
    '2002:7f00:1::1',
    '192.0.2.99',
    '::ffff:192.0.2.99',
    'fd00::99',
    'not an address',
    'fe80::1%eth0',
  ])('%s with a port of the broker is the broker', (address) => {
    expect(guard.isSelfAddress(address, 18080)).toBe(true)
  })

  it.each(['192.0.2.98', '10.0.0.1', '::ffff:192.0.2.98', '2001:db8::1'])(
    '%s of another machine is not',
    (address) => {
      expect(guard.isSelfAddress(address, 18080)).toBe(false)
    },
  )

  it('of this machine is not the broker on another port', () => {
    expect(guard.isSelfAddress('127.0.0.1', 18083)).toBe(false)
  })

  it('of an interface of this machine counts without being listed', () => {
    const real = createSelfGuard({ listeners: () => [{ address: '0.0.0.0', port: 18080 }], names: () => [] })
    const own = Object.values(networkInterfaces()).flatMap((entries) =>
      (entries ?? []).map(({ address }) => address),
    )
    expect(own.length).toBeGreaterThan(0)
    for (const address of own) expect(real.isSelfAddress(address, 18080)).toBe(true)
  })

  it('that a listener is bound to counts even when no interface has it', () => {
    expect(guardWith([{ address: '198.51.100.7', port: 443 }]).isSelfAddress('198.51.100.7', 443)).toBe(true)
  })

  it('is judged by the listeners of the moment', () => {
    const listeners: ListenerAddress[] = []
    const changing = guardWith(listeners)
    expect(changing.isSelfAddress('127.0.0.1', 18080)).toBe(false)
    listeners.push({ address: '127.0.0.1', port: 18080 })
    expect(changing.isSelfAddress('127.0.0.1', 18080)).toBe(true)
  })
})

describe('a name of the broker', () => {
  const guard = guardWith([], ['octroi.example.test', '198.51.100.7'])

  it('is the broker on every port, and no other name is', () => {
    expect(guard.isSelf('octroi.example.test', 443)).toBe(true)
    expect(guard.isSelf('octroi.example.test', 9999)).toBe(true)
    expect(guard.isSelf('sub.octroi.example.test', 443)).toBe(false)
    expect(guard.isSelf('example.test', 443)).toBe(false)
  })

  it('that is an address is the broker as destination and as answer, in every form', () => {
    expect(guard.isSelf('198.51.100.7', 443)).toBe(true)
    expect(guard.isSelf('::ffff:198.51.100.7', 443)).toBe(true)
    expect(guard.isSelfAddress('198.51.100.7', 443)).toBe(true)
    expect(guard.isSelfAddress('198.51.100.8', 443)).toBe(false)
  })
})

describe('a destination that is an IP literal', () => {
  const guard = guardWith([{ address: '127.0.0.1', port: 18080 }])

  it('is the broker where it leads to a listener, before any rule is asked', () => {
    expect(guard.isSelf('127.0.0.1', 18080)).toBe(true)
    expect(guard.isSelf('::ffff:7f00:1', 18080)).toBe(true)
    expect(guard.isSelf('127.0.0.1', 18083)).toBe(false)
    expect(guard.isSelf('198.51.100.7', 18080)).toBe(false)
  })
})
