import { ChunkedReader, chunkHead, lastChunk } from '../../src/http1/chunked.ts'
import type { Field } from '../../src/http1/fields.ts'
import { readMessage } from '../differential/reference-http1.ts'
import { fuzz, holds, inPieces, same } from './fuzz.ts'

interface Read {
  readonly content: string
  /** Bytes that belong to the body. */
  readonly used: number
  readonly done: boolean
  readonly problem: string | undefined
  readonly trailers: readonly Field[]
}

function read(pieces: readonly Buffer[]): Read {
  const reader = new ChunkedReader()
  const content: Buffer[] = []
  let used = 0
  let problem: string | undefined
  for (const piece of pieces) {
    if (reader.done) break
    const taken = reader.push(piece, (part) => void content.push(Buffer.from(part)))
    if (typeof taken !== 'number') {
      problem = taken.problem
      break
    }
    used += taken
  }
  const { done, trailers } = reader
  const text = Buffer.concat(content).toString('latin1')
  return { content: text, used: problem === undefined ? used : 0, done, problem, trailers }
}

/** Chunked bodies. */
fuzz({
  name: 'chunked-body',
  inCi: 15_000,
  full: 1_000_000,
  dictionary: [
    ...[
      '\r\n',
      '\n',
      '\r',
      '0\r\n\r\n',
      '0\r\n',
      '5\r\n',
      '00000005',
      'a',
      'F',
      ';',
      ';x=1',
      ';x="\r\n"',
      '="',
      ' ',
      '\t',
      '-',
      '+',
    ],
    ...[
      '0x',
      '_',
      'ffffffffffffffff',
      '10000000000000',
      '\0',
      '\x7f',
      'X: 1\r\n',
      ' x\r\n',
      ':',
      'GET / HTTP/1.1\r\n',
      'a'.repeat(500),
    ],
  ],
  maxBytes: 20_000,
  check(bytes, random) {
    const whole = read([bytes])
    same(read(inPieces(bytes, random)), whole, 'the body in pieces')
    holds(whole.content.length <= bytes.length && whole.used <= bytes.length, 'more came out than went in')
    const head = 'POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n'
    const reference = readMessage(Buffer.concat([Buffer.from(head), bytes]))
    if (whole.problem !== undefined) {
      const isLimit = /too long|more than|hexadecimal/.test(whole.problem)
      holds(reference.kind !== 'whole' || isLimit, `refused for no reason: ${whole.problem}`)
      return `refused:${whole.problem}`
    }
    if (!whole.done) {
      holds(reference.kind !== 'whole', 'a whole body is waited for')
      return 'refused:unfinished'
    }
    holds(
      reference.kind === 'whole',
      `taken, but ${reference.kind === 'broken' ? reference.why : 'unfinished'}`,
    )
    if (reference.kind !== 'whole') return ''
    same(whole.content, reference.body, 'reference')
    same(whole.used, reference.length - head.length, 'where the body ends')
    const chunk = whole.content === '' ? '' : `${chunkHead(whole.content.length)}${whole.content}\r\n`
    const { content, trailers, done } = read([Buffer.from(chunk + lastChunk(whole.trailers), 'latin1')])
    same(
      { content, trailers, done },
      { content: whole.content, trailers: whole.trailers, done: true },
      'round trip',
    )
    return `taken:${Math.min(3, whole.trailers.length)} ${whole.used === bytes.length}`
  },
})
