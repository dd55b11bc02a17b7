import type { Clock } from '../core/clock.ts'
import { identify } from './identify.ts'
import type { Presented } from './identify.ts'
import type { Identified, Snapshot } from './model.ts'
import { readProxyCredentials } from './proxy-credentials.ts'

/** Wrong passwords from one source for one user that get a 407 within `windowMs`; further ones get a 429. */
const allowedFailures = 10
const windowMs = 60_000

/** Counters; a fixed number, so that made-up names cost no memory. Two pairs that share one share its count. */
const slots = 8192

/** Counts failed attempts per source and user. */
export interface Throttle {
  /** Counts a failure; `true` when the pair has had its share for this minute. */
  failed(source: string, user: string): boolean
}

/** A throttle with a table of fixed size. `seed` (any 32-bit number) keeps clients from aiming at each other's slot. */
export function createThrottle(clock: Pick<Clock, 'monotonic'>, seed: number): Throttle {
  const counts = new Uint16Array(slots)
  const starts = new Float64Array(slots).fill(-Infinity)
  return {
    failed(source, user) {
      const slot = hash(`${source}\n${user}`, seed) % slots
      const now = clock.monotonic()
      if (now - (starts[slot] ?? 0) >= windowMs) {
        starts[slot] = now
        counts[slot] = 0
      }
      const count = Math.min(allowedFailures + 1, (counts[slot] ?? 0) + 1)
      counts[slot] = count
      return count > allowedFailures
    },
  }
}

/**
 * `identify` with failures counted: the eleventh wrong password of a minute is `rate_limited`. The right one is always
 * taken, from any source: otherwise any neighbour could lock a sandbox out, and tokens are too long to be guessed.
 */
export function identifyThrottled({
  snapshot,
  throttle,
  ...presented
}: Presented & { readonly snapshot: Snapshot; readonly throttle: Throttle }): Identified {
  const { facts, proxyAuthorization } = presented
  const identified = identify(snapshot, presented)
  if (identified.ok || identified.reason !== 'auth_invalid') return identified
  const source = facts.remoteAddress ?? facts.socketPath ?? 'unix'
  const user = readProxyCredentials(proxyAuthorization ?? '')?.user ?? ''
  return throttle.failed(source, user) ? { ...identified, reason: 'rate_limited' } : identified
}

/** FNV-1a over UTF-16 units, begun at the seed. */
function hash(text: string, seed: number): number {
  let value = (seed ^ 0x811c9dc5) >>> 0
  for (let i = 0; i < text.length; i++) value = Math.imul(value ^ text.charCodeAt(i), 0x01000193) >>> 0
  return (value ^ (value >>> 15)) >>> 0
}
