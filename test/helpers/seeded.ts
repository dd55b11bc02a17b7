/** A small repeatable generator (mulberry32): the same seed gives the same run. */
export interface Seeded {
  /** In [0, 1). */
  next(): number
  /** Whole number in [0, n). */
  below(n: number): number
  pick<T>(from: readonly T[]): T
  bytes(length: number): Buffer
}

export function seeded(seed: number): Seeded {
  let state = seed >>> 0
  const next = (): number => {
    state = (state + 0x6d2b79f5) >>> 0
    let t = state
    t = Math.imul(t ^ (t >>> 15), t | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296
  }
  const below = (n: number): number => Math.floor(next() * n)
  return {
    next,
    below,
    pick: (from) => {
      const chosen = from[below(from.length)]
      if (chosen === undefined) throw new TypeError('nothing to pick from')
      return chosen
    },
    bytes: (length) => Buffer.from(Array.from({ length }, () => below(256))),
  }
}
