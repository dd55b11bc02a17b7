import { bytesOf, codeOf, deepest, sizeOf } from './escapes.ts'
import { hasPair, type Match, type Searched } from './match.ts'
import { fold, folded } from './folding.ts'
import { gramHash, gramSize, hashOf, mayHave } from './gram-index.ts'
import { beforeBreak, escapeFields, type Lane } from './lane.ts'
import { isEchoed, isSame, type Needle } from './needles.ts'

/** Longest part of an escape that may belong to a value instead, source bytes: five characters, escaped in full. */
const longestHead = 40

/** An escape: offset in the source and behind it, place of its character in the lane and behind that. */
interface Seam {
  readonly at: number
  readonly end: number
  readonly place: number
  readonly behind: number
}

/**
 * What stands before a value may swallow its first characters as the rest of an escape (`100%` before `ab…`), and its
 * last ones may swallow what follows. So every escape is also looked at as if it were none.
 */
export function findInEscapes(searched: Searched, lane: Lane, matches: Match[]): void {
  const seams = new Seams(searched, lane, matches)
  const { escapes, escapeCount } = lane
  const hasWholes = searched.wholes.length > 0
  for (let i = 0; i < escapeCount * escapeFields; i += escapeFields) {
    const at = escapes[i + 1] ?? 0
    const end = at + (escapes[i + 2] ?? 0)
    const behind = escapes[i + 3] ?? 0
    for (let from = Math.max(at + 1, end - longestHead); from < end; from++) {
      if (hasWholes || seams.mayBegin(from, end, behind))
        seams.begin(from, { at, end, place: escapes[i] ?? 0, behind })
    }
    if (searched.hasOpenTail) seams.ends({ at, end, place: escapes[i] ?? 0, behind })
  }
}

const isLineEnd = (code: number): boolean => code === 0x0a || code === 0x0d || code === 0

class Seams {
  readonly #searched: Searched
  readonly #lane: Lane
  readonly #matches: Match[]
  readonly #gram = new Uint8Array(gramSize)
  readonly #gramView = new DataView(this.#gram.buffer)

  constructor(searched: Searched, lane: Lane, matches: Match[]) {
    this.#searched = searched
    this.#lane = lane
    this.#matches = matches
  }

