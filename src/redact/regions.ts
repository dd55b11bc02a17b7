import type { Match } from './find.ts'

/** A stretch of source that is replaced once. */
export interface Region {
  readonly start: number
  readonly end: number
  /** Where its first match begins; before `start` only where a stretch was cut for its length. */
  readonly firstMatch: number
  readonly matches: readonly Match[]
  /** The match that covers all of it and is a whole value; undefined for parts and overlaps. */
  readonly whole: Match | undefined
}

const isWhole = (match: Match): boolean => match.from === 0 && match.to === match.needle.exact.length

/**
 * Joins matches that overlap, and parts that touch, into regions in the order of the source. What ends before `done` is
 * dropped. `limit` bounds a region, since parts could be strung together without end.
 */
export function regionsOf(matches: readonly Match[], bounds: { done: number; limit: number }): Region[] {
  const sorted = [...matches].sort((a, b) => a.start - b.start || b.end - a.end)
  const regions: Region[] = []
  let group: Match[] = []
  let start = 0
  let end = bounds.done
  const close = (): void => {
    if (group.length > 0) regions.push(region(group, start, end))
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

function region(matches: Match[], start: number, end: number): Region {
  return {
    start,
    end,
    firstMatch: Math.min(...matches.map((match) => match.start)),
    matches,
    whole: matches.find((match) => isWhole(match) && match.start === start && match.end === end),
  }
}
