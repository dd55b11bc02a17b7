import type { Transform } from 'node:stream'
import {
  constants,
  createBrotliDecompress,
  createGunzip,
  createInflate,
  createInflateRaw,
  createZstdDecompress,
} from 'node:zlib'
import { Refusal } from '../core/errors.ts'

/** Content codings that are decoded, RFC 9110 section 8.4.1; `deflate` in both kinds, since servers send either. */
export const decodableCodings: readonly string[] = ['gzip', 'x-gzip', 'deflate', 'br', 'zstd']

/** Bounds of what a response may expand to. */
export interface DecoderLimits {
  /** Decoded bytes per byte received, judged beyond 1 MiB of decoded bytes; default 200. */
  readonly maxRatio?: number
  /** Decoded bytes; default 1 GiB. */
  readonly maxBytes?: number
}

/**
 * Decoder of one body. What a coding carries beside the content (names and comments of gzip, skippable frames of zstd) is
 * dropped. Fails with `Refusal('unreadable_encoding')` for broken or cut off data and for bytes behind its end, with
 * `Refusal('bomb')` beyond a limit; after a failure it is closed.
 */
export interface Decoder {
  /** Decoded bytes of a piece, possibly none yet. */
  write(piece: Uint8Array): Promise<Uint8Array>
  /** The remaining bytes; fails if the data is not complete. */
  end(): Promise<Uint8Array>
  /** Lets go of the memory of a body that is not read to its end. */
  close(): void
}

/** Codings in a row that are undone; more have no use but to hide something. */
const deepestStack = 3

const ratioFloor = 1_048_576
const defaultRatio = 200
const defaultBytes = 1_073_741_824
/** Decoded bytes of one piece: what came before it must not earn a piece the right to fill the memory. */
const maxAtOnce = 32 * 1_048_576

/** RFC 9659 section 3: a window of 8 MiB is what `zstd` may ask of a recipient. */
const zstdWindowLog = 23

/** The Accept-Encoding to send where answers are read: the client's, less what is not decoded; `identity` if nothing is left. */
export function limitAcceptEncoding(value: string | undefined): string {
  const kept = (value ?? '').split(',').filter((item) => {
    const match = /^\s*([\w!#$%&'*+.^`|~-]+)\s*(?:;\s*q=(?:0(?:\.\d{0,3})?|1(?:\.0{0,3})?)\s*)?$/i.exec(item)
    const name = match?.[1]?.toLowerCase()
    return name !== undefined && (name === 'identity' || decodableCodings.includes(name))
  })
  return kept.length === 0 ? 'identity' : kept.map((item) => item.trim()).join(', ')
}

/**
 * A decoder for the value of Content-Encoding (several fields joined by commas); `identity` if there is nothing to
 * decode, `unreadable` for an unknown coding or more than three.
 */
export function createDecoder(
  contentEncoding: string,
  limits: DecoderLimits = {},
): Decoder | 'identity' | 'unreadable' {
  const codings = contentEncoding
    .split(',')
    .map((coding) => coding.trim().toLowerCase())
    .filter((coding) => coding !== '' && coding !== 'identity')
  if (codings.length === 0) return 'identity'
  if (codings.length > deepestStack || codings.some((coding) => !decodableCodings.includes(coding)))
    return 'unreadable'
  return new StackDecoder(codings.toReversed(), limits)
}

/** The last coding applied is the first to undo. */
class StackDecoder implements Decoder {
  readonly #stages: readonly Stage[]
  readonly #budget: Budget

  constructor(codings: readonly string[], limits: DecoderLimits) {
    const budget = new Budget(limits)
    this.#budget = budget
    this.#stages = codings.map((coding) => new Stage(coding, budget))
  }

  async write(piece: Uint8Array): Promise<Uint8Array> {
    this.#budget.received += piece.length
    return this.#guarded(async () => {
      let bytes = piece
      for (const stage of this.#stages) bytes = await stage.write(bytes)
      return bytes
    })
  }

  async end(): Promise<Uint8Array> {
    return this.#guarded(async () => {
      let bytes: Uint8Array = Buffer.alloc(0)
      for (const stage of this.#stages) bytes = Buffer.concat([await stage.write(bytes), await stage.end()])
      return bytes
    })
  }

  close(): void {
    for (const stage of this.#stages) stage.close()
  }

  async #guarded(decode: () => Promise<Uint8Array>): Promise<Uint8Array> {
    try {
      return await decode()
    } catch (error) {
      this.close()
      throw error instanceof Refusal ? error : new Refusal('unreadable_encoding', { cause: error })
    }
  }
}

