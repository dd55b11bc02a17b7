import { gramHash, gramSize, stride, type GramIndex } from './gram-index.ts'
import { beforeBreak, type Lane } from './lane.ts'
import type { Match, Searched } from './match.ts'
import { isEchoed, isSame, type Needle } from './needles.ts'
import { findInEscapes } from './seams.ts'

/** Finds every run of every needle in the lane; in no order, and runs may overlap. */
export function findMatches(searched: Searched, lane: Lane): Match[] {
  const finder = new Finder(searched, lane)
  if (searched.index.needles.length > 0) {
    finder.grams()
    if (lane.escapeCount > 0) findInEscapes(searched, lane, finder.matches)
  }
  if (searched.wholes.length > 0) finder.wholes(searched.wholes)
  return finder.matches
}

class Finder {
  readonly matches: Match[] = []
  readonly #index: GramIndex
  readonly #lane: Lane
  /** Per needle the diagonal (place minus position) and end of the last run, so that each run is followed once. */
  readonly #followed = new Map<number, { diagonal: number; end: number }>()

  constructor(searched: Searched, lane: Lane) {
    this.#index = searched.index
    this.#lane = lane
  }

  /** Looks the text up at every `stride`th place. */
  grams(): void {
    const { bloom, bloomShift } = this.#index
    const { view, length } = this.#lane
    const last = length - gramSize
    for (let place = 0; place <= last; place += stride) {
      const hash = gramHash(view, place)
      const bit = hash >>> bloomShift
      if (((bloom[bit >>> 5] ?? 0) & (1 << (bit & 31))) !== 0) this.#candidates(hash, place)
    }
  }

  #candidates(hash: number, place: number): void {
    const { heads, headShift, entries } = this.#index
    for (let entry = heads[hash >>> headShift] ?? 0; entry !== 0; entry = entries[entry] ?? 0) {
      if (entries[entry + 1] === hash) this.#follow(entries[entry + 3] ?? 0, entries[entry + 2] ?? 0, place)
    }
  }

  /** Follows a gram to both sides as long as text and needle agree; the pool has a 0 on both ends of a needle. */
  #follow(owner: number, position: number, place: number): void {
    const { pool } = this.#index
    const { text, length } = this.#lane
    const diagonal = place - position
    if (this.#followed.size > 0) {
      const last = this.#followed.get(owner)
      if (last !== undefined && last.diagonal === diagonal && place < last.end) return
    }
    let to = position
    while (to + diagonal < length && pool[to] === text[to + diagonal]) to++
    if (to - position < gramSize) return
    let from = position
    while (from + diagonal > 0 && pool[from - 1] === text[from - 1 + diagonal]) from--
    const needle = this.#index.needles[owner]
    if (needle === undefined || to - from < needle.minRun) return
    const start = this.#index.starts[owner] ?? 0
    this.#followed.set(owner, { diagonal, end: to + diagonal })
    this.#record(needle, { from: from - start, to: to - start, place: from + diagonal })
  }

  /** Keeps the parts of a folded run that are equal before folding too. */
  #record(needle: Needle, run: { from: number; to: number; place: number }): void {
    const lane = this.#lane
    const size = run.to - run.from
    const source = lane.sourceOf(run.place)
    const isPlain = lane.sourceEndOf(run.place + size - 1) - source === size
    let from = run.from
    for (let i = 0; i <= size; i++) {
      const byte = i === size ? -1 : isPlain ? lane.byteAt(source + i) : lane.exactAt(run.place + i)
      if (isSame(needle, run.from + i, byte)) continue
      this.#keep(needle, { from, to: run.from + i, place: run.place + from - run.from })
      from = run.from + i + 1
    }
  }

  #keep(needle: Needle, run: { from: number; to: number; place: number }): void {
    let { from, place } = run
    while (!needle.isWholeOnly) {
      const behind = this.#lane.breakBehind(place)
      if (behind < 0 || behind - place >= beforeBreak || behind >= place + run.to - from) break
      from += behind - place
      place = behind
    }
    if (!isEchoed(needle, from, run.to)) return
    const start = this.#lane.sourceOf(place)
    this.matches.push({
      start,
      heldFrom: start,
      end: this.#lane.sourceEndOf(place + run.to - from - 1),
      needle,
      from,
      to: run.to,
      placeStart: place,
      placeEnd: place + run.to - from,
    })
  }

  /** Every occurrence of the needles that only match as a whole. */
  wholes(needles: readonly Needle[]): void {
    const { text, length } = this.#lane
    const haystack = Buffer.from(text.buffer, 0, length)
    for (const needle of needles) {
      if (needle.text.length > length) continue
      let place = haystack.indexOf(needle.text)
      while (place >= 0) {
        this.#record(needle, { from: 0, to: needle.text.length, place })
        place = haystack.indexOf(needle.text, place + 1)
      }
    }
  }
}
