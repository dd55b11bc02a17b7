import { bytesOf, codeOf, sizeOf } from './escapes.ts'
import { fold, folded } from './folding.ts'
import { gramHash, gramSize, stride, type GramIndex } from './gram-index.ts'
import { beforeBreak, escapeFields, type Lane } from './lane.ts'
import { longestRun, type Form, type Needle } from './needles.ts'

/** A run of one needle in the text. */
export interface Match {
  /** Offsets in the source. */
  readonly start: number
  readonly end: number
  readonly needle: Needle
  /** Part of the needle that was found. */
  readonly from: number
  readonly to: number
  /** Places in the lane; `placeStart` is -1 where the match begins inside an escape. */
  readonly placeStart: number
  readonly placeEnd: number
}

export interface Searched {
  readonly index: GramIndex
  /** Two-byte sequences that occur in any needle, a bit set. */
  readonly pairs: Uint8Array
  /** Needles that match only as a whole. */
  readonly wholes: readonly Needle[]
  /** A value ends in what may be the start of an escape. */
  readonly hasOpenTail: boolean
}

/** Longest part of an escape that may belong to a value instead; an escape of five characters, three levels deep. */
const longestHead = 40

/** Does this pair of folded bytes occur in a needle? */
export const hasPair = (pairs: Uint8Array, first: number, second: number): boolean =>
  ((pairs[(first << 5) | (second >> 3)] ?? 0) & (1 << (second & 7))) !== 0

/** Finds every run of every needle in the lane; in no order, and runs may overlap. */
export function findMatches(searched: Searched, lane: Lane): Match[] {
  const finder = new Finder(searched, lane)
  if (searched.index.needles.length > 0) {
    finder.grams()
    if (lane.escapeCount > 0) finder.seams()
  }
  for (const needle of searched.wholes) finder.whole(needle)
  return finder.matches
}

class Finder {
  readonly matches: Match[] = []
  readonly #searched: Searched
  readonly #index: GramIndex
  readonly #lane: Lane
  /** Per needle the diagonal (place minus position) and end of the last run, so that each run is followed once. */
  readonly #followed = new Map<number, { diagonal: number; end: number }>()
  readonly #seam = new Uint8Array(gramSize)
  readonly #seamView = new DataView(this.#seam.buffer)

  constructor(searched: Searched, lane: Lane) {
    this.#searched = searched
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
    const isPlain = lane.sourceOf(run.place + size - 1) - source === size - 1
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
    for (;;) {
      const behind = this.#lane.breakBehind(place)
      if (behind < 0 || behind - place >= beforeBreak || behind >= place + run.to - from) break
      from += behind - place
      place = behind
    }
    if (run.to - from < needle.minRun || longestRun(needle.core, from, run.to) < leastCore(needle)) return
    this.matches.push({
      start: this.#lane.sourceOf(place),
      end: this.#lane.sourceEndOf(place + run.to - from - 1),
      needle,
      from,
      to: run.to,
      placeStart: place,
      placeEnd: place + run.to - from,
    })
  }

