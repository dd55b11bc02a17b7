import { describe, expect, it } from 'vitest'
import { Secret } from '../../src/core/secret.ts'
import { compilePatterns } from '../../src/redact/forms.ts'
import { containsSecret, createRedactor, createScanner, isWithinSecret } from '../../src/redact/redactor.ts'

const value = 'q7Hd2Lx9Zt4Vb6Nm1Ks8Rf3Wy5Gc0JpE'
const other = 'Mz4Tq8Xn2Bv6Cl0Kj9Hg7Fd5Sa3Pw1Yr'
const patterns = compilePatterns([
  { id: 'one', value: new Secret(value), short: false },
  { id: 'two', value: new Secret(other), short: false },
])
const base64 = (text: string): string => Buffer.from(text).toString('base64')

/** What a redactor tells of a body, cut at every place. */
const told = (body: string, make: 'redactor' | 'scanner' = 'redactor'): Set<string> => {
  const parts = new Set<string>()
  for (let cut = 0; cut <= body.length; cut++) {
    const seen = (id: string, run: string): void => void parts.add(`${id} ${run}`)
    const one = make === 'scanner' ? createScanner(patterns, seen) : createRedactor(patterns, () => 'P', seen)
    one.push(Buffer.from(body.slice(0, cut)))
    one.push(Buffer.from(body.slice(cut)))
    one.flush()
  }
  return parts
}

describe('parts of a value that are taken out', () => {
  it('are told by entry and place, the same however the body is cut', () => {
    expect([...told(`<${value.slice(2, 15)}>`)]).toEqual(['one text 2-15'])
    expect([...told(`<${other.slice(0, 12)}>`)]).toEqual(['two text 0-12'])
    expect([...told(`<${base64(value.slice(0, 12))}>`)]).toEqual(['one base64 0-16'])
    expect([...told(`<${Buffer.from(value.slice(4, 16)).toString('hex')}>`)]).toEqual(['one hex 8-32'])
  })

  it('are told one by one where several stand side by side', () => {
    expect([...told(`${value.slice(0, 12)}${value.slice(15, 28)}`)].sort()).toEqual([
      'one text 0-12',
      'one text 15-28',
    ])
  })

  it('are no parts where the whole value stands, nor what is too short to be one', () => {
    expect([...told(`<${value}>`)]).toEqual([])
    expect([...told(`<${base64(`u:${value}`)}>`)]).toEqual([])
    expect([...told(`<${value.slice(0, 11)}>`)]).toEqual([])
  })

  it('are told by where they begin when they end a response: what would have followed is not read', () => {
    expect([...told(`<${value.slice(3, 16)}>`, 'scanner')]).toEqual(['one text from 3'])
    expect([...told('nothing', 'scanner')]).toEqual([])
    const parts: string[] = []
    expect(
      containsSecret(patterns, Buffer.from(value.slice(1, 14)), (id, run) => parts.push(`${id} ${run}`)),
    ).toBe(true)
    expect(parts).toEqual(['one text from 1'])
  })
})

describe('a part of a representation', () => {
  const isWithin = (text: string): boolean => isWithinSecret(patterns, Buffer.from(text))

  it('is refused when it is nothing but a run of a value, from four characters on', () => {
    for (let size = 4; size < 12; size++) {
      for (let at = 0; at + size <= value.length; at++)
        expect([at, size, isWithin(value.slice(at, at + size))]).toEqual([at, size, true])
    }
    expect(isWithin(value)).toBe(true)
    expect(isWithin(base64(value).slice(5, 14))).toBe(true)
    expect(isWithin(Buffer.from(other).toString('hex').slice(6, 13))).toBe(true)
  })

  it('passes when it is shorter, or holds anything else', () => {
    expect(isWithin(value.slice(5, 8))).toBe(false)
    expect(isWithin('')).toBe(false)
    for (const text of [`${value.slice(0, 6)}!`, `!${value.slice(4, 9)}`, 'PAR1', 'abcdefgh'])
      expect([text, isWithin(text)]).toEqual([text, false])
  })
})
