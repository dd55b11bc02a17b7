import { gzipSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { Secret } from '../../src/core/secret.ts'
import { RedactedBody, ScannedBody } from '../../src/proxy/body-scan.ts'
import type { Body } from '../../src/proxy/body.ts'
import { createDecoder, type Decoder } from '../../src/proxy/codings.ts'
import { compilePatterns } from '../../src/redact/forms.ts'
import { createRedactor, createScanner } from '../../src/redact/redactor.ts'

const secret = 'k9Wq3vX7tR2mB8sZ5nL1'
const patterns = compilePatterns([{ id: 'a', value: new Secret(secret), short: false }])

function bodyOf(pieces: readonly Buffer[]): Body {
  const left = [...pieces]
  return { next: () => Promise.resolve(left.shift()), length: undefined, complete: true, trailers: [] }
}

function decoderFor(coding: string): Decoder | undefined {
  const decoder = createDecoder(coding)
  return typeof decoder === 'string' ? undefined : decoder
}

async function piecesOf(body: Body): Promise<Buffer[]> {
  const pieces: Buffer[] = []
  for (let piece = await body.next(); piece !== undefined; piece = await body.next()) pieces.push(piece)
  return pieces
}

const text = Buffer.from('{"answer":"nothing to see"}')
const heldBack = Buffer.from(`ends in the beginning of it: ${secret.slice(0, 9)}`)

// An empty piece would be written as `0 CRLF CRLF`: the end of a chunked body, with another end behind it that the
// client takes for the next response.
describe.each([
  ['that passes at once', text],
  ['whose end is held back', heldBack],
  ['that is empty', Buffer.alloc(0)],
])('a body %s', (_, content) => {
  it.each([
    ['uncoded', '', content],
    ['gzip', 'gzip', gzipSync(content)],
  ])('is scanned without an empty piece, %s', async (_name, coding, bytes) => {
    for (const size of [1, 7, bytes.length + 1]) {
      const cut: Buffer[] = []
      for (let at = 0; at < bytes.length; at += size) cut.push(bytes.subarray(at, at + size))
      const pieces = await piecesOf(
        new ScannedBody(bodyOf(cut), {
          decoder: decoderFor(coding),
          scanner: createScanner(patterns),
          coded: createScanner(patterns),
        }),
      )
      expect(pieces.filter((piece) => piece.length === 0)).toEqual([])
      expect(Buffer.concat(pieces).equals(bytes)).toBe(true)
    }
  })

  it('is redacted without an empty piece', async () => {
    const redactor = createRedactor(patterns, () => undefined)
    const pieces = await piecesOf(new RedactedBody(bodyOf([content]), undefined, redactor))
    expect(pieces.filter((piece) => piece.length === 0)).toEqual([])
    expect(Buffer.concat(pieces).equals(content)).toBe(true)
  })

  it('finds a secret in the name field of a gzip body, which no decoder shows', async () => {
    const plain = gzipSync('nothing here')
    // RFC 1952: flag FNAME, then the zero-terminated name after the ten fixed bytes.
    const named = Buffer.concat([
      plain.subarray(0, 3),
      Buffer.of(0x08),
      plain.subarray(4, 10),
      Buffer.from(`${secret}\0`),
      plain.subarray(10),
    ])
    const body = new ScannedBody(bodyOf([named]), {
      decoder: decoderFor('gzip'),
      scanner: createScanner(patterns),
      coded: createScanner(patterns),
    })
    await expect(piecesOf(body)).rejects.toMatchObject({ reason: 'credential_in_response' })
  })
})
