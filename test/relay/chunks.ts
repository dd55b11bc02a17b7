/** A chunked body as an origin reads it: content, and the trailer lines as they came. */
export interface Dechunked {
  readonly content: string
  readonly trailers: readonly string[]
  /** Bytes after the body. */
  readonly rest: string
}

/** Reads a chunked body by RFC 9112 section 7.1; `undefined` while it is not complete, throws when it is not one. */
export function dechunk(text: string): Dechunked | undefined {
  let content = ''
  for (let at = 0; ;) {
    const line = text.indexOf('\r\n', at)
    if (line < 0) return undefined
    const digits = text.slice(at, line)
    if (!/^[0-9a-f]+$/i.test(digits))
      throw new Error(`not a chunk size: ${JSON.stringify(digits.slice(0, 40))}`)
    const size = Number.parseInt(digits, 16)
    at = line + 2
    if (size === 0) return trailersFrom(text, at, content)
    if (text.length < at + size + 2) return undefined
    content += text.slice(at, at + size)
    if (text.slice(at + size, at + size + 2) !== '\r\n') throw new Error('a chunk is longer than its size')
    at += size + 2
  }
}

function trailersFrom(text: string, from: number, content: string): Dechunked | undefined {
  const trailers: string[] = []
  for (let at = from; ;) {
    const line = text.indexOf('\r\n', at)
    if (line < 0) return undefined
    if (line === at) return { content, trailers, rest: text.slice(at + 2) }
    trailers.push(text.slice(at, line))
    at = line + 2
  }
}

/** `content` in one chunk. */
export const chunk = (content: string): string => `${content.length.toString(16)}\r\n${content}\r\n`

/** A message as text, cut after its head. */
export function split(message: string): { head: string; body: string } {
  const end = message.indexOf('\r\n\r\n')
  return end < 0
    ? { head: message, body: '' }
    : { head: message.slice(0, end + 4), body: message.slice(end + 4) }
}
