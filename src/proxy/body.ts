import { ChunkedReader } from '../http1/chunked.ts'
import { isProblem, type Field, type Problem } from '../http1/fields.ts'
import type { Framing } from '../http1/framing.ts'
import type { ByteReader } from './byte-reader.ts'

/** Content of one message, pulled piece by piece. */
export interface Body {
  /** The next piece, never empty (that would end a chunked body), `undefined` after the last; throws what `BodyErrors` says. */
  next(): Promise<Buffer | undefined>
  /** Whole length if it is known before the first piece, bytes. */
  readonly length: number | undefined
  /** The next piece is there already: waiting for it waits for nothing. */
  readonly isReady?: boolean
  /** The last byte was taken. */
  readonly complete: boolean
  /** Trailer fields, known once complete. */
  readonly trailers: readonly Field[]
  /** Gives back what a body that is not read to its end still holds. */
  close?(): void
}

/** What a body that ends early or breaks its framing means: a client's is not an upstream's. */
export interface BodyErrors {
  cut(): Error
  broken(problem: Problem): Error
}

const piece = 64 * 1024

/** The body of a message that has none. */
export const emptyBody: Body = {
  next: () => Promise.resolve(undefined),
  length: 0,
  complete: true,
  trailers: [],
}

/** The body of the message whose head was just taken from `reader`. */
export function bodyOf(reader: ByteReader, framing: Framing, errors: BodyErrors): Body {
  if (framing.kind === 'none') return emptyBody
  if (framing.kind === 'length') return new LengthBody(reader, framing.length, errors)
  if (framing.kind === 'chunked') return new ChunkedBody(reader, errors)
  return new CloseBody(reader, errors)
}

class LengthBody implements Body {
  readonly length: number
  readonly trailers: readonly Field[] = []
  readonly #reader: ByteReader
  readonly #errors: BodyErrors
  #left: number

  constructor(reader: ByteReader, length: number, errors: BodyErrors) {
    this.#reader = reader
    this.#errors = errors
    this.length = length
    this.#left = length
  }

  get isReady(): boolean {
    return this.#left === 0 || this.#reader.size > 0
  }

  get complete(): boolean {
    return this.#left === 0
  }

  async next(): Promise<Buffer | undefined> {
    if (this.#left === 0) return undefined
    for (;;) {
      const taken = this.#reader.take(Math.min(piece, this.#left))
      if (taken !== undefined) {
        this.#left -= taken.length
        return taken
      }
      if (this.#reader.ended) throw this.#errors.cut()
      await this.#reader.more()
    }
  }
}

class ChunkedBody implements Body {
  readonly length = undefined
  readonly #reader: ByteReader
  readonly #errors: BodyErrors
  readonly #chunks = new ChunkedReader()
  #ready: Buffer[] = []

  constructor(reader: ByteReader, errors: BodyErrors) {
    this.#reader = reader
    this.#errors = errors
  }

  get complete(): boolean {
    return this.#chunks.done && this.#ready.length === 0
  }

  get trailers(): readonly Field[] {
    return this.#chunks.trailers
  }

  async next(): Promise<Buffer | undefined> {
    for (;;) {
      const ready = this.#ready.length > 1 ? Buffer.concat(this.#ready) : this.#ready[0]
      this.#ready = []
      if (ready !== undefined) return ready
      if (this.#chunks.done) return undefined
      if (this.#reader.size === 0) {
        if (this.#reader.ended) throw this.#errors.cut()
        await this.#reader.more()
        continue
      }
      this.#parse()
    }
  }

  #parse(): void {
    const bytes = this.#reader.peek()
    const used = this.#chunks.push(bytes.subarray(0, piece), (content) => this.#ready.push(content))
    if (typeof used !== 'number') {
      if (isProblem(used)) throw this.#errors.broken(used)
      return
    }
    this.#reader.skip(used)
  }
}

class CloseBody implements Body {
  readonly length = undefined
  readonly trailers: readonly Field[] = []
  readonly #reader: ByteReader
  readonly #errors: BodyErrors
  complete = false

  constructor(reader: ByteReader, errors: BodyErrors) {
    this.#reader = reader
    this.#errors = errors
  }

  async next(): Promise<Buffer | undefined> {
    for (;;) {
      const taken = this.#reader.take(piece)
      if (taken !== undefined) return taken
      if (this.#reader.ended) break
      await this.#reader.more()
    }
    // A reset is not an end: what was sent may be cut, and a false clean end would hide it.
    if (!this.#reader.finished) throw this.#errors.cut()
    this.complete = true
    return undefined
  }
}
