import { createHash } from 'node:crypto'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { sha256Hex, shortHash } from '../../src/policy/digest.ts'

describe('sha256Hex', () => {
  it('equals the SHA-256 of Node for every length around a block and for any text', () => {
    const reference = (text: string): string => createHash('sha256').update(text, 'utf8').digest('hex')
    for (let length = 0; length < 200; length++) {
      const text = 'x'.repeat(length)
      expect(sha256Hex(text)).toBe(reference(text))
    }
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme', maxLength: 300 }), (text) => {
        expect(sha256Hex(text)).toBe(reference(text))
      }),
    )
  })
})

describe('shortHash', () => {
  it('gives ten hex digits that tell a hundred thousand near texts apart', () => {
    const seen = new Set(Array.from({ length: 100_000 }, (_, at) => shortHash(`rule ${at}`)))
    expect(seen.size).toBe(100_000)
    for (const hash of [...seen].slice(0, 100)) expect(hash).toMatch(/^[0-9a-f]{10}$/)
  })
})
