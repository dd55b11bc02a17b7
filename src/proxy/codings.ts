import * as zlib from 'node:zlib'
import { Refusal } from '../core/errors.ts'

/** Content codings that are decoded here, by the names of RFC 9110 section 8.4.1, RFC 7932 and RFC 8878. */
export const decodableCodings: readonly string[] = ['gzip', 'x-gzip', 'deflate', 'br', 'zstd']

/** Decodes one body piece by piece. */
export interface Decoder {
  /** Everything that the bytes so far decode to and was not returned yet; throws a `Refusal`. */
  write(piece: Uint8Array): Promise<Uint8Array>
  /** The rest; `unreadable_encoding` when the input is cut. */
  end(): Promise<Uint8Array>
}

export interface DecoderLimits {
  /** Decoded bytes for each coded byte, once more than a mebibyte came out. Default 200. */
  readonly maxRatio?: number
  /** Decoded bytes in all. Default 1 GiB. */
  readonly maxBytes?: number
}

const maxStack = 3
const ratioAppliesFrom = 1024 * 1024

/** What to offer an upstream whose answer must be readable: the client's list, less what we cannot decode. */
export function limitAcceptEncoding(value: string | undefined): string {
  if (value === undefined) return 'identity'
  const kept = value
    .split(',')
    .map((part) => part.trim())
    .filter((part) => {
      const coding = part.split(';')[0]?.trim().toLowerCase() ?? ''
      return coding === 'identity' || decodableCodings.includes(coding)
    })
  return kept.length > 0 ? kept.join(', ') : 'identity'
}

/** A decoder for a `Content-Encoding`, the word `identity`, or `unreadable` for a coding that is not known here. */
export function createDecoder(contentEncoding: string, limits: DecoderLimits = {}): Decoder | 'identity' | 'unreadable' {
  const codings = contentEncoding
    .split(',')
    .map((coding) => coding.trim().toLowerCase())
    .filter((coding) => coding !== '' && coding !== 'identity')
  if (codings.length === 0) return 'identity'
  if (codings.length > maxStack || codings.some((coding) => !decodableCodings.includes(coding))) return 'unreadable'
  const meter = new Meter(limits)
  // Applied in the order listed, so the last one is taken off first.
  return new Stack(codings.reverse().map((coding) => new Stage(coding, meter)), meter)
}

/** Counts what goes in and comes out of a whole stack, so that nesting does not multiply the limit. */
class Meter {
  readonly #maxRatio: number
  readonly #maxBytes: number
  input = 0

  constructor({ maxRatio = 200, maxBytes = 1024 ** 3 }: DecoderLimits) {
    this.#maxRatio = maxRatio
    this.#maxBytes = maxBytes
  }

  check(output: number): void {
    if (output > this.#maxBytes) throw new Refusal('bomb')
    if (output > ratioAppliesFrom && output > this.input * this.#maxRatio) throw new Refusal('bomb')
  }
}

class Stack implements Decoder {
  readonly #stages: readonly Stage[]
  readonly #meter: Meter

  constructor(stages: readonly Stage[], meter: Meter) {
    this.#stages = stages
    this.#meter = meter
  }

  async write(piece: Uint8Array): Promise<Uint8Array> {
    this.#meter.input += piece.length
    let bytes = piece
    for (const stage of this.#stages) bytes = await stage.write(bytes)
    return bytes
  }

  async end(): Promise<Uint8Array> {
    let bytes: Uint8Array = new Uint8Array(0)
    for (const stage of this.#stages) {
      const written = await stage.write(bytes)
      bytes = Buffer.concat([written, await stage.end()])
    }
    return bytes
  }
}

type Unzip = zlib.Gunzip | zlib.Inflate | zlib.InflateRaw | zlib.BrotliDecompress | zlib.ZstdDecompress

/** One coding. The zlib stream is made at the first byte, which tells zlib-wrapped deflate from raw. */
class Stage {
  readonly #coding: string
  readonly #meter: Meter
  #stream: Unzip | undefined
  #out: Buffer[] = []
  #size = 0
  #error: Error | undefined
  #isEnded = false
  #wake: (() => void) | undefined

  constructor(coding: string, meter: Meter) {
    this.#coding = coding
    this.#meter = meter
  }

  async write(bytes: Uint8Array): Promise<Uint8Array> {
    if (bytes.length > 0) {
      if (this.#isEnded) throw unreadable('bytes after the end of the coding')
      const stream = (this.#stream ??= this.#open(bytes[0] ?? 0))
      await this.#settle((done) => void stream.write(bytes, done))
    }
    return this.#take()
  }

  async end(): Promise<Uint8Array> {
    const stream = this.#stream
    if (stream === undefined) return new Uint8Array(0)
    if (!this.#isEnded) await this.#settle((done) => stream.end(done))
    stream.destroy()
    return this.#take()
  }

  /** Runs one call of the stream to its end: its own callback, its end, or its failure. */
  async #settle(call: (done: () => void) => void): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#wake = resolve
      call(() => setImmediate(resolve))
    })
    this.#wake = undefined
    if (this.#error !== undefined) throw this.#error
  }

  #take(): Uint8Array {
    const bytes = this.#out.length === 1 ? (this.#out[0] ?? Buffer.alloc(0)) : Buffer.concat(this.#out)
    this.#out = []
    return bytes
  }

  #open(first: number): Unzip {
    const stream = openStream(this.#coding, first)
    stream.on('data', (chunk: Buffer) => {
      this.#size += chunk.length
      this.#out.push(chunk)
      try {
        this.#meter.check(this.#size)
      } catch (error) {
        this.#fail(error instanceof Error ? error : unreadable('limit'))
      }
    })
    stream.on('end', () => {
      this.#isEnded = true
      this.#wake?.()
    })
    stream.on('error', (error) => this.#fail(unreadable(error.message)))
    return stream
  }

  #fail(error: Error): void {
    this.#error ??= error
    this.#stream?.destroy()
    this.#wake?.()
  }
}

function openStream(coding: string, first: number): Unzip {
  if (coding === 'br') return zlib.createBrotliDecompress()
  if (coding === 'zstd') {
    // RFC 9659: a window of at most 8 MiB in content codings.
    return zlib.createZstdDecompress({ params: { [zlib.constants.ZSTD_d_windowLogMax]: 23 } })
  }
  if (coding !== 'deflate') return zlib.createGunzip()
  // RFC 9110 section 8.4.1.2 notes that some servers send raw deflate; a zlib header has method 8 in its low nibble.
  return (first & 0x0f) === 8 ? zlib.createInflate() : zlib.createInflateRaw()
}

const unreadable = (detail: string): Refusal => new Refusal('unreadable_encoding', { detail })
