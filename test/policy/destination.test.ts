import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  authorityOf,
  hostFieldOf,
  parseAbsoluteTarget,
  parseAuthority,
  parseHost,
  sameDestination,
} from '../../src/policy/destination.ts'
import vectors from '../vectors/destinations.json' with { type: 'json' }

interface Row {
  name: string
  kind: string
  input: string
  host?: string
  port?: number
  ip?: number
  scheme?: string
  rest?: string
  problem?: string
}

const rows: Row[] = vectors
const readers: Record<
  string,
  (input: string) => ReturnType<typeof parseAuthority | typeof parseAbsoluteTarget>
> = {
  authority: (input) => parseAuthority(input),
  'host field': (input) => parseAuthority(input, 80),
  absolute: parseAbsoluteTarget,
}

describe('destinations as they stand on the wire', () => {
  it.each(rows)('$name', ({ kind, input, host, port, ip, scheme, rest, problem }) => {
    const result = readers[kind]?.(input)
    if (problem !== undefined) {
      expect(result).toEqual({ ok: false, problem: expect.stringContaining(problem) as string })
      return
    }
    const extra = scheme === undefined ? {} : { scheme, pathAndQuery: rest }
    expect(result).toEqual({ ok: true, destination: { host, port, ip }, ...extra })
  })

  it('never repeats the text it refuses', () => {
    for (const { kind, input, problem } of rows) {
      const result = readers[kind]?.(input)
      if (problem !== undefined && input.length > 4) expect(JSON.stringify(result)).not.toContain(input)
    }
  })
})

describe('parseHost', () => {
  it('takes a name of 253 characters and refuses one of 254', () => {
    const label = 'a'.repeat(63)
    const longest = [label, label, label, 'a'.repeat(61)].join('.')
    expect(longest).toHaveLength(253)
    expect(parseHost(longest)).toEqual({ ok: true, host: longest, ip: 0 })
    expect(parseHost(`${longest}.`)).toEqual({ ok: true, host: longest, ip: 0 })
    expect(parseHost(`${longest}a`)).toMatchObject({ ok: false })
  })

  it('gives a canonical host that it reads as the same host again', () => {
    const text = fc.stringMatching(/^[A-Za-z0-9._[\]:%@-]{1,40}$/)
    fc.assert(
      fc.property(text, (input) => {
        const first = parseHost(input)
        if (!first.ok) return
        const again = parseHost(first.ip === 6 ? `[${first.host}]` : first.host)
        expect(again).toEqual(first)
      }),
      { numRuns: 2_000 },
    )
  })

  it('reads every IPv4 address in every spelling as the same literal', () => {
    const parts = fc.tuple(fc.nat(255), fc.nat(255), fc.nat(255), fc.nat(255))
    fc.assert(
      fc.property(parts, ([a, b, c, d]) => {
        const number = ((a * 256 + b) * 256 + c) * 256 + d
        const host = `${a}.${b}.${c}.${d}`
        const octal = (part: number): string => `0${part.toString(8)}`
        const spellings = [
          host,
          `${host}.`,
          String(number),
          `0x${number.toString(16)}`,
          `0X${number.toString(16).toUpperCase()}`,
          `0${number.toString(8)}`,
          `${a}.${number % 2 ** 24}`,
          `0x${a.toString(16)}.${b}.${octal(c * 256 + d)}`,
          [a, b, c, d].map(octal).join('.'),
        ]
        for (const spelling of spellings) expect(parseHost(spelling)).toEqual({ ok: true, host, ip: 4 })
      }),
    )
  })
})

describe('writing destinations', () => {
  const name = { host: 'api.good.test', port: 443, ip: 0 } as const
  const literal = { host: '2001:db8::10', port: 8443, ip: 6 } as const

  it('puts brackets around IPv6 alone', () => {
    expect(authorityOf(name)).toBe('api.good.test:443')
    expect(authorityOf(literal)).toBe('[2001:db8::10]:8443')
  })

  it("leaves the scheme's own port out of a Host field and no other", () => {
    expect(hostFieldOf(name, 'https')).toBe('api.good.test')
    expect(hostFieldOf(name, 'http')).toBe('api.good.test:443')
    expect(hostFieldOf({ ...literal, port: 80 }, 'http')).toBe('[2001:db8::10]')
    expect(hostFieldOf(literal, 'https')).toBe('[2001:db8::10]:8443')
  })

  it('tells destinations apart by host and by port', () => {
    expect(sameDestination(name, { ...name })).toBe(true)
    expect(sameDestination(name, { ...name, port: 80 })).toBe(false)
    expect(sameDestination(name, { ...name, host: 'apj.good.test' })).toBe(false)
  })
})