  /**
   * What stands before a value may swallow its first characters as the rest of an escape (`100%` before `ab…`), and its
   * last ones may swallow what follows. So every escape is also looked at as if it were none.
   */
  seams(): void {
    const { escapes, escapeCount } = this.#lane
    for (let i = 0; i < escapeCount * escapeFields; i += escapeFields) {
      const at = escapes[i + 1] ?? 0
      const end = at + (escapes[i + 2] ?? 0)
      const behind = escapes[i + 3] ?? 0
      for (let from = at + 1; from < end; from++) this.#head(from, end, behind)
      if (!this.#searched.hasOpenTail) continue
      for (let to = at + 1; to < end; to++) this.#tail(at, to, escapes[i] ?? 0)
    }
  }

  /** A value that begins at `from`, inside an escape that ends at `end`; `place` is the lane's next. */
  #head(from: number, end: number, place: number): void {
    const size = end - from
    if (size >= longestHead || this.#lane.length - place < gramSize - size) return
    const isPlain = this.#fillPlainHead(from, size, place)
    if (isPlain && !this.#mayBeGram()) return
    const head = this.#decoded(from, end)
    if (head === undefined || head.length === 0 || this.#lane.length - place < gramSize - head.length) return
    for (let i = 0; i < gramSize; i++) {
      this.#seam[i] = fold(head[i] ?? this.#lane.text[place + i - head.length] ?? 0)
    }
    this.#eachSeamEntry((owner, position) => this.#followHead({ owner, position, from, head, place }))
  }

  /** Puts the gram at `from` together; false if an escape within the escape must be read first. */
  #fillPlainHead(from: number, size: number, place: number): boolean {
    const seam = this.#seam
    const { text } = this.#lane
    for (let i = 0; i < gramSize; i++) {
      const byte = i < size ? (folded[this.#lane.byteAt(from + i)] ?? 0) : (text[place + i - size] ?? 0)
      if (byte === 0) return false
      seam[i] = byte
    }
    return true
  }

  #mayBeGram(): boolean {
    const { bloom, bloomShift } = this.#index
    const bit = gramHash(this.#seamView, 0) >>> bloomShift
    return ((bloom[bit >>> 5] ?? 0) & (1 << (bit & 31))) !== 0
  }

  /** The characters between two offsets of the source, or nothing if the second is not between characters. */
  #decoded(from: number, end: number): number[] | undefined {
    const bytes: number[] = []
    let at = from
    while (at < end) {
      const atom = this.#lane.readAt(at)
      if (sizeOf(atom) === 0 || at + sizeOf(atom) > end) return undefined
      bytes.push(...bytesOf(codeOf(atom)).filter((byte) => byte !== 0 && byte !== 10 && byte !== 13))
      at += sizeOf(atom)
    }
    return bytes
  }

  #eachSeamEntry(visit: (owner: number, position: number) => void): void {
    if (!this.#mayBeGram()) return
    const { heads, headShift, entries } = this.#index
    const hash = gramHash(this.#seamView, 0)
    for (let entry = heads[hash >>> headShift] ?? 0; entry !== 0; entry = entries[entry] ?? 0) {
      if (entries[entry + 1] === hash) visit(entries[entry + 3] ?? 0, entries[entry + 2] ?? 0)
    }
  }

  #followHead(seam: { owner: number; position: number; from: number; head: number[]; place: number }): void {
    const needle = this.#index.needles[seam.owner]
    if (needle === undefined) return
    const first = seam.position - (this.#index.starts[seam.owner] ?? 0)
    const { head, place } = seam
    let to = first
    while (to < needle.exact.length) {
      const i = to - first
      const byte = i < head.length ? head[i] : this.#exactOrNone(place + i - head.length)
      if (byte === undefined || !isSame(needle, to, byte)) break
      to++
    }
    const length = to - first
    if (length < needle.minRun || longestRun(needle.core, first, to) < leastCore(needle)) return
    const placeEnd = place + length - head.length
    const behind = this.#lane.breakBehind(place)
    if (behind >= 0 && behind < placeEnd && head.length + behind - place < beforeBreak) return
    const end = this.#lane.sourceEndOf(placeEnd - 1)
    this.matches.push({ start: seam.from, end, needle, from: first, to, placeStart: -1, placeEnd })
  }

  #exactOrNone(place: number): number | undefined {
    return place >= 0 && place < this.#lane.length ? this.#lane.exactAt(place) : undefined
  }

  /** A value that ends at `to`, inside an escape that begins at `at`. */
  #tail(at: number, to: number, place: number): void {
    const { text } = this.#lane
    const raw = to - at
    if (raw >= gramSize || place < gramSize - raw) return
    for (let i = 0; i < gramSize; i++) {
      const back = gramSize - raw - i
      this.#seam[i] = back > 0 ? (text[place - back] ?? 0) : fold(this.#lane.byteAt(at - back))
    }
    this.#eachSeamEntry((owner, position) => this.#followTail({ owner, position, at, to, place }))
  }

  #followTail(seam: { owner: number; position: number; at: number; to: number; place: number }): void {
    const needle = this.#index.needles[seam.owner]
    if (needle === undefined || seam.position + gramSize !== this.#index.ends[seam.owner]) return
    const raw = seam.to - seam.at
    const size = needle.exact.length
    let back = 1
    while (back <= size) {
      const byte = back <= raw ? this.#lane.byteAt(seam.to - back) : this.#exactOrNone(seam.place + raw - back)
      if (byte === undefined || !isSame(needle, size - back, byte)) break
      back++
    }
    const from = size - back + 1
    if (size - from < needle.minRun || longestRun(needle.core, from, size) < leastCore(needle)) return
    const placeStart = seam.place + raw - (size - from)
    const start = this.#lane.sourceOf(placeStart)
    this.matches.push({ start, end: seam.to, needle, from, to: size, placeStart, placeEnd: seam.place })
  }

  /** Every occurrence of a needle that only matches as a whole. */
  whole(needle: Needle): void {
    const { text, length } = this.#lane
    const haystack = Buffer.from(text.buffer, 0, length)
    let place = haystack.indexOf(needle.text)
    while (place >= 0) {
      this.#record(needle, { from: 0, to: needle.text.length, place })
      place = haystack.indexOf(needle.text, place + 1)
    }
  }
}

/** A whole-only needle may have less core than it is long, or none. */
const leastCore = (needle: Needle): number => (needle.isWholeOnly ? 0 : needle.minRun)

/** Equal characters but for the two alphabets of base64 and the `+` that stands for a space in a form. */
function isSame(needle: Needle, at: number, byte: number): boolean {
  const wanted = needle.exact[at]
  if (wanted === byte) return true
  return isOtherSpelling(needle.form, wanted ?? 0, byte)
}

function isOtherSpelling(form: Form, wanted: number, byte: number): boolean {
  if (form === 'text') return wanted === 0x20 && byte === 0x2b
  // A `+` that a form decoder took for a space is base64 of the same value.
  if (form === 'base64') return fold(wanted) === fold(byte)
  return false
}
