import { randomFillSync } from 'node:crypto'
import { systemClock } from '../core/clock.ts'
import type { Clock } from '../core/clock.ts'

const alphabet = '0123456789ABCDEFGHJKMNPQRSTVWXYZ'
const timeDigits = 10
const randomDigits = 16
const idsPerRefill = 512

/**
 * Makes event ids: ULIDs, 26 characters of Crockford's base 32, of which ten are the time in `ms` (so that ids sort by
 * it) and sixteen are 80 random bits.
 */
export function createEventIds(clock: Clock = systemClock): () => string {
  // One byte per digit: 256 is a multiple of 32, so that five of its bits are unbiased.
  const pool = Buffer.allocUnsafe(randomDigits * idsPerRefill)
  let next = pool.length
  let lastMs = -1
  let time = ''
  return () => {
    const now = Math.max(0, Math.floor(clock.now()))
    if (now !== lastMs) {
      time = encodeTime(now)
      lastMs = now
    }
    if (next === pool.length) {
      randomFillSync(pool)
      next = 0
    }
    let id = time
    const end = next + randomDigits
    // `?? 0`: never taken, the pool holds whole ids.
    for (; next < end; next += 1) id += alphabet[(pool[next] ?? 0) & 31]
    return id
  }
}

/** When an id was made, `ms` since the epoch; `undefined` for a text that does not begin like one. */
export function timeOfEventId(id: string): number | undefined {
  let ms = 0
  for (const digit of id.slice(0, timeDigits).toUpperCase()) {
    const value = alphabet.indexOf(digit)
    if (value < 0) return undefined
    ms = ms * 32 + value
  }
  return id.length < timeDigits ? undefined : ms
}

function encodeTime(ms: number): string {
  let rest = ms
  let text = ''
  for (let digit = 0; digit < timeDigits; digit += 1) {
    text = `${alphabet[rest % 32]}${text}`
    rest = Math.floor(rest / 32)
  }
  return text
}
