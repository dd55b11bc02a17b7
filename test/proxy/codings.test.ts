import { brotliCompressSync, deflateRawSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { Refusal, type DenyReason } from '../../src/core/errors.ts'
import {
  createDecoder,
  limitAcceptEncoding,
  type Decoder,
  type DecoderLimits,
} from '../../src/proxy/codings.ts'
import { seeded } from '../helpers/seeded.ts'

const text = Buffer.from('a body that says the same, says the same, and then ends\n'.repeat(400))

const encoders: readonly (readonly [coding: string, kind: string, encode: (bytes: Buffer) => Buffer])[] = [
  ['gzip', 'gzip', (bytes) => gzipSync(bytes)],
  ['X-Gzip', 'x-gzip in any case', (bytes) => gzipSync(bytes)],
  ['deflate', 'deflate in zlib format', (bytes) => deflateSync(bytes)],
  ['deflate', 'raw deflate', (bytes) => deflateRawSync(bytes)],
  ['br', 'br', (bytes) => brotliCompressSync(bytes)],
  ['zstd', 'zstd', (bytes) => zstdCompressSync(bytes)],
  ['gzip, br', 'a stack of two', (bytes) => brotliCompressSync(gzipSync(bytes))],
  [
    'zstd, identity, gzip, deflate',
    'a stack of three',
    (bytes) => deflateSync(gzipSync(zstdCompressSync(bytes))),
  ],
]

function decoderFor(coding: string, limits?: DecoderLimits): Decoder {
  const decoder = createDecoder(coding, limits)
  if (typeof decoder === 'string') throw new TypeError(`${coding} is ${decoder}`)
  return decoder
}

async function decode(decoder: Decoder, pieces: readonly Uint8Array[]): Promise<Buffer> {
  const output: Uint8Array[] = []
  for (const piece of pieces) output.push(await decoder.write(piece))
  output.push(await decoder.end())
  return Buffer.concat(output)
}

function inPieces(bytes: Buffer, size: number): Buffer[] {
  return Array.from({ length: Math.ceil(bytes.length / size) }, (_, i) =>
    bytes.subarray(i * size, (i + 1) * size),
  )
}

async function reasonOf(work: Promise<unknown>): Promise<DenyReason | undefined> {
  try {
    await work
  } catch (error) {
    if (error instanceof Refusal) return error.reason
    throw error
  }
  return undefined
}

describe('decoding a body', () => {
  for (const [coding, kind, encode] of encoders) {
    it(`decodes ${kind}, in one piece and byte by byte`, async () => {
      const coded = encode(text)
      expect(await decode(decoderFor(coding), [coded])).toEqual(text)
      expect(await decode(decoderFor(coding), inPieces(coded, 1))).toEqual(text)
    })

    it(`refuses ${kind} that is cut off anywhere`, async () => {
      const coded = encode(text)
      for (const size of [1, 2, 5, coded.length >> 1, coded.length - 5, coded.length - 1]) {
        const cut = coded.subarray(0, size)
        expect(await reasonOf(decode(decoderFor(coding), [cut])), `${size} of ${coded.length}`).toBe(
          'unreadable_encoding',
        )
      }
    })

    it(`refuses bytes behind the end of ${kind}`, async () => {
      for (const rest of ['sk-live-secret', '\0\0\0\0']) {
        const bytes = Buffer.from(rest)
        const together = decode(decoderFor(coding), [Buffer.concat([encode(text), bytes])])
        expect(await reasonOf(together)).toBe('unreadable_encoding')
        expect(await reasonOf(decode(decoderFor(coding), [encode(text), bytes]))).toBe('unreadable_encoding')
      }
    })

    it(`refuses plain text that calls itself ${kind}`, async () => {
      expect(await reasonOf(decode(decoderFor(coding), [text]))).toBe('unreadable_encoding')
    })
  }

  it('gives out what has come before the rest comes', async () => {
    const decoder = decoderFor('gzip')
    const noise = seeded(7).bytes(200_000)
    const coded = gzipSync(noise)
    const early = await decoder.write(coded.subarray(0, 150_000))
    expect(early.length).toBeGreaterThan(100_000)
    expect(noise.subarray(0, early.length).equals(early)).toBe(true)
    decoder.close()
  })

  it('decodes several gzip members and several zstd frames in a row', async () => {
    const expected = Buffer.concat([text, text])
    const members = [gzipSync(text), gzipSync(text)]
    expect(await decode(decoderFor('gzip'), members)).toEqual(expected)
    expect(await decode(decoderFor('gzip'), [Buffer.concat(members)])).toEqual(expected)
    const frames = Buffer.concat([zstdCompressSync(text), zstdCompressSync(text)])
    expect(await decode(decoderFor('zstd'), inPieces(frames, 3))).toEqual(expected)
  })

  it('drops the name and comment of a gzip member', async () => {
    const plain = gzipSync(text)
    const named = Buffer.concat([
      plain.subarray(0, 3),
      Buffer.from([0x18]),
      plain.subarray(4, 10),
      Buffer.from('name-sk-live-secret\0comment-sk-live-secret\0'),
      plain.subarray(10),
    ])
    expect(await decode(decoderFor('gzip'), [named])).toEqual(text)
  })

  it('takes an empty body for one whatever its coding', async () => {
    expect(await decode(decoderFor('gzip, br'), [])).toEqual(Buffer.alloc(0))
  })

  it('has nothing to do for identity and knows no other codings', () => {
    expect(createDecoder(' , Identity')).toBe('identity')
    expect(createDecoder('compress')).toBe('unreadable')
    expect(createDecoder('gzip, dcb')).toBe('unreadable')
    expect(createDecoder('gzip, gzip, gzip, gzip')).toBe('unreadable')
  })
})

describe('limits of decoding', () => {
  const bomb = Buffer.alloc(64 * 1_048_576)

  it('stops a body that expands more than two hundred times beyond a mebibyte', async () => {
    for (const [coding, , encode] of encoders) {
      expect(await reasonOf(decode(decoderFor(coding), inPieces(encode(bomb), 16_384))), coding).toBe('bomb')
    }
  })

  it('holds a stack to the bytes that came, not to those of the coding before', async () => {
    const coded = gzipSync(gzipSync(bomb))
    expect(await reasonOf(decode(decoderFor('gzip, gzip'), [coded]))).toBe('bomb')
  })

  it('stops one piece that expands to more than memory should hold, whatever came before it', async () => {
    const noise = seeded(5).bytes(2 * 1_048_576)
    const pieces = (encode: (bytes: Buffer) => Buffer): Buffer[] =>
      inPieces(encode(Buffer.concat([noise, bomb])), 65_536)
    expect(await reasonOf(decode(decoderFor('br'), pieces(brotliCompressSync)))).toBe('bomb')
    expect(await reasonOf(decode(decoderFor('zstd'), pieces(zstdCompressSync)))).toBe('bomb')
  })

  it('lets a small body expand as it likes', async () => {
    const zeros = Buffer.alloc(1_000_000)
    expect((await decode(decoderFor('br'), [brotliCompressSync(zeros)])).length).toBe(1_000_000)
  })

  it('keeps to the size and ratio it is given', async () => {
    const noise = seeded(3).bytes(300_000)
    expect(await reasonOf(decode(decoderFor('gzip', { maxBytes: 200_000 }), [gzipSync(noise)]))).toBe('bomb')
    const zeros = Buffer.alloc(4 * 1_048_576)
    expect((await decode(decoderFor('gzip', { maxRatio: 2_000 }), [gzipSync(zeros)])).length).toBe(
      zeros.length,
    )
  })

  it('refuses a zstd window beyond 8 MiB', async () => {
    // Magic, a descriptor without content size or checksum, and a window descriptor of 2^(10 + 17) bytes.
    const header = Buffer.from([0x28, 0xb5, 0x2f, 0xfd, 0x00, 17 << 3])
    const block = Buffer.from([0x29, 0x00, 0x00, 0x68, 0x65, 0x6c, 0x6c, 0x6f])
    const small = Buffer.from([0x28, 0xb5, 0x2f, 0xfd, 0x00, 13 << 3])
    expect((await decode(decoderFor('zstd'), [Buffer.concat([small, block])])).toString()).toBe('hello')
    expect(await reasonOf(decode(decoderFor('zstd'), [Buffer.concat([header, block])]))).toBe(
      'unreadable_encoding',
    )
  })
})

describe('the Accept-Encoding that is sent on', () => {
  const rows: readonly (readonly [from: string | undefined, to: string])[] = [
    ['dcb, dcz, zstd, *', 'zstd'],
    ['gzip, deflate, br', 'gzip, deflate, br'],
    ['gzip;q=0.5, xyz;q=1, br ; q=1.000', 'gzip;q=0.5, br ; q=1.000'],
    ['GZIP', 'GZIP'],
    ['identity;q=0.5, *;q=0', 'identity;q=0.5'],
    ['*', 'identity'],
    ['', 'identity'],
    [undefined, 'identity'],
    ['gzip;q=7, br;level=3', 'identity'],
  ]
  for (const [from, to] of rows) {
    it(`is "${to}" for ${from === undefined ? 'a request without one' : `"${from}"`}`, () => {
      expect(limitAcceptEncoding(from)).toBe(to)
    })
  }
})