/** Every stage is held to the bytes received, so that a stack cannot multiply ratios. */
class Budget {
  received = 0
  readonly #maxRatio: number
  readonly #maxBytes: number

  constructor(limits: DecoderLimits) {
    this.#maxRatio = limits.maxRatio ?? defaultRatio
    this.#maxBytes = limits.maxBytes ?? defaultBytes
  }

  isExceededBy(decoded: number): boolean {
    return decoded > this.#maxBytes || (decoded > ratioFloor && decoded > this.received * this.#maxRatio)
  }
}

/** One coding of a stack. */
class Stage {
  readonly #coding: string
  readonly #budget: Budget
  #stream: (Transform & { readonly bytesWritten: number }) | undefined
  /** Bytes before the kind of `deflate` is known. */
  #first: Uint8Array = Buffer.alloc(0)
  #received = 0
  #decoded = 0
  #output: Buffer[] = []
  #outputBytes = 0
  #failure: Error | undefined
  #hasEnded = false
  #wake: () => void = () => {}

  constructor(coding: string, budget: Budget) {
    this.#coding = coding
    this.#budget = budget
  }

  async write(piece: Uint8Array): Promise<Uint8Array> {
    if (piece.length === 0) return piece
    this.#received += piece.length
    const bytes = this.#first.length === 0 ? piece : Buffer.concat([this.#first, piece])
    // Two bytes tell the two kinds of deflate apart.
    if (this.#stream === undefined && bytes.length < 2) {
      this.#first = bytes
      return Buffer.alloc(0)
    }
    this.#first = Buffer.alloc(0)
    return this.#feed(bytes)
  }

  async end(): Promise<Uint8Array> {
    if (this.#received === 0) return Buffer.alloc(0)
    const early = this.#first.length > 0 ? await this.#feed(this.#first) : Buffer.alloc(0)
    const stream = this.#open(Buffer.alloc(0))
    if (!this.#hasEnded) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve
        stream.end()
        this.#drain()
      })
    }
    this.#check()
    return Buffer.concat([early, this.#taken()])
  }

  close(): void {
    this.#stream?.destroy()
  }

  async #feed(bytes: Uint8Array): Promise<Uint8Array> {
    const stream = this.#open(bytes)
    if (!this.#hasEnded) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve
        stream.write(bytes, () => {
          this.#drain()
          resolve()
        })
      })
    }
    this.#check()
    return this.#taken()
  }

  #open(first: Uint8Array): Transform & { readonly bytesWritten: number } {
    if (this.#stream !== undefined) return this.#stream
    const stream = streamFor(this.#coding, first)
    stream.on('readable', () => this.#drain())
    stream.on('end', () => {
      this.#hasEnded = true
      this.#wake()
    })
    stream.on('error', (error: Error) => {
      this.#failure ??= error
      this.#wake()
    })
    stream.on('close', () => this.#wake())
    this.#stream = stream
    return stream
  }

  #drain(): void {
    for (;;) {
      const bytes: unknown = this.#stream?.read()
      if (!Buffer.isBuffer(bytes)) return
      this.#decoded += bytes.length
      this.#outputBytes += bytes.length
      if (this.#budget.isExceededBy(this.#decoded) || this.#outputBytes > maxAtOnce) {
        this.#failure ??= new Refusal('bomb')
        this.#stream?.destroy()
        return
      }
      this.#output.push(bytes)
    }
  }

  #check(): void {
    if (this.#failure !== undefined) throw this.#failure
    // A stream that has ended took no byte behind the end of its data.
    if (this.#hasEnded && this.#received > (this.#stream?.bytesWritten ?? 0))
      throw new Refusal('unreadable_encoding')
  }

  #taken(): Uint8Array {
    const output = this.#output
    this.#output = []
    this.#outputBytes = 0
    return output.length === 1 && output[0] !== undefined ? output[0] : Buffer.concat(output)
  }
}

function streamFor(coding: string, first: Uint8Array): Transform & { readonly bytesWritten: number } {
  switch (coding) {
    case 'br':
      return createBrotliDecompress()
    case 'zstd':
      return createZstdDecompress({ params: { [constants.ZSTD_d_windowLogMax]: zstdWindowLog } })
    case 'deflate':
      return hasZlibHeader(first) ? createInflate() : createInflateRaw()
    default:
      return createGunzip()
  }
}

/** RFC 1950 section 2.2; a raw stream never begins so, as its first block would be a stored one with filler bits set. */
function hasZlibHeader(first: Uint8Array): boolean {
  const [method = 0, flags = 0] = first
  return (method & 0x0f) === 8 && method >> 4 <= 7 && (method * 256 + flags) % 31 === 0
}
