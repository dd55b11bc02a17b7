import { bytesOf, codeOf, EscapeReader, incomplete, opensEscape, sizeOf } from './escapes.ts'

const nul = 0x00
const lineFeed = 0x0a
const carriageReturn = 0x0d

/** Characters that must stand before a line end within a match, so that a finished line is not held back. */
export const beforeBreak = 4

/**
 * Bytes as the matcher sees them: `+`, `-` and space are one (form encoding, base64url), `_` and `/` another. 0 marks the
 * bytes that need care. What was folded is compared exactly once a match is found.
 */
export const folded: Uint8Array = Uint8Array.from({ length: 256 }, (_, byte) => {
  if (byte === nul || byte === lineFeed || byte === carriageReturn || opensEscape(byte)) return 0
  return fold(byte)
})

/** The folded form of a decoded byte. */
export function fold(byte: number): number {
  if (byte === 0x2b || byte === 0x2d) return 0x20
  return byte === 0x5f ? 0x2f : byte
}

/**
 * A piece of source as one stream of decoded, folded bytes with a map back: escapes read, NUL (UTF-16) and line ends
 * (base64 in lines, PEM) left out, a blank line kept as one line feed. Reused from piece to piece.
 */
export class Lane {
  text = new Uint8Array(0)
  view = new DataView(this.text.buffer)
  length = 0
  /** Offset in the source where an escape begins that is cut off; the source's length if none is. */
  tail = 0
  /** A line end follows the last byte of `text`. */
  endsInBreak = false
  /** Places in `text` before which a line end was left out. */
  breaks = new Int32Array(16)
  breakCount = 0
  /** Escapes of more than one byte: place in `text`, offset and size in the source. */
  escapes = new Int32Array(48)
  escapeCount = 0
  #source: Uint8Array = new Uint8Array(0)
  #reader = new EscapeReader()
  #lineFeeds = 0
  #returns = 0
  /** Pairs: place in `text`, offset in the source of the byte there; the bytes after it follow one by one. */
  #segments = new Int32Array(32)
  #segmentCount = 0

  /** Reads all of `source`; `isFinal` if nothing will follow it. */
  fill(source: Uint8Array, isFinal: boolean): void {
    this.#reset(source, isFinal)
    const size = source.length
    const text = this.text
    const table = folded
    let place = 0
    let at = 0
    while (at < size) {
      const byte = table[source[at] ?? 0] ?? 0
      if (byte !== 0) {
        text[place++] = byte
        at++
        continue
      }
      this.length = place
      const next = this.#special(at)
      place = this.length
      if (next === incomplete) {
        this.tail = at
        break
      }
      at = next
    }
    this.length = place
    this.endsInBreak = this.#lastBreak() === place
  }

