import { describe, expect, it } from 'vitest'
import { requestFraming, responseFraming } from '../../src/http1/framing.ts'
import {
  findHeadEnd,
  parseRequestHead,
  parseResponseHead,
  requestLimits,
  responseLimits,
} from '../../src/http1/head.ts'
import rows from '../vectors/request-heads.json' with { type: 'json' }

type Verdict = 'ok' | 'malformed' | 'target' | 'fields' | 'coding' | 'version'

/** The verdict of the whole reader on the bytes of one head. */
function verdict(text: string): Verdict {
  const bytes = Buffer.from(text, 'latin1')
  const end = findHeadEnd(bytes, 0, requestLimits)
  if (end === undefined) return 'malformed'
  if (typeof end !== 'number') return end.tooLarge ?? 'malformed'
  const head = parseRequestHead(bytes.toString('latin1', 0, end - 4), requestLimits)
  if ('problem' in head) return head.tooLarge ?? head.unsupported ?? 'malformed'
  const framing = requestFraming(head)
  if ('problem' in framing) return framing.tooLarge ?? framing.unsupported ?? 'malformed'
  return 'ok'
}

describe('the first byte', () => {
  it.each([
    ['a TLS ClientHello', [0x16, 0x03, 0x01]],
    ['SOCKS 5', [0x05, 0x01, 0x00]],
    ['a blank', [0x20]],
  ])('of %s is refused without waiting for more', (_, bytes) => {
    expect(findHeadEnd(Buffer.from(bytes), 0, requestLimits)).toMatchObject({ problem: expect.any(String) })
  })

  it.each(['G', '\r', 'get'])('of %j may begin a head', (text) => {
    expect(findHeadEnd(Buffer.from(text), 0, requestLimits)).toBeUndefined()
  })
})

describe('request heads', () => {
  it.each(rows)('$name', ({ head, expected }) => {
    expect(verdict(head)).toBe(expected)
  })

  it('keeps method, target, field case, order and doubles', () => {
    const head = parseRequestHead('GET /a//b?x={} HTTP/1.1\r\nhOsT: a\r\nX: 1\r\nx:\t2 ', requestLimits)
    expect(head).toEqual({
      method: 'GET',
      target: '/a//b?x={}',
      minor: 1,
      fields: [
        ['hOsT', 'a'],
        ['X', '1'],
        ['x', '2'],
      ],
    })
  })

  it.each([
    ['one field over the count', `GET / HTTP/1.1\r\n${'a: b\r\n'.repeat(101)}\r\n`, 'fields'],
    ['exactly the count', `GET / HTTP/1.1\r\n${'a: b\r\n'.repeat(100)}\r\n`, 'ok'],
    ['a target of one byte over', `GET /${'a'.repeat(8192)} HTTP/1.1\r\n\r\n`, 'target'],
    ['a target of exactly the limit', `GET /${'a'.repeat(8191)} HTTP/1.1\r\n\r\n`, 'ok'],
    ['fields of one byte over', `GET / HTTP/1.1\r\na: ${'b'.repeat(16 * 1024)}\r\n\r\n`, 'fields'],
    ['a head that never ends', `GET / HTTP/1.1\r\na: ${'b'.repeat(100 * 1024)}`, 'fields'],
    ['a first line that never ends', `GET /${'a'.repeat(100 * 1024)}`, 'target'],
  ])('limits %s', (_name, head, expected) => {
    expect(verdict(head)).toBe(expected)
  })

  it('limits the fields of a response that comes whole', () => {
    const fields = (bytes: number) =>
      parseResponseHead(`HTTP/1.1 200 OK\r\na: ${'b'.repeat(bytes)}`, responseLimits)
    expect(fields(60 * 1024)).not.toHaveProperty('problem')
    expect(fields(64 * 1024)).toMatchObject({ tooLarge: 'fields' })
  })
})

describe('response framing', () => {
  const framing = (text: string, method = 'GET'): string => {
    const head = parseResponseHead(text, requestLimits)
    if ('problem' in head) return 'malformed'
    const result = responseFraming(head, method)
    return 'problem' in result ? 'malformed' : result.kind
  }

  it.each([
    ['a length', 'HTTP/1.1 200 OK\r\nContent-Length: 5', 'GET', 'length'],
    ['chunked', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked', 'GET', 'chunked'],
    ['neither: until close', 'HTTP/1.1 200 OK', 'GET', 'close'],
    ['HEAD has none whatever it declares', 'HTTP/1.1 200 OK\r\nContent-Length: 5', 'HEAD', 'none'],
    ['204 has none', 'HTTP/1.1 204 No Content', 'GET', 'none'],
    [
      '304 has none though it declares a length',
      'HTTP/1.1 304 Not Modified\r\nContent-Length: 5',
      'GET',
      'none',
    ],
    ['no reason phrase and no space', 'HTTP/1.1 200\r\nContent-Length: 0', 'GET', 'length'],
    [
      'length and chunked together',
      'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked',
      'GET',
      'malformed',
    ],
    ['two lengths', 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5', 'GET', 'malformed'],
    ['chunked in HTTP/1.0', 'HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked', 'GET', 'malformed'],
    ['HTTP/2 status line', 'HTTP/2 200 OK', 'GET', 'malformed'],
    ['a folded field', 'HTTP/1.1 200 OK\r\nX: a\r\n b', 'GET', 'malformed'],
  ])('%s', (_name, head, method, expected) => {
    expect(framing(head, method)).toBe(expected)
  })
})
