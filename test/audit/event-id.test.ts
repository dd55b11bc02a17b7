import { describe, expect, it } from 'vitest'
import { createEventIds } from '../../src/audit/event-id.ts'
import { manualClock } from '../helpers/manual-clock.ts'

describe('createEventIds', () => {
  it('makes 26 characters of which the first ten are the time', () => {
    // The example of the ULID specification.
    const newId = createEventIds(manualClock(1_469_918_176_385))
    expect(newId()).toMatch(/^01ARYZ6S41[0-9A-HJKMNP-TV-Z]{16}$/)
  })

  it('sorts by time and never repeats', () => {
    const clock = manualClock()
    const newId = createEventIds(clock)
    const ids: string[] = []
    for (let n = 0; n < 200; n += 1) {
      ids.push(newId())
      clock.advance(1)
    }
    expect([...ids].sort()).toEqual(ids)
    const many = new Set(Array.from({ length: 20_000 }, newId))
    expect(many.size).toBe(20_000)
  })

  it('uses every character of the alphabet about equally', () => {
    const newId = createEventIds(manualClock())
    const counts = new Map<string, number>()
    for (let n = 0; n < 4_000; n += 1) {
      for (const digit of newId().slice(10)) counts.set(digit, (counts.get(digit) ?? 0) + 1)
    }
    expect(counts.size).toBe(32)
    for (const count of counts.values()) expect(Math.abs(count - 2_000)).toBeLessThan(400)
  })
})
