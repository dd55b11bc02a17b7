import { describe, expect, it } from 'vitest'
import { coversHost, parseHostPattern } from '../../src/policy/host-pattern.ts'
import vectors from '../vectors/host-patterns.json' with { type: 'json' }

interface Row {
  name: string
  input: string
  pattern?: string
  problem?: string
  suggestion?: string
}

const rows: Row[] = vectors

describe('host patterns as an operator writes them', () => {
  it.each(rows)('$name', ({ input, pattern, problem, suggestion }) => {
    const result = parseHostPattern(input)
    if (pattern !== undefined) {
      expect(result).toEqual({ ok: true, pattern })
      expect(parseHostPattern(pattern)).toEqual({ ok: true, pattern })
      return
    }
    expect(result).toMatchObject({ ok: false, problem: expect.stringContaining(problem ?? '') as string })
    if (suggestion !== undefined) expect(result).toMatchObject({ suggestion })
  })

  it('suggests only spellings that work', () => {
    for (const { input } of rows) {
      const result = parseHostPattern(input)
      if (result.ok || result.suggestion === undefined || result.suggestion.startsWith('{')) continue
      expect(parseHostPattern(result.suggestion).ok || result.suggestion.startsWith('*.example.')).toBe(true)
    }
  })
})

describe('coversHost', () => {
  it.each([
    ['*.wild.test', 'a.wild.test', true],
    ['*.wild.test', 'a.b.wild.test', true],
    ['*.wild.test', 'wild.test', false],
    ['*.wild.test', 'evilwild.test', false],
    ['*.wild.test', 'wild.test.evil.test', false],
    ['api.good.test', 'api.good.test', true],
    ['api.good.test', 'x.api.good.test', false],
    ['any', 'api.good.test', true],
    ['any', '192.0.2.7', true],
    ['any', 'localhost', false],
    ['any', 'db.localhost', false],
    ['any', 'wpad', false],
    ['any', 'printer.local', false],
    ['any', 'kubernetes.default.svc', false],
    ['any', 'x.internal', false],
    ['2001:db8::10', '2001:db8::10', true],
  ])('%s over %s: %s', (pattern, host, expected) => {
    expect(coversHost(pattern, host)).toBe(expected)
  })
})
