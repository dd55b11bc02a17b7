/**
 * A second reader of HTTP/1 requests, written from RFC 9112 and RFC 9110 alone and one character at a time. It takes what
 * the grammar allows and nothing else; what a recipient may repair (bare LF, obs-fold, a missing blank) is broken here.
 * In one point it is wider: what a chunk extension holds is not looked at, nor blanks that stand in its place.
 */

/** What one message is. */
export type ReadMessage =
  | {
      readonly kind: 'whole' | 'unfinished'
      readonly method: string
      readonly target: string
      readonly minor: number
      /** Name and value as they stood, outer blanks of the value left out. */
      readonly fields: readonly (readonly [string, string])[]
      /** Content, without its framing; as much of it as has come. */
      readonly body: string
      /** Bytes of the whole message; those behind belong to the next one. */
      readonly length: number
    }
  /** Nothing is certain before the head has ended. */
  | { readonly kind: 'broken'; readonly where: 'head' | 'body'; readonly why: string }

const tchar = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

class Broken extends TypeError {}
/** The bytes end before the message does. */
class Cut extends TypeError {}

/** Walks over bytes as latin1 text. */
class Walk {
  readonly #text: string
  at = 0

  constructor(text: string) {
    this.#text = text
  }

  /** The next character; there must be one. */
  peek(): string {
    if (this.at >= this.#text.length) throw new Cut('cut')
    return this.#text.charAt(this.at)
  }

  /** Characters as long as they are wanted; one that is not must follow. */
  while(isWanted: (character: string) => boolean): string {
    const from = this.at
    while (isWanted(this.peek())) this.at++
    return this.#text.slice(from, this.at)
  }

  expect(text: string, why: string): void {
    for (const character of text) {
      if (this.peek() !== character) throw new Broken(why)
      this.at++
    }
  }

  /** At most so many characters, fewer where the text ends. */
  take(length: number): string {
    const taken = this.#text.slice(this.at, this.at + length)
    this.at += taken.length
    return taken
  }
}

type Fields = readonly (readonly [name: string, value: string])[]

const isOneOf =
  (characters: string) =>
  (character: string): boolean =>
    characters.includes(character)
const isTchar = isOneOf(tchar)
const isDigit = isOneOf('0123456789')
const isHex = isOneOf('0123456789abcdefABCDEF')
const isBlank = isOneOf(' \t')
const isVisible = (character: string): boolean => character > ' ' && character < '\u007f'
const isFieldByte = (character: string): boolean =>
  isBlank(character) || isVisible(character) || character >= '\u0080'

/** RFC 9112 section 3. */
function readRequestLine(walk: Walk): { method: string; target: string; minor: number } {
  const method = walk.while(isTchar)
  if (method === '') throw new Broken('no method')
  walk.expect(' ', 'no space behind the method')
  const target = walk.while(isVisible)
  if (target === '') throw new Broken('no target')
  walk.expect(' HTTP/1.', 'no version')
  const minor = walk.while(isDigit)
  if (minor.length !== 1) throw new Broken('no minor version')
  walk.expect('\r\n', 'no CRLF behind the request line')
  return { method, target, minor: Number(minor) }
}

/** RFC 9112 section 5: `field-name ":" OWS field-value OWS`, until the empty line. */
function readFields(walk: Walk): Fields {
  const fields: [string, string][] = []
  while (walk.peek() !== '\r') {
    const name = walk.while(isTchar)
    if (name === '') throw new Broken('a line without a field name')
    walk.expect(':', 'no colon behind the name')
    walk.while(isBlank)
    const value = walk.while(isFieldByte)
    walk.expect('\r\n', 'no CRLF behind the value')
    fields.push([name, value.replace(/[ \t]+$/, '')])
  }
  walk.expect('\r\n', 'no CRLF at the end')
  return fields
}

const elementsOf = (fields: Fields, name: string): string[] =>
  fields
    .filter(([each]) => each.toLowerCase() === name)
    .flatMap(([, value]) => value.split(','))
    .map((element) => element.replace(/^[ \t]+|[ \t]+$/g, ''))

/** RFC 9112 section 6.3: the number of bytes, or chunks. */
function readLength(fields: Fields, minor: number): number | 'chunked' {
  const lengths = elementsOf(fields, 'content-length')
  const codings = elementsOf(fields, 'transfer-encoding')
  if (codings.length > 0) {
    // Section 6.1: with Content-Length it may be an attempt at smuggling; HTTP/1.0 has no transfer codings.
    if (lengths.length > 0 || minor === 0) throw new Broken('Transfer-Encoding where it must not be')
    if (codings.length !== 1 || codings[0]?.toLowerCase() !== 'chunked') throw new Broken('not chunked')
    return 'chunked'
  }
  const [length] = lengths
  if (length === undefined) return 0
  // Section 6.3 rule 5: a list of one and the same number is that number.
  const isNumber = length !== '' && [...length].every(isDigit)
  if (!isNumber || lengths.some((other) => other !== length)) throw new Broken('no length')
  return Number(length)
}

/** RFC 9112 section 7.1. Hands content on as it comes, for what is cut off later. */
function readChunks(walk: Walk, onContent: (content: string) => void): void {
  for (;;) {
    const digits = walk.while(isHex)
    if (digits === '') throw new Broken('no chunk size')
    walk.while(isBlank)
    if (walk.peek() === ';') walk.while(isFieldByte)
    walk.expect('\r\n', 'no CRLF behind the chunk size')
    const size = Number.parseInt(digits, 16)
    if (size === 0) break
    const content = walk.take(size)
    onContent(content)
    if (content.length < size) throw new Cut('cut')
    walk.expect('\r\n', 'a chunk that is longer than its size')
  }
  readFields(walk)
}

/** The first message of these bytes. */
export function readMessage(bytes: Buffer): ReadMessage {
  const walk = new Walk(bytes.toString('latin1'))
  let where: 'head' | 'body' = 'head'
  let head: { method: string; target: string; minor: number; fields: Fields } | undefined
  let body = ''
  try {
    const line = readRequestLine(walk)
    head = { ...line, fields: readFields(walk) }
    const length = readLength(head.fields, head.minor)
    where = 'body'
    if (length === 'chunked') readChunks(walk, (content) => void (body += content))
    else body = walk.take(length)
    const isCut = length !== 'chunked' && body.length < length
    return { kind: isCut ? 'unfinished' : 'whole', ...head, body, length: walk.at }
  } catch (error) {
    if (error instanceof Broken) return { kind: 'broken', where, why: error.message }
    if (!(error instanceof Cut)) throw error
    if (where === 'head' || head === undefined) return { kind: 'broken', where: 'head', why: 'unfinished' }
    return { kind: 'unfinished', ...head, body, length: walk.at }
  }
}

/** Every message of these bytes, until one is not whole. */
export function readMessages(bytes: Buffer): ReadMessage[] {
  const messages: ReadMessage[] = []
  for (let rest = bytes; rest.length > 0;) {
    const message = readMessage(rest)
    messages.push(message)
    if (message.kind !== 'whole') break
    rest = rest.subarray(message.length)
  }
  return messages
}
