import {
  bytesOf,
  codeOf,
  deepest,
  EscapeReader,
  incomplete,
  opensEscape,
  readPlain,
  sizeOf,
} from './escapes.ts'
import { fold, folded, foldedPairs } from './folding.ts'

const nul = 0x00
const escapedNul = 0x01
const lineFeed = 0x0a
const carriageReturn = 0x0d

/** Numbers kept for each escape in `Lane.escapes`. */
export const escapeFields = 4

/** Characters that must stand before a line end within a match, so that a finished line is not held back. */
export const beforeBreak = 4

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
  /** Places in `text` before which a line end was left out; those that were escaped do not count. */
  breaks = new Int32Array(16)
  breakCount = 0
  /** Source bytes read since it was made; tells tests what work was done. */
  bytesRead = 0
  /** Escapes of more than one byte: place in `text`, offset and size in the source, place behind it in `text`. */
  escapes = new Int32Array(64)
  escapeCount = 0
  #source: Uint8Array = new Uint8Array(0)
  #reader = new EscapeReader()
  /** Place in `text` at which line ends are being counted. */
  #lineEndPlace = -1
  #lineFeeds = 0
  #returns = 0
  /** Pairs: place in `text`, offset in the source of the byte there; the bytes after it follow one by one. */
  #segments = new Int32Array(32)
  #segmentCount = 0

  /** Reads all of `source`; `isFinal` if nothing will follow it. */
  fill(source: Uint8Array, isFinal: boolean): void {
    this.#reset(source, isFinal)
    const size = source.length
    this.bytesRead += size
    const input = new DataView(source.buffer, source.byteOffset, size)
    const output = this.view
    let place = 0
    let at = 0
    while (at < size) {
      // Four bytes at a time as far as none needs care; the value is the same on machines of either byte order.
      while (at + 4 <= size) {
        const word = input.getInt32(at, true)
        const low = foldedPairs[word & 0xffff] ?? 0
        const high = foldedPairs[word >>> 16] ?? 0
        if (low === 0 || high === 0) break
        output.setInt32(place, low | (high << 16), true)
        place += 4
        at += 4
      }
      if (at >= size) break
      const byte = folded[input.getUint8(at)] ?? 0
      if (byte !== 0) {
        output.setUint8(place++, byte)
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
    this.#lineEndPlace = -1
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
    const atom = readPlain(this.#source, at) || this.#reader.read(at)
    if (atom === incomplete) return incomplete
    const size = sizeOf(atom)
    const code = codeOf(atom)
    this.#segment(at)
    const place = this.length
    if (code < 0x80) this.#take(code, at)
    else this.#takeAll(bytesOf(code), at)
    this.#segment(at + size)
    if (size > 1) this.#escape(place, at, size)
    return at + size
  }

  #takeAll(bytes: readonly number[], at: number): void {
    for (const byte of bytes) {
      this.#take(byte, at)
      this.#segment(at)
    }
  }

  #take(byte: number, at: number): void {
    if (byte === nul) {
      // Between the bytes of UTF-16; an escaped one is a character, and no value has any.
      if (opensEscape(this.#source[at] ?? 0)) this.text[this.length++] = escapedNul
      return
    }
    if (byte === lineFeed || byte === carriageReturn) this.#lineEnd(byte, at)
    else this.text[this.length++] = fold(byte)
  }

  #lineEnd(byte: number, at: number): void {
    if (this.#lineEndPlace !== this.length) {
      this.#lineEndPlace = this.length
      this.#lineFeeds = 0
      this.#returns = 0
    }
    // An escaped line end is not the end of what is sent, so a match may well have one after a character or two.
    if (!opensEscape(this.#source[at] ?? 0) && this.#lastBreak() !== this.length) {
      this.breaks = grown(this.breaks, this.breakCount + 1)
      this.breaks[this.breakCount++] = this.length
    }
    if (byte === lineFeed) this.#lineFeeds++
    else this.#returns++
    const isBlank = this.#lineFeeds === 2 || (this.#lineFeeds === 0 && this.#returns === 2)
    if (!isBlank || (this.length > 0 && this.text[this.length - 1] === lineFeed)) return
    if (this.#lastBreak() === this.length) this.breakCount--
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

  #escape(place: number, at: number, size: number): void {
    const base = escapeFields * this.escapeCount++
    this.escapes = grown(this.escapes, base + escapeFields)
    this.escapes[base] = place
    this.escapes[base + 1] = at
    this.escapes[base + 2] = size
    this.escapes[base + 3] = this.length
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
      const start = this.escapes[escapeFields * i + 1] ?? 0
      const end = start + (this.escapes[escapeFields * i + 2] ?? 0)
      if (end === at) return start
      if (end < at) return at
    }
    return at
  }

  /** The character at an offset of the source, as `EscapeReader.read` gives it. */
  readAt(at: number, level = deepest): number {
    return this.#reader.read(at, level)
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
