import { describe, expect, it } from 'vitest'
import {
  entropyFor,
  findPlaceholders,
  makePlaceholder,
  mayHoldPlaceholder,
  placeholderCore,
} from '../../src/handles/placeholder.ts'
import { parseShape, shapePresets } from '../../src/handles/shapes.ts'
import vectors from '../vectors/placeholders.json' with { type: 'json' }

const counting = (length: number, from = 0) => Uint8Array.from({ length }, (_, index) => (from + index) % 256)

describe('makePlaceholder', () => {
  it.each(Object.entries(shapePresets))('gives the preset %s its prefix and length', (_, shape) => {
    const placeholder = makePlaceholder(shape, crypto.getRandomValues(new Uint8Array(entropyFor(shape))))
    expect(placeholder).toHaveLength(shape.length)
    expect(placeholder.startsWith(`${shape.prefix}octroi`)).toBe(true)
    expect(placeholder).toMatch(/^[A-Za-z0-9_-]+$/)
    expect(encodeURIComponent(placeholder)).toBe(placeholder)
    expect(placeholderCore(placeholder)).toBe(placeholder.slice(shape.prefix.length))
  })

  it('draws every character equally often from all byte values', () => {
    const counts = new Map<string, number>()
    const shape = { prefix: '', length: 6 + 248 }
    for (const character of makePlaceholder(shape, counting(256)).slice(6)) {
      counts.set(character, (counts.get(character) ?? 0) + 1)
    }
    expect(counts.size).toBe(62)
    expect(new Set(counts.values())).toEqual(new Set([4]))
  })

  it('skips the bytes that would favour some characters', () => {
    const bytes = Uint8Array.from([255, 254, 253, 252, 251, 250, 249, 248, ...counting(22)])
    expect(makePlaceholder({ prefix: '', length: 28 }, bytes)).toBe('octroi0123456789ABCDEFGHIJKL')
  })

  it('refuses too few bytes instead of making a weaker placeholder', () => {
    expect(() => makePlaceholder({ prefix: '', length: 28 }, counting(21))).toThrow(TypeError)
    expect(() => makePlaceholder({ prefix: '', length: 28 }, new Uint8Array(400).fill(255))).toThrow(
      TypeError,
    )
  })

  it('refuses a shape of fewer than 128 bits or with a prefix that hides the marker', () => {
    expect(() => makePlaceholder({ prefix: '', length: 27 }, counting(200))).toThrow(TypeError)
    expect(() => makePlaceholder({ prefix: 'octroi', length: 60 }, counting(200))).toThrow(TypeError)
    expect(() => makePlaceholder({ prefix: 'a.b', length: 60 }, counting(200))).toThrow(TypeError)
  })
})

describe('findPlaceholders', () => {
  it.each(vectors.find)('$name', ({ text, found }) => {
    const hits = findPlaceholders(text)
    expect(hits.map((hit) => hit.text)).toEqual(found)
    for (const hit of hits) expect(text.slice(hit.start, hit.end)).toBe(hit.text)
    if (found.length > 0) expect(mayHoldPlaceholder(text)).toBe(true)
  })

  it('finds a placeholder of every preset wherever it stands in a text', () => {
    for (const shape of Object.values(shapePresets)) {
      const placeholder = makePlaceholder(shape, counting(entropyFor(shape), 7))
      const text = `a=${placeholder}; b="${placeholder}"`
      const core = placeholderCore(placeholder)
      expect(findPlaceholders(text).map((hit) => hit.text)).toEqual([core, core])
    }
  })
})

describe('parseShape', () => {
  it.each(vectors.shapes)('$name', ({ value, shape, problem }) => {
    const parsed = parseShape(value ?? undefined)
    if (shape !== undefined) expect(parsed).toEqual({ ok: true, shape })
    else expect(parsed).toMatchObject({ ok: false, problem: expect.stringContaining(problem ?? '?') })
  })

  it('gives 128 random bits at the shortest length it accepts', () => {
    const parsed = parseShape({ prefix: 'k-', length: 30 })
    expect(parsed).toEqual({ ok: true, shape: { prefix: 'k-', length: 30 } })
    expect(Math.log2(62) * (30 - 2 - 'octroi'.length)).toBeGreaterThanOrEqual(128)
  })
})