  #reset(source: Uint8Array, isFinal: boolean): void {
    this.#source = source
    this.#reader.use(source, isFinal)
    this.#lineFeeds = 0
    this.#returns = 0
    this.#segments[0] = 0
    this.#segments[1] = 0
    this.#segmentCount = 1
    this.breakCount = 0
    this.escapeCount = 0
    this.length = 0
    this.tail = source.length
    if (this.text.length >= source.length + 16) return
    this.text = new Uint8Array(Math.max(1024, source.length * 2))
    this.view = new DataView(this.text.buffer)
  }

  /** Takes the escape or control byte at `at`; answers where to go on, or `incomplete`. */
  #special(at: number): number {
    const byte = this.#source[at] ?? 0
    if (!opensEscape(byte)) {
      this.#take(byte, at)
      this.#segment(at + 1)
      return at + 1
    }
    const atom = this.#reader.read(at)
    if (atom === incomplete) return incomplete
    const size = sizeOf(atom)
    this.#segment(at)
    if (size > 1) this.#escape(at, size)
    for (const decoded of bytesOf(codeOf(atom))) {
      this.#take(decoded, at)
      this.#segment(at)
    }
    this.#segment(at + size)
    return at + size
  }

  #take(byte: number, at: number): void {
    if (byte === nul) return
    if (byte === lineFeed || byte === carriageReturn) this.#lineEnd(byte, at)
    else this.text[this.length++] = fold(byte)
  }

  #lineEnd(byte: number, at: number): void {
    const isFirst = this.#lastBreak() !== this.length
    if (isFirst) {
      this.#lineFeeds = 0
      this.#returns = 0
      this.breaks = grown(this.breaks, this.breakCount + 1)
      this.breaks[this.breakCount++] = this.length
    }
    if (byte === lineFeed) this.#lineFeeds++
    else this.#returns++
    const isBlank = this.#lineFeeds === 2 || (this.#lineFeeds === 0 && this.#returns === 2)
    if (!isBlank || this.text[this.length - 1] === lineFeed) return
    this.breakCount--
    this.#segment(at)
    this.text[this.length++] = lineFeed
  }

  #lastBreak(): number {
    return this.breakCount === 0 ? -1 : (this.breaks[this.breakCount - 1] ?? 0)
  }

  #segment(sourceAt: number): void {
    const last = 2 * (this.#segmentCount - 1)
    if (this.#segments[last] === this.length) {
      this.#segments[last + 1] = sourceAt
      return
    }
    this.#segments = grown(this.#segments, last + 4)
    this.#segments[last + 2] = this.length
    this.#segments[last + 3] = sourceAt
    this.#segmentCount++
  }

  #escape(at: number, size: number): void {
    const base = 3 * this.escapeCount++
    this.escapes = grown(this.escapes, base + 3)
    this.escapes[base] = this.length
    this.escapes[base + 1] = at
    this.escapes[base + 2] = size
  }

  /** Offset in the source of the character at a place of `text`. */
  sourceOf(place: number): number {
    const segments = this.#segments
    let low = 0
    let high = this.#segmentCount - 1
    while (low < high) {
      const middle = (low + high + 1) >> 1
      if ((segments[2 * middle] ?? 0) <= place) low = middle
      else high = middle - 1
    }
    return (segments[2 * low + 1] ?? 0) + place - (segments[2 * low] ?? 0)
  }

  /** Offset in the source just behind the character at a place of `text`. */
  sourceEndOf(place: number): number {
    const at = this.sourceOf(place)
    return at + this.sizeAt(at)
  }

  /** Size in source bytes of the character or escape that begins at an offset of the source. */
  sizeAt(at: number): number {
    if (!opensEscape(this.#source[at] ?? 0)) return 1
    const atom = this.#reader.read(at)
    return atom === incomplete ? 1 : Math.max(1, sizeOf(atom))
  }

  /** The byte at an offset of the source. */
  byteAt(at: number): number {
    return this.#source[at] ?? -1
  }

  /** The decoded byte at a place of `text` as it was before folding. */
  exactAt(place: number): number {
    const at = this.sourceOf(place)
    const byte = this.#source[at] ?? 0
    if (!opensEscape(byte)) return byte
    const bytes = bytesOf(codeOf(this.#reader.read(at)))
    let first = place
    while (bytes.length > 1 && first > 0 && this.sourceOf(first - 1) === at) first--
    return bytes[place - first] ?? 0
  }

  /** Start of the escape of several bytes that ends at an offset of the source; the offset itself if none does. */
  escapeEndingAt(at: number): number {
    for (let i = this.escapeCount - 1; i >= 0; i--) {
      const start = this.escapes[3 * i + 1] ?? 0
      const end = start + (this.escapes[3 * i + 2] ?? 0)
      if (end === at) return start
      if (end < at) return at
    }
    return at
  }

  /** The character at an offset of the source, as `EscapeReader.read` gives it. */
  readAt(at: number): number {
    return this.#reader.read(at)
  }

  /** Was a line end left out just before a place of `text`? */
  hasBreakAt(place: number): boolean {
    return place > 0 ? this.breakBehind(place - 1) === place : this.breakCount > 0 && this.breaks[0] === 0
  }

  /** First break in `text` behind a place, or -1. */
  breakBehind(place: number): number {
    let low = 0
    let high = this.breakCount
    while (low < high) {
      const middle = (low + high) >> 1
      if ((this.breaks[middle] ?? 0) <= place) low = middle + 1
      else high = middle
    }
    return low < this.breakCount ? (this.breaks[low] ?? -1) : -1
  }
}

function grown(array: Int32Array<ArrayBuffer>, size: number): Int32Array<ArrayBuffer> {
  if (array.length >= size) return array
  const larger = new Int32Array(size * 2)
  larger.set(array)
  return larger
}
