import type { Field } from '../../src/http1/fields.ts'
import { responseFraming } from '../../src/http1/framing.ts'
import { findHeadEnd, parseResponseHead, responseLimits } from '../../src/http1/head.ts'
import { fuzz, holds, same } from './fuzz.ts'

/** What an upstream may begin its answer with. */
fuzz({
  name: 'response-head',
  inCi: 25_000,
  full: 1_000_000,
  dictionary: [
    ...[
      '\r\n',
      '\n',
      '\r',
      '\r\n\r\n',
      '\r\n ',
      ' ',
      '  ',
      '\t',
      ':',
      ' :',
      ',',
      '\0',
      '\x1b[2J',
      '\x7f',
      '\x85',
      '\xff',
      '\xe2\x80\xae',
    ],
    ...[
      'HTTP/1.1 ',
      'HTTP/1.0 ',
      'HTTP/2 ',
      'http/1.1 ',
      '200',
      '100',
      '101',
      '204',
      '304',
      '099',
      '1000',
      '2OO',
      'OK',
    ],
    ...[
      'Content-Length: 5\r\n',
      'Content-Length: 5, 5\r\n',
      'Transfer-Encoding: chunked\r\n',
      'Transfer-Encoding: gzip, chunked\r\n',
    ],
    ...[
      'identity',
      '+5',
      '-5',
      '99999999999999999999',
      'Set-Cookie: a=b\r\n'.repeat(20),
      'x'.repeat(600),
      'SSH-2.0-x\r\n',
    ],
  ],
  maxBytes: 8_000,
  check(bytes) {
    const end = findHeadEnd(bytes, 0, responseLimits)
    if (end === undefined) return 'refused:unfinished'
    if (typeof end !== 'number') return `refused:${end.problem}`
    const text = bytes.toString('latin1', 0, end - 4)
    const head = parseResponseHead(text, responseLimits)
    if ('problem' in head) return `refused:${head.problem}`
    const { status, phrase, minor, fields } = head
    holds(status >= 100 && status <= 999 && phrase.length <= responseLimits.targetBytes, `status ${status}`)
    for (const part of [phrase, ...fields.flat()])
      holds(!/[\0-\x08\x0a-\x1f\x7f]/.test(part), 'a control character')
    const written = [
      `HTTP/1.${minor} ${status} ${phrase}`,
      ...fields.map(([name, value]: Field) => `${name}: ${value}`),
    ]
    same(parseResponseHead(written.join('\r\n'), responseLimits), head, 'round trip')
    return outcomeOf(text, head)
  },
})

/** Only what frames a body is one; HEAD, 1xx, 204 and 304 never have one (RFC 9112 section 6.3). */
function outcomeOf(
  text: string,
  head: Exclude<ReturnType<typeof parseResponseHead>, { problem: string }>,
): string {
  const kinds = ['GET', 'HEAD'].map((method) => {
    const framing = responseFraming(head, method)
    return 'problem' in framing ? framing.problem : framing.kind
  })
  const [get = '', ofHead = ''] = kinds
  const lengths = text.match(/^content-length:/gim) ?? []
  const codings = text.match(/^transfer-encoding:/gim) ?? []
  const isFramed = ['none', 'length', 'chunked', 'close'].includes(get)
  holds(!isFramed || lengths.length + codings.length <= 1, 'two lengths')
  holds(!isFramed || ofHead === 'none', `HEAD: ${ofHead}`)
  holds(
    get !== 'close' || lengths.length + codings.length === 0,
    'until the end, although a length was named',
  )
  const isBodiless = head.status < 200 || head.status === 204 || head.status === 304
  holds(!isBodiless || !isFramed || get === 'none', `${head.status}: ${get}`)
  return `${isFramed ? 'taken' : 'refused'}:${get}`
}
