import type { Match } from './match.ts'
import type { Lane } from './lane.ts'

/** A stretch of source that is replaced once. */
export interface Region {
  readonly start: number
  readonly end: number
  /** Extent of its matches, which stick out of a whole value by less than a match, behind what is already written. */
  readonly begin: number
  readonly to: number
  /** Offset from which the source is needed to find it again. */
  readonly heldFrom: number
  readonly matches: readonly Match[]
  /** The whole value that it is; undefined for parts and overlaps. */
  readonly whole: Match | undefined
}

/** Bytes that other matches may stick out of a whole value by and be left: too few to be an echo of anything. */
const shortestRest = 12

/** Is this run the whole needle? */
export const isWhole = (match: Match): boolean => match.from === 0 && match.to === match.needle.exact.length

/**
 * Joins matches that overlap, and parts that touch, into regions in the order of the source. What ends before `done` is
 * dropped. `limit` bounds a region, since parts could be strung together without end.
 */
export function regionsOf(
  matches: readonly Match[],
  lane: Lane,
  bounds: { done: number; limit: number },
): Region[] {
  const sorted = matches.length === 1 ? matches : matches.toSorted(inOrder)
  const regions: Region[] = []
  let group: Match[] = []
  let start = 0
  let end = bounds.done
  const close = (): void => {
    if (group.length > 0) regions.push(region(group, lane, { start, end }))
  }
  for (const match of sorted) {
    if (match.end <= end && (group.length === 0 || match.start < start)) continue
    const last = group.at(-1)
    const touches = last !== undefined && match.start === end && !isWhole(match) && !group.some(isWhole)
    const joins = last !== undefined && (match.start < end || touches) && match.end - start <= bounds.limit
    if (!joins) {
      close()
      group = []
      start = Math.max(match.start, end)
      if (match.end <= start) continue
    }
    group.push(match)
    end = Math.max(end, match.end)
  }
  close()
  return regions
}

/** Whole values before parts that begin with them: the result may not depend on the order in which they were found. */
const inOrder = (a: Match, b: Match): number =>
  a.start - b.start ||
  Number(isWhole(b)) - Number(isWhole(a)) ||
  b.end - a.end ||
  b.needle.size - a.needle.size

function region(matches: Match[], lane: Lane, bounds: { start: number; end: number }): Region {
  const { start, end } = bounds
  const heldFrom = matches.reduce((least, match) => Math.min(least, match.heldFrom), start)
  let whole: Match | undefined
  for (const match of matches) {
    const isClose = match.start - start < shortestRest && end - match.end < shortestRest
    if (!isWhole(match) || match.start < start || !isClose) continue
    if (whole === undefined || preference(match, whole, lane) < 0) whole = match
  }
  return {
    start: whole?.start ?? start,
    end: whole?.end ?? end,
    begin: start,
    to: end,
    heldFrom,
    matches,
    whole,
  }
}

/**
 * Longest value first. One value may be read from several starts, as what stands before it may be a part of it or not:
 * best is one that stands there as it is, then one that begins with a character as it is read, then the last start, which
 * leaves most of the text. But half an escape must not be left.
 */
function preference(a: Match, b: Match, lane: Lane): number {
  const byLength = b.needle.exact.length - a.needle.exact.length
  if (byLength !== 0) return byLength
  const rank = rankOf(a, lane)
  return rank - rankOf(b, lane) || (rank < 2 ? a.start - b.start : b.start - a.start)
}

function rankOf(match: Match, lane: Lane): number {
  const { start, end, heldFrom, needle } = match
  const isOdd = oddBackslashes(match, lane) === 1
  if (end - start === needle.exact.length && !isOdd) return 0
  if (start === heldFrom) return 1
  return isOdd ? 3 : 2
}

function oddBackslashes({ heldFrom, start }: Match, lane: Lane): number {
  let at = start
  while (at > heldFrom && lane.byteAt(at - 1) === 0x5c) at--
  return (start - at) % 2
}
