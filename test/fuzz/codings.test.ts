import { brotliDecompressSync, gunzipSync, inflateRawSync, inflateSync, zstdDecompressSync } from 'node:zlib'
import { Refusal } from '../../src/core/errors.ts'
import { createDecoder, decodableCodings, limitAcceptEncoding } from '../../src/proxy/codings.ts'
import { fuzz, holds, inPieces, same } from './fuzz.ts'

const maxBytes = 200_000
const limits = { maxBytes }

const oneShot: Readonly<Record<string, (bytes: Buffer) => Buffer>> = {
  gzip: (bytes) => gunzipSync(bytes, { maxOutputLength: maxBytes * 2 }),
  br: (bytes) => brotliDecompressSync(bytes, { maxOutputLength: maxBytes * 2 }),
  zstd: (bytes) => zstdDecompressSync(bytes, { maxOutputLength: maxBytes * 2 }),
  deflate: (bytes) => {
    const isZlib = ((bytes[0] ?? 0) & 15) === 8 && ((bytes[0] ?? 0) * 256 + (bytes[1] ?? 0)) % 31 === 0
    return (isZlib ? inflateSync : inflateRawSync)(bytes, { maxOutputLength: maxBytes * 2 })
  },
}

/** An input is the value of Content-Encoding, a line break, and the body. */
fuzz({
  name: 'codings',
  inCi: 1_000,
  full: 200_000,
  dictionary: [
    ...[
      'gzip\n',
      'br\n',
      'zstd\n',
      'deflate\n',
      'identity',
      'x-gzip',
      ', ',
      ',,',
      'GZIP',
      'dcb',
      '*',
      ';q=0',
      'compress',
      '\n',
    ],
    ...[
      '\x1f\x8b\x08\0',
      '\x1f\x8b\x08\x04',
      '\x1f\x8b\x08\x18',
      '\x78\x9c',
      '\x28\xb5\x2f\xfd',
      '\x50\x2a\x4d\x18',
      '\0\0\0\xff\xff',
      '\xff\xff',
    ],
    '\0'.repeat(64),
  ],
  async check(bytes, random) {
    const cut = bytes.indexOf(0x0a)
    const coding = bytes.toString('latin1', 0, Math.max(0, cut))
    const body = bytes.subarray(cut + 1)
    checkOffer(coding)
    const whole = await decoded(coding, [body])
    const pieced = await decoded(coding, inPieces(body, random))
    // A limit may be met earlier or later in pieces, never passed.
    if (whole !== 'bomb' && pieced !== 'bomb')
      same(pieced.toString('latin1'), whole.toString('latin1'), 'in pieces')
    if (typeof whole === 'string') return `refused:${whole}`
    holds(whole.length <= maxBytes, `${whole.length} bytes came out`)
    const single = oneShot[coding.trim().toLowerCase()]
    if (single !== undefined && body.length > 0)
      same(whole.toString('hex'), single(body).toString('hex'), 'decoded at once')
    return `taken:${coding.toLowerCase()}`
  },
})

async function decoded(coding: string, pieces: readonly Buffer[]): Promise<Buffer | string> {
  const decoder = createDecoder(coding, limits)
  if (decoder === 'unreadable') return decoder
  if (decoder === 'identity') return Buffer.concat(pieces).subarray(0, maxBytes)
  const output: Uint8Array[] = []
  try {
    for (const piece of pieces) output.push(await decoder.write(piece))
    output.push(await decoder.end())
    return Buffer.concat(output)
  } catch (error) {
    if (!(error instanceof Refusal)) throw error
    holds(error.reason === 'bomb' || error.reason === 'unreadable_encoding', `refused with ${error.reason}`)
    return error.reason
  } finally {
    decoder.close()
  }
}

/** Whatever a client asks for, an upstream is offered only what can be read. */
function checkOffer(value: string): void {
  const offered = limitAcceptEncoding(value)
  for (const item of offered.split(',')) {
    const name = item.split(';')[0]?.trim().toLowerCase() ?? ''
    holds(name === 'identity' || decodableCodings.includes(name), `offers ${item}`)
  }
}
