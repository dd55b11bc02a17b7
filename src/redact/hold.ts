import { hasPair, type Match, type Searched } from './match.ts'
import { gramHash, gramSize } from './gram-index.ts'
import { beforeBreak, type Lane } from './lane.ts'
import type { Region } from './regions.ts'
import { isBase64Byte } from './replacement.ts'
import type { Needle } from './needles.ts'

/** Characters of lookahead that decide how a match in base64 ends: `=`, `=`, then anything. */
const base64Lookahead = 3

/** Longest run that is not yet a match: one short of the longest `minRun`. */
const longestOpenRun = 19

/** What `openStart` needs of compiled patterns. */
export interface Holdable extends Searched {
  /** Hashes of grams in or near characters that are not core; a match may begin with any number of those. */
  readonly outerGrams: ReadonlySet<number>
  /** Longest row of characters that are not core, of any needle. */
  readonly longestOuter: number
}

/** May what comes next still change this match? */
export function isOpen(match: Match, lane: Lane): boolean {
  const lookahead = match.needle.form === 'base64' ? base64Lookahead : 1
  return match.placeEnd + lookahead > lane.length
}

/** Start of the character before a base64 value, some bits of which stay; the region's own start if none do. */
export function neighbourStart(region: Region, lane: Lane): number {
  const first = region.matches.find(
    ({ from, needle, start }) => from === 0 && needle.lead > 0 && start >= region.begin,
  )
  if (first === undefined || first.placeStart <= 0 || lane.hasBreakAt(first.placeStart)) return region.begin
  return lane.sourceOf(first.placeStart - 1)
}

/**
 * Offset in the source from which a match may begin that the lane does not hold completely: only a live beginning is
 * held, so a finished line or SSE event never is unless it ends in one.
 */
export function openStart(searched: Holdable, lane: Lane): number {
  const place = Math.min(liveStart(searched, lane), wholeStart(searched.wholes, lane))
  return lane.escapeEndingAt(withNeighbour(place, lane))
}

/** The character of base64 before a value holds bits of both, so it can only be let go once no value begins behind it. */
function withNeighbour(place: number, lane: Lane): number {
  const isBroken = place >= lane.length ? lane.endsInBreak : lane.hasBreakAt(place)
  if (place > 0 && !isBroken && isBase64Byte(lane.text[place - 1] ?? 0)) return lane.sourceOf(place - 1)
  return place >= lane.length ? lane.tail : lane.sourceOf(place)
}

/** Start of the longest tail of the lane that may be the beginning of a run. */
function liveStart(searched: Holdable, lane: Lane): number {
  const { text, view, length } = lane
  const { pairs, outerGrams, longestOuter } = searched
  const floor = Math.max(0, length - longestOpenRun - longestOuter)
  let start = length
  if (length > 0 && hasAny(pairs, text[length - 1] ?? 0)) start = length - 1
  while (start < length && start > floor && hasPair(pairs, text[start - 1] ?? 0, text[start] ?? 0)) {
    const isLong = length - start >= longestOpenRun
    if (isLong && !outerGrams.has(gramHash(view, start - 1))) break
    start--
  }
  return behindEarlyBreaks(start, lane)
}

/** Does a needle hold this byte followed by another? */
function hasAny(pairs: Uint8Array, first: number): boolean {
  for (let i = first << 5; i < (first + 1) << 5; i++) if (pairs[i] !== 0) return true
  return false
}

/** A run has `beforeBreak` characters before its first line end, or begins behind it. */
function behindEarlyBreaks(start: number, lane: Lane): number {
  let place = start
  while (place < lane.length) {
    const behind = lane.breakBehind(place)
    if (behind < 0 || behind - place >= beforeBreak) return place
    place = behind
  }
  return place
}

/** Start of the longest tail that begins one of the needles that only match whole. */
function wholeStart(wholes: readonly Needle[], lane: Lane): number {
  const { text, length } = lane
  let start = length
  for (const { text: needle } of wholes) {
    for (let place = Math.max(0, length - needle.length + 1); place < start; place++) {
      let i = 0
      while (place + i < length && needle[i] === text[place + i]) i++
      if (place + i === length) start = place
    }
  }
  return start
}

/** The grams that a beginning may go through before enough core has come, and how long it may then be. */
export function outerGramsOf(needles: readonly Needle[]): { outerGrams: Set<number>; longestOuter: number } {
  const outerGrams = new Set<number>()
  let longestOuter = 0
  for (const { core, text, isWholeOnly } of needles) {
    if (!isWholeOnly && core.every((flag) => flag === 1)) continue
    const padded = new Uint8Array(text.length + gramSize)
    padded.set(text)
    const view = new DataView(padded.buffer)
    const isNear = isWholeOnly ? new Uint8Array(text.length).fill(1) : nearOuter(core)
    for (let place = 0; place + gramSize <= text.length; place++) {
      if (isNear[place] === 1) outerGrams.add(gramHash(view, place))
    }
    longestOuter = Math.max(
      longestOuter,
      isNear.reduce((sum, flag) => sum + flag, 0),
    )
  }
  return { outerGrams, longestOuter }
}

/** Flags the characters that are not core, and those from which one is less than an open run away. */
function nearOuter(core: Uint8Array): Uint8Array {
  const near = new Uint8Array(core.length)
  core.forEach((flag, place) => {
    if (flag === 0) near.fill(1, Math.max(0, place - longestOpenRun), place + longestOpenRun + 1)
  })
  return near
}
