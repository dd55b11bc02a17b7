import { Refusal } from '../core/errors.ts'
import type { Field } from '../http1/fields.ts'
import type { Redactor, Scanner } from '../redact/port.ts'
import type { Body } from './body.ts'
import type { Decoder } from './codings.ts'

/** A bound upstream's body: decoded, redacted, of unknown length. */
export class RedactedBody implements Body {
  readonly length = undefined
  readonly #source: Body
  readonly #decoder: Decoder | undefined
  readonly #redactor: Redactor
  complete = false

  constructor(source: Body, decoder: Decoder | undefined, redactor: Redactor) {
    this.#source = source
    this.#decoder = decoder
    this.#redactor = redactor
  }

  /** Gives back what the decoder holds; for a body that is not read to its end. */
  close(): void {
    this.#decoder?.close()
  }

  get hits(): number {
    return this.#redactor.hits
  }

  get trailers(): readonly Field[] {
    return this.#source.trailers
  }

  /** The next piece that is certain to be clean; may be longer or shorter than what came. */
  async next(): Promise<Buffer | undefined> {
    while (!this.complete) {
      const piece = await this.#source.next()
      const plain = piece === undefined ? await this.#decoder?.end() : await this.#decode(piece)
      const clean = plain === undefined ? undefined : this.#redactor.push(plain)
      if (piece === undefined) {
        this.complete = true
        const rest = this.#redactor.flush()
        return joined(clean, rest)
      }
      if (clean !== undefined && clean.length > 0) return asBuffer(clean)
    }
    return undefined
  }

  #decode(piece: Buffer): Promise<Uint8Array> | Uint8Array {
    return this.#decoder === undefined ? piece : this.#decoder.write(piece)
  }
}

/**
 * Another upstream's body: its bytes pass as they came, but only once the decoded bytes beside them are known to hold
 * no secret. A match ends it for good.
 */
export class ScannedBody implements Body {
  readonly length: number | undefined
  readonly #source: Body
  readonly #decoder: Decoder | undefined
  readonly #scanner: Scanner
  /** Looks at the coded bytes themselves: names and comments of gzip and frames that decoders skip hold plain text. */
  readonly #coded: Scanner | undefined
  readonly #isWithin: ((bytes: Uint8Array) => boolean) | undefined
  /** Coded pieces whose decoded bytes are still held by the scanner. */
  #held: Buffer[] = []
  /** Decoded bytes that went into the scanner and that came out of it. */
  #scannedIn = 0
  #scannedOut = 0
  #isEnded = false

  constructor(
    source: Body,
    by: {
      decoder: Decoder | undefined
      scanner: Scanner
      coded: Scanner | undefined
      /** Of a part of a representation (206): may its bytes be the middle of a secret? */
      isWithin?: ((bytes: Uint8Array) => boolean) | undefined
    },
  ) {
    this.#source = source
    this.#decoder = by.decoder
    this.#scanner = by.scanner
    this.#coded = by.coded
    this.#isWithin = by.isWithin
    this.length = source.length
  }

  /** Gives back what the decoder holds; for a body that is not read to its end. */
  close(): void {
    this.#decoder?.close()
  }

  get complete(): boolean {
    return this.#isEnded
  }

  get trailers(): readonly Field[] {
    return this.#source.trailers
  }

  async next(): Promise<Buffer | undefined> {
    while (!this.#isEnded) {
      const piece = await this.#source.next()
      if (piece === undefined) return this.#last()
      const clean =
        this.#decoder === undefined ? this.#scanPlain(piece) : await this.#scanCoded(piece, this.#decoder)
      if (clean !== undefined && clean.length > 0) return clean
    }
    return undefined
  }

  #scanPlain(piece: Buffer): Buffer | undefined {
    this.#scannedIn += piece.length
    const clean = this.#scanner.push(piece)
    if (clean === undefined) throw found()
    this.#scannedOut += clean.length
    return asBuffer(clean)
  }

  async #scanCoded(piece: Buffer, decoder: Decoder): Promise<Buffer | undefined> {
    if (this.#coded !== undefined && this.#coded.push(piece) === undefined) throw found()
    const plain = await decoder.write(piece)
    this.#scannedIn += plain.length
    const clean = this.#scanner.push(plain)
    if (clean === undefined) throw found()
    this.#scannedOut += clean.length
    this.#held.push(piece)
    // While the scanner holds back the start of a possible match, so do we: every piece since may complete it.
    if (this.#scannedOut < this.#scannedIn) return undefined
    return this.#release()
  }

  async #last(): Promise<Buffer | undefined> {
    this.#isEnded = true
    if (this.#decoder !== undefined) {
      const plain = await this.#decoder.end()
      if (this.#scanner.push(plain) === undefined) throw found()
      if (this.#coded !== undefined && this.#coded.flush() === undefined) throw found()
    }
    const rest = this.#scanner.flush()
    if (rest === undefined) throw found()
    // What lies within a secret may be its next character for all the scanner knows, so nothing of it is out yet.
    if (this.#scannedOut === 0 && this.#isWithin?.(rest) === true) throw found()
    const last = this.#decoder === undefined ? asBuffer(rest) : this.#release()
    return last.length > 0 ? last : undefined
  }

  #release(): Buffer {
    const bytes = Buffer.concat(this.#held)
    this.#held = []
    return bytes
  }
}

const found = (): Refusal => new Refusal('credential_in_response')

const asBuffer = (bytes: Uint8Array): Buffer => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)

function joined(a: Uint8Array | undefined, b: Uint8Array): Buffer | undefined {
  const bytes = a === undefined || a.length === 0 ? asBuffer(b) : Buffer.concat([a, b])
  return bytes.length > 0 ? bytes : undefined
}
