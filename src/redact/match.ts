import type { GramIndex } from './gram-index.ts'
import type { Needle } from './needles.ts'

/** A run of one needle in the text. */
export interface Match {
  /** Offsets in the source. */
  readonly start: number
  readonly end: number
  /** Offset from which the source is needed to find it again: the start of the escape that it begins in, if any. */
  readonly heldFrom: number
  readonly needle: Needle
  /** Part of the needle that was found. */
  readonly from: number
  readonly to: number
  /** Places in the lane; `placeStart` is -1 where the match begins inside an escape. */
  readonly placeStart: number
  readonly placeEnd: number
}

/** What `findMatches` needs of compiled patterns. */
export interface Searched {
  readonly index: GramIndex
  /** Two-byte sequences that occur in any needle, a bit set. */
  readonly pairs: Uint8Array
  /** Needles that match only as a whole. */
  readonly wholes: readonly Needle[]
  /** A value ends in what may be the start of an escape. */
  readonly hasOpenTail: boolean
}

/** Does this pair of folded bytes occur in a needle? */
export const hasPair = (pairs: Uint8Array, first: number, second: number): boolean =>
  ((pairs[(first << 5) | (second >> 3)] ?? 0) & (1 << (second & 7))) !== 0
