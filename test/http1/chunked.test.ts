import { describe, expect, it } from 'vitest'
import { ChunkedReader, chunkHead, lastChunk } from '../../src/http1/chunked.ts'

/** Reads `text` in pieces of `size` bytes; the content, or the word `problem`. */
function read(
  text: string,
  size = text.length,
): { content: string; used: number; done: boolean } | 'problem' {
  const reader = new ChunkedReader()
  const bytes = Buffer.from(text, 'latin1')
  let content = ''
  let used = 0
  for (let at = 0; at < bytes.length && !reader.done; at += size) {
    const piece = bytes.subarray(at, at + size)
    const taken = reader.push(piece, (part) => {
      content += part.toString('latin1')
    })
    if (typeof taken !== 'number') return 'problem'
    used += taken
  }
  return { content, used, done: reader.done }
}

describe('chunked bodies', () => {
  const whole = '5\r\nhello\r\n6;x=1\r\n world\r\n0\r\nX-A: 1\r\nX-B: 2\r\n\r\n'

  it('gives the same content for every way of cutting the input', () => {
    for (let size = 1; size <= whole.length; size++) {
      expect(read(whole, size)).toEqual({ content: 'hello world', used: whole.length, done: true })
    }
  })

  it('keeps trailers', () => {
    const reader = new ChunkedReader()
    reader.push(Buffer.from(whole), () => undefined)
    expect(reader.trailers).toEqual([
      ['X-A', '1'],
      ['X-B', '2'],
    ])
  })

  it('leaves the next message alone', () => {
    const reader = new ChunkedReader()
    const next = 'GET / HTTP/1.1\r\n'
    expect(reader.push(Buffer.from(`0\r\n\r\n${next}`), () => undefined)).toBe(5)
  })

  it.each([
    ['an empty size', '\r\n'],
    ['a size with a sign', '+5\r\nhello\r\n'],
    ['a size with 0x', '0x5\r\nhello\r\n'],
    ['a size with a leading space', ' 5\r\nhello\r\n'],
    ['a size with an underscore', '1_0\r\n'],
    ['a size beyond every integer', 'ffffffffffffffff\r\n'],
    ['a bare LF after the size', '5\nhello\r\n'],
    ['a bare CR in the size line', '5\r;a\r\nhello\r\n'],
    ['content longer than its size', '3\r\nhello\r\n0\r\n\r\n'],
    ['content shorter than its size', '6\r\nhello\r\n0\r\n\r\n'],
    ['a bare LF after the content', '5\r\nhello\n0\r\n\r\n'],
    ['a bare LF in the trailers', '0\r\nX: 1\n\r\n'],
    ['a folded trailer', '0\r\nX: 1\r\n y\r\n\r\n'],
    ['a trailer without a colon', '0\r\nX\r\n\r\n'],
    ['one extension of 16 KiB', `5;${'a'.repeat(16 * 1024)}\r\nhello\r\n`],
    ['a NUL in an extension', '5;\0\r\nhello\r\n'],
  ])('refuses %s', (_name, text) => {
    expect(read(text)).toBe('problem')
    expect(read(text, 1)).toBe('problem')
  })

  it('bounds the extensions of a whole body, not only of one line', () => {
    expect(read(`1;${'a'.repeat(400)}\r\nx\r\n`.repeat(10_000))).toBe('problem')
  })

  it('writes what it reads', () => {
    expect(chunkHead(255)).toBe('ff\r\n')
    expect(read(`${chunkHead(3)}abc\r\n${lastChunk([['X', '1']])}`)).toMatchObject({
      content: 'abc',
      done: true,
    })
  })
})
