import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  compileFoldedPath,
  compilePath,
  decodeUnreserved,
  foldedPaths,
  isAmbiguousPath,
  matchesPath,
  parsePathPattern,
} from '../../src/policy/path-pattern.ts'
import vectors from '../vectors/path-patterns.json' with { type: 'json' }

interface Row {
  name: string
  pattern?: string
  path: string
  match?: boolean
  denied?: boolean
  ambiguous?: boolean
}

const rows: Row[] = vectors
const matches = (pattern: string, path: string): boolean =>
  matchesPath(compilePath(pattern), decodeUnreserved(path))
const denies = (pattern: string, path: string): boolean => {
  const compiled = compileFoldedPath(pattern)
  return foldedPaths(path).some((form) => matchesPath(compiled, form))
}

describe('path patterns', () => {
  it.each(rows.filter(({ pattern }) => pattern !== undefined))(
    '$name',
    ({ pattern = '', path, match, denied }) => {
      expect(parsePathPattern(pattern)).toEqual({ ok: true })
      expect(matches(pattern, path)).toBe(match)
      const isDenied = denied ?? match
      if (isDenied === true || denied !== undefined) expect(denies(pattern, path)).toBe(isDenied)
    },
  )

  it.each(rows.filter(({ ambiguous }) => ambiguous !== undefined))('$name', ({ path, ambiguous }) => {
    expect(isAmbiguousPath(path)).toBe(ambiguous)
  })
})

describe('writing path patterns', () => {
  it.each([
    ['v1/x', 'does not begin', '/v1/x'],
    ['/v1?x=1', 'query', '/v1'],
    ['/v1#x', 'query', '/v1'],
    ['/v1/***', 'in a row', '/v1/**'],
    ['/b\u00fccher', 'non-ASCII', '/b%C3%BCcher'],
    ['/a b', 'space', '/a%20b'],
    ['/a/../b', 'dot segment', undefined],
    ['/a%2Fb', 'dot segment', undefined],
    ['/a%zz', 'dot segment', undefined],
    [`/${'a'.repeat(1_024)}`, 'longer', undefined],
  ])('refuses %s', (text, problem, suggestion) => {
    const result = parsePathPattern(text)
    expect(result).toMatchObject({ ok: false, problem: expect.stringContaining(problem) as string })
    if (!result.ok) expect(result.suggestion).toBe(suggestion)
    if (suggestion !== undefined) expect(parsePathPattern(suggestion)).toEqual({ ok: true })
  })
})

describe('matching against a second reading', () => {
  const piece = fc.constantFrom('/', 'a', 'b', '*', '**', '.', 'ab', '/**', '/*')
  const pattern = fc.array(piece, { maxLength: 8 }).map((pieces) => `/${pieces.join('')}`)
  const path = fc
    .array(fc.constantFrom('/', 'a', 'b', '.'), { maxLength: 10 })
    .map((chars) => `/${chars.join('')}`)

  /** Recursive descent over the text of the pattern; exponential, and that is fine for ten characters. */
  function naive(text: string, input: string, before: string): boolean {
    if (text === '/**') return input === '' || input.startsWith('/')
    if (text.startsWith('/**/')) {
      if (!input.startsWith('/')) return false
      const rest = text.slice(4)
      if (naive(rest, input.slice(1), '/')) return true
      return [...input].some((char, at) => at > 0 && char === '/' && naive(rest, input.slice(at + 1), '/'))
    }
    if (text === '') return input === ''
    if (text.startsWith('**')) {
      return Array.from({ length: input.length + 1 }, (_, at) => at).some((at) =>
        naive(text.slice(2), input.slice(at), '*'),
      )
    }
    if (text.startsWith('*')) {
      const isWhole = before === '/' && (text.length === 1 || text.charAt(1) === '/')
      const longest = input.indexOf('/') === -1 ? input.length : input.indexOf('/')
      for (let length = isWhole ? 1 : 0; length <= longest; length++) {
        if (naive(text.slice(1), input.slice(length), '*')) return true
      }
      return false
    }
    return input.charAt(0) === text.charAt(0) && naive(text.slice(1), input.slice(1), text.charAt(0))
  }

  it('agrees for thousands of small patterns and paths', () => {
    fc.assert(
      fc.property(pattern, path, (text, input) => {
        fc.pre(parsePathPattern(text).ok)
        expect(matches(text, input)).toBe(naive(text, input, ''))
      }),
      { numRuns: 5_000 },
    )
  })

  it('denies at least what the same pattern would allow, for every path that is not ambiguous', () => {
    const escaped = fc
      .array(fc.constantFrom('/', 'a', 'B', '%61', '%3b', ';', '%41', '%20', '.x'), { maxLength: 8 })
      .map((chars) => `/${chars.join('')}`)
    fc.assert(
      fc.property(pattern, escaped, (text, input) => {
        fc.pre(parsePathPattern(text).ok && !isAmbiguousPath(input))
        if (matches(text, input)) expect(denies(text, input)).toBe(true)
      }),
      { numRuns: 3_000 },
    )
  })

  it('takes a pattern of many stars over a long path that almost matches', () => {
    const path = `/${'a'.repeat(8_000)}`
    expect(matches(`/${'*a'.repeat(12)}*b`, path)).toBe(false)
    expect(matches(`/${'**a'.repeat(12)}**b`, path)).toBe(false)
    expect(matches(`/${'*a'.repeat(12)}*`, path)).toBe(true)
  })
})