  /** Can a value begin at `from`, inside an escape that ends at `end`? Costs little, since it is asked for every one. */
  mayBegin(from: number, end: number, behind: number): boolean {
    const { view, length } = this.#lane
    const size = end - from
    if (length - behind < gramSize - size) return false
    const first = folded[this.#lane.byteAt(from)] ?? 0
    const second = size > 1 ? (folded[this.#lane.byteAt(from + 1)] ?? 0) : view.getUint8(behind)
    if (first === 0 || second === 0) return this.#mayBeginEscaped(from, end, behind)
    if (!hasPair(this.#searched.pairs, first, second)) return false
    if (size > 2) return true
    const text = view.getInt32(behind, true)
    const low = size === 1 ? first | (text << 8) : first | (second << 8) | (text << 16)
    return mayHave(this.#searched.index, hashOf(low, view.getInt32(behind + 4 - size, true)))
  }

  /** The same where the first or the second character is itself escaped. */
  #mayBeginEscaped(from: number, end: number, behind: number): boolean {
    const first = this.#lane.readAt(from)
    const next = from + sizeOf(first)
    if (sizeOf(first) === 0 || next > end) return false
    const second = next < end ? codeOf(this.#lane.readAt(next)) : (this.#lane.text[behind] ?? 0)
    if (codeOf(first) >= 0x80 || second >= 0x80 || isLineEnd(codeOf(first)) || isLineEnd(second)) return true
    return hasPair(this.#searched.pairs, fold(codeOf(first)), fold(second))
  }

  /** Follows values that begin at `from`, inside an escape. */
  begin(from: number, seam: Seam): void {
    const { text, length } = this.#lane
    const head = this.#decoded(from, seam.end)
    if (head === undefined || head.length === 0) return
    for (const needle of this.#searched.wholes) this.#matchHead(needle, 0, { ...seam, from, head })
    if (length - seam.behind < gramSize - head.length) return
    for (let i = 0; i < gramSize; i++)
      this.#gram[i] = fold(head[i] ?? text[seam.behind + i - head.length] ?? 0)
    this.#eachEntry((owner, position) => this.#followHead({ ...seam, from, head, owner, position }))
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

  #eachEntry(visit: (owner: number, position: number) => void): void {
    const { index } = this.#searched
    const hash = gramHash(this.#gramView, 0)
    if (!mayHave(index, hash)) return
    const { heads, headShift, entries } = index
    for (let entry = heads[hash >>> headShift] ?? 0; entry !== 0; entry = entries[entry] ?? 0) {
      if (entries[entry + 1] === hash) visit(entries[entry + 3] ?? 0, entries[entry + 2] ?? 0)
    }
  }

  #followHead(
    found: Seam & { from: number; head: readonly number[]; owner: number; position: number },
  ): void {
    const { index } = this.#searched
    const needle = index.needles[found.owner]
    if (needle !== undefined)
      this.#matchHead(needle, found.position - (index.starts[found.owner] ?? 0), found)
  }

  #matchHead(needle: Needle, first: number, found: Seam & { from: number; head: readonly number[] }): void {
    const { head, behind } = found
    const { text, length } = this.#lane
    const shift = behind - head.length - first
    let to = first + head.length
    while (to < needle.text.length && to + shift < length && needle.text[to] === text[to + shift]) to++
    if (to - first < needle.minRun) return
    let exact = first
    while (exact < to) {
      const i = exact - first
      if (!isSame(needle, exact, i < head.length ? (head[i] ?? 0) : this.#lane.exactAt(exact + shift))) break
      exact++
    }
    to = exact
    const placeEnd = behind + to - first - head.length
    if (!isEchoed(needle, first, to) || this.#breaksEarly(found, placeEnd)) return
    const end = this.#lane.sourceEndOf(placeEnd - 1)
    const { from, at } = found
    this.#matches.push({ start: from, heldFrom: at, end, needle, from: first, to, placeStart: -1, placeEnd })
  }

  /** A line end after the first few characters ends a run, as it does elsewhere; those in the escape do not count. */
  #breaksEarly({ behind, end }: Seam, placeEnd: number): boolean {
    if (behind < this.#lane.length && this.#lane.sourceOf(behind) !== end) return true
    const at = this.#lane.breakBehind(behind)
    return at >= 0 && at < placeEnd && at - behind < beforeBreak
  }

  #exactOrNone(place: number): number | undefined {
    return place >= 0 && place < this.#lane.length ? this.#lane.exactAt(place) : undefined
  }

  /** Values that end inside an escape: its opener read on a lower level, and what follows that. */
  ends(seam: Seam): void {
    let known = 0
    for (let level = 0; level < deepest; level++) {
      const opener = this.#lane.readAt(seam.at, level)
      const size = sizeOf(opener)
      if (size === known || seam.at + size >= seam.end) continue
      known = size
      const bytes = [...bytesOf(codeOf(opener))]
      let to = seam.at + size
      while (to < seam.end && bytes.length < gramSize) {
        this.#end({ bytes: bytes.toReversed(), to, place: seam.place })
        const next = this.#lane.readAt(to)
        if (sizeOf(next) === 0) break
        bytes.push(...bytesOf(codeOf(next)))
        to += sizeOf(next)
      }
    }
  }

  /** A value that ends in `bytes`, the last first, at the offset `to`. */
  #end(tail: { bytes: readonly number[]; to: number; place: number }): void {
    const { bytes, place } = tail
    for (const needle of this.#searched.wholes) this.#matchTail(needle, tail)
    if (place + bytes.length < gramSize) return
    for (let i = 0; i < gramSize; i++) {
      this.#gram[gramSize - 1 - i] = fold(bytes[i] ?? this.#lane.text[place - 1 - i + bytes.length] ?? 0)
    }
    this.#eachEntry((owner, position) => this.#followTail({ ...tail, owner, position }))
  }

  #followTail(found: {
    owner: number
    position: number
    bytes: readonly number[]
    to: number
    place: number
  }): void {
    const { index } = this.#searched
    const needle = index.needles[found.owner]
    if (needle !== undefined && found.position + gramSize === index.ends[found.owner])
      this.#matchTail(needle, found)
  }

  #matchTail(needle: Needle, found: { bytes: readonly number[]; to: number; place: number }): void {
    const { bytes, place } = found
    const size = needle.exact.length
    let count = 0
    while (count < size) {
      const byte = count < bytes.length ? bytes[count] : this.#exactOrNone(place - 1 - count + bytes.length)
      if (byte === undefined || !isSame(needle, size - 1 - count, byte)) break
      count++
    }
    const from = size - count
    if (!isEchoed(needle, from, size)) return
    const placeStart = place - count + bytes.length
    const start = this.#lane.sourceOf(placeStart)
    this.#matches.push({
      start,
      heldFrom: start,
      end: found.to,
      needle,
      from,
      to: size,
      placeStart,
      placeEnd: place,
    })
  }
}
