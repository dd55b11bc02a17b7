import { listOf, type Field } from '../../src/http1/fields.ts'
import { requestFraming } from '../../src/http1/framing.ts'
import { findHeadEnd, parseRequestHead, requestLimits, type RequestHead } from '../../src/http1/head.ts'
import { readMessage } from '../differential/reference-http1.ts'
import type { Seeded } from '../helpers/seeded.ts'
import { fuzz, holds, inPieces, same } from './fuzz.ts'

/** Request heads, byte by byte: where they end, what they say, how the body is framed. */
fuzz({
  name: 'header-block',
  inCi: 8_000,
  full: 1_000_000,
  dictionary: [
    ...[
      '\r\n',
      '\n',
      '\r',
      '\r\n\r\n',
      '\n\n',
      '\r\n ',
      '\r\n\t',
      ' ',
      '\t',
      ':',
      ' :',
      ': ',
      ',',
      ';',
      '\0',
      '\x0b',
      '\x85',
      '"',
    ],
    ...[
      'Content-Length: 5\r\n',
      'Content-Length: 0\r\n',
      'content-length',
      'Transfer-Encoding: chunked\r\n',
      'chunked',
      'gzip',
    ],
    ...[
      'identity',
      '+5',
      '-1',
      '0x5',
      '5, 5',
      '5\r\n',
      '99999999999999999999',
      'Host: a\r\n',
      'HTTP/1.1',
      'HTTP/1.0',
      'HTTP/2.0',
    ],
    ...['GET ', 'POST ', 'PRI * HTTP/2.0', 'CONNECT ', 'http://a/', 'x'.repeat(300), 'X: y\r\n'.repeat(40)],
  ],
  maxBytes: 20_000,
  check(bytes, random) {
    const end = findHeadEnd(bytes, 0, requestLimits)
    same(endByPieces(bytes, random), end, 'end of a head that comes in pieces')
    if (typeof end !== 'number') return end === undefined ? 'refused:unfinished' : `refused:${end.problem}`
    const head = parseRequestHead(bytes.toString('latin1', 0, end - 4), requestLimits)
    if ('problem' in head) return `refused:${head.problem}`
    checkParts(head)
    const framing = requestFraming(head)
    checkReference(bytes, head, 'problem' in framing)
    if ('problem' in framing) return `refused:${framing.problem}`
    if (framing.kind === 'length') holds(Number.isSafeInteger(framing.length) && framing.length > 0, 'length')
    return `taken:${framing.kind} ${Math.min(3, head.fields.length)}`
  },
})

/** What the listener does: asks again with each piece, from where it had looked before. */
function endByPieces(bytes: Buffer, random: Seeded): ReturnType<typeof findHeadEnd> {
  let seen = 0
  let found: ReturnType<typeof findHeadEnd>
  for (const piece of inPieces(bytes, random)) {
    const from = seen
    seen += piece.length
    found = findHeadEnd(bytes.subarray(0, seen), from, requestLimits)
    if (found !== undefined) break
  }
  // Pieces may show a problem before the end comes; the whole shows the end first, and the parser the problem.
  const whole = findHeadEnd(bytes, 0, requestLimits)
  if (typeof found === 'object' && typeof whole === 'number') {
    holds(
      'problem' in parseRequestHead(bytes.toString('latin1', 0, whole - 4), requestLimits),
      'a problem in pieces only',
    )
    return whole
  }
  if (typeof found === 'object' && whole === undefined) {
    holds(found.tooLarge !== undefined, 'a problem that more bytes could mend')
    return whole
  }
  if (typeof found === 'object' && typeof whole === 'object') return whole
  return found
}

function checkParts({ method, target, minor, fields }: RequestHead): void {
  holds(fields.length <= requestLimits.fieldCount && target.length <= requestLimits.targetBytes, 'limits')
  holds(/^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}$/.test(method) && /^[\x21-\x7e]+$/.test(target), 'request line')
  for (const [name, value] of fields) {
    holds(/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(name), `field name ${name}`)
    holds(
      !/[\0-\x08\x0a-\x1f\x7f]/.test(value) && value === value.replace(/^[ \t]+|[ \t]+$/g, ''),
      `value of ${name}`,
    )
  }
  same(
    parseRequestHead(written({ method, target, minor, fields }), requestLimits),
    { method, target, minor, fields },
    'round trip',
  )
}

const written = ({ method, target, minor, fields }: RequestHead): string =>
  [`${method} ${target} HTTP/1.${minor}`, ...fields.map(([name, value]: Field) => `${name}: ${value}`)].join(
    '\r\n',
  )

/** Whatever is taken here, a strict reading of RFC 9112 takes as well, and frames the same. */
function checkReference(bytes: Buffer, head: RequestHead, isRefused: boolean): void {
  const read = readMessage(bytes)
  if (isRefused) {
    // Stricter than the RFC: one Content-Length of at most fifteen digits, and no coding but chunked.
    const lengths = listOf(head.fields, 'content-length')
    const isKnown =
      lengths.length > 1 ||
      (lengths[0] ?? '').length > 15 ||
      listOf(head.fields, 'transfer-encoding').length > 0
    holds(read.kind === 'broken' || isKnown, 'refused for no reason of the RFC')
    return
  }
  if (read.kind === 'broken' && read.where === 'body') return
  holds(read.kind !== 'broken', `taken, but ${read.kind === 'broken' ? read.why : ''}`)
  if (read.kind === 'broken') return
  same([read.method, read.target, read.fields], [head.method, head.target, head.fields], 'reference')
}
