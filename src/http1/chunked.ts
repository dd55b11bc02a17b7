import { hasForbiddenByte, parseFields, type Field, type Problem } from './fields.ts'

const sizeLine = /^([0-9A-Fa-f]{1,13})[ \t]*(?:;.*)?$/
/** Longest chunk-size line with its extensions, bytes. */
const maxLine = 512
/** Extension bytes in one body; extensions are never forwarded, so more is only an attempt to burn time. */
const maxExtensions = 8 * 1024
const maxTrailerBytes = 8 * 1024
const maxTrailers = 32

type State = 'size' | 'data' | 'data-end' | 'trailers' | 'done'

/**
 * Incremental reader of a chunked body, RFC 9112 section 7.1. Strict: CRLF only, hex sizes without sign or prefix,
 * bounded extensions and trailers.
 */
export class ChunkedReader {
  #state: State = 'size'
  #left = 0
  #extensions = 0
  #trailerBytes = 0
  #line = ''
  #trailerLines: string[] = []
  /** Fields after the last chunk; complete once `done`. */
  trailers: readonly Field[] = []

  get done(): boolean {
    return this.#state === 'done'
  }

  /**
   * Takes bytes, hands content to `emit` as views, and returns how many bytes belong to this body; the rest is the next
   * message's. Returns a problem at the first byte that breaks the grammar.
   */
  push(bytes: Buffer, emit: (content: Buffer) => void): number | Problem {
    let at = 0
    while (at < bytes.length && this.#state !== 'done') {
      const step = this.#state === 'data' ? this.#data(bytes, at, emit) : this.#lineStep(bytes, at)
      if (typeof step !== 'number') return step
      at = step
    }
    return at
  }

  #data(bytes: Buffer, at: number, emit: (content: Buffer) => void): number {
    const end = Math.min(bytes.length, at + this.#left)
    emit(bytes.subarray(at, end))
    this.#left -= end - at
    if (this.#left === 0) this.#state = 'data-end'
    return end
  }

  #lineStep(bytes: Buffer, at: number): number | Problem {
    const newline = bytes.indexOf(0x0a, at)
    const end = newline < 0 ? bytes.length : newline + 1
    this.#line += bytes.toString('latin1', at, end)
    const limit = this.#state === 'trailers' ? maxTrailerBytes : maxLine
    if (this.#line.length > limit) return { problem: 'chunk line too long', tooLarge: 'fields' }
    if (newline < 0) return end
    if (!this.#line.endsWith('\r\n')) return { problem: 'bare LF in a chunked body' }
    const line = this.#line.slice(0, -2)
    this.#line = ''
    if (hasForbiddenByte(line)) return { problem: 'control character in a chunked body' }
    return this.#take(line) ?? end
  }

  #take(line: string): Problem | undefined {
    if (this.#state === 'size') return this.#size(line)
    if (this.#state === 'data-end') {
      if (line !== '') return { problem: 'chunk longer than its size' }
      this.#state = 'size'
      return undefined
    }
    return this.#trailer(line)
  }

  #size(line: string): Problem | undefined {
    const match = sizeLine.exec(line)
    if (match === null) return { problem: 'chunk size is not hexadecimal' }
    const size = match[1] ?? ''
    this.#extensions += line.length - size.length
    if (this.#extensions > maxExtensions) return { problem: 'chunk extensions too long', tooLarge: 'fields' }
    this.#left = Number.parseInt(size, 16)
    this.#state = this.#left === 0 ? 'trailers' : 'data'
    return undefined
  }

  #trailer(line: string): Problem | undefined {
    if (line === '') {
      const fields = parseFields(this.#trailerLines, 0, maxTrailers)
      if ('problem' in fields) return fields
      this.trailers = fields
      this.#state = 'done'
      return undefined
    }
    this.#trailerBytes += line.length
    if (this.#trailerBytes > maxTrailerBytes) return { problem: 'trailers too long', tooLarge: 'fields' }
    this.#trailerLines.push(line)
    return undefined
  }
}

/** Prefix and suffix of one chunk of `length` bytes; `length` is never 0, which would end the body. */
export const chunkHead = (length: number): string => `${length.toString(16)}\r\n`

/** The last chunk with its trailers. */
export function lastChunk(trailers: readonly Field[]): string {
  return `0\r\n${trailers.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n`
}
