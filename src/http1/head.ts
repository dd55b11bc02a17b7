import { hasForbiddenByte, isToken, parseFields, type Field, type Problem } from './fields.ts'

/** A request line and its fields, each with one reading only. */
export interface RequestHead {
  readonly method: string
  /** Request target, byte for byte; visible ASCII only. */
  readonly target: string
  /** Minor version of HTTP/1: `0` or `1`. */
  readonly minor: 0 | 1
  readonly fields: readonly Field[]
}

/** A status line and its fields, each with one reading only. */
export interface ResponseHead {
  readonly status: number
  readonly phrase: string
  readonly minor: 0 | 1
  readonly fields: readonly Field[]
}

/** Upper bounds of a head, bytes and counts. */
export interface HeadLimits {
  readonly targetBytes: number
  readonly fieldBytes: number
  readonly fieldCount: number
}

/** Default limits of what a client sends. */
export const requestLimits: HeadLimits = { targetBytes: 8 * 1024, fieldBytes: 16 * 1024, fieldCount: 100 }
/** Default limits of what an upstream sends: real ones send long policies and many cookies. */
export const responseLimits: HeadLimits = { targetBytes: 1024, fieldBytes: 64 * 1024, fieldCount: 200 }

const visible = /^[\x21-\x7e]+$/
const statusLine = /^HTTP\/1\.([01]) ([1-9][0-9]{2})(?: (.*))?$/
// Longest method registered with IANA is 17 bytes; more is somebody's mistake.
const methodBytes = 32

/**
 * Where the head in `bytes` ends (index after the empty line), `undefined` when more bytes are needed, or a problem as
 * soon as one is certain, so that a client cannot hold a connection open with a head that will never be good.
 */
export function findHeadEnd(bytes: Buffer, from: number, limits: HeadLimits): number | Problem | undefined {
  const end = bytes.indexOf('\r\n\r\n', Math.max(0, from - 3), 'latin1')
  if (end >= 0) return end + 4
  const most = limits.targetBytes + limits.fieldBytes + 64
  if (hasBareLf(bytes, from)) return { problem: 'bare LF' }
  if (from === 0 && isOtherProtocol(bytes)) return { problem: 'no HTTP: TLS or SOCKS, by its first byte' }
  if (!bytes.includes(0x0a) && bytes.length > limits.targetBytes + 64)
    return { problem: 'first line too long', tooLarge: 'target' }
  if (bytes.length > most) return { problem: 'head too long', tooLarge: 'fields' }
  return undefined
}

/** A client of another protocol waits for an answer and never sends the end of a head. */
function isOtherProtocol(bytes: Buffer): boolean {
  const [first = 0x0d] = bytes
  return first !== 0x0d && (first <= 0x20 || first >= 0x7f)
}

/** A lenient reader could take a bare LF for the end of the head, so there is nothing to wait for. */
function hasBareLf(bytes: Buffer, from: number): boolean {
  for (let at = bytes.indexOf(0x0a, from); at >= 0; at = bytes.indexOf(0x0a, at + 1)) {
    if (bytes[at - 1] !== 0x0d) return true
  }
  return false
}

/**
 * Parses a request head (without the closing empty line). Strict by RFC 9112 section 3: one space between the parts,
 * upper-case `HTTP/1.0` or `HTTP/1.1`, no obs-fold, no bare line breaks, no control characters.
 */
export function parseRequestHead(text: string, limits: HeadLimits): RequestHead | Problem {
  if (hasForbiddenByte(text)) return { problem: 'control character in the head' }
  const lines = text.split('\r\n')
  const first = lines[0] ?? ''
  const parts = first.split(' ')
  const [method = '', target = '', version = ''] = parts
  if (method === 'PRI') return { problem: 'HTTP/2 preface', unsupported: 'version' }
  if (target.length > limits.targetBytes) return { problem: 'target too long', tooLarge: 'target' }
  if (parts.length !== 3) return { problem: 'request line does not have three parts' }
  if (!isToken(method) || method.length > methodBytes) return { problem: 'method is not a token' }
  if (!visible.test(target)) return { problem: 'target holds other than visible ASCII' }
  if (version !== 'HTTP/1.1' && version !== 'HTTP/1.0') return versionProblem(version)
  if (text.length - first.length > limits.fieldBytes)
    return { problem: 'fields too long', tooLarge: 'fields' }
  const fields = parseFields(lines, 1, limits.fieldCount)
  if ('problem' in fields) return fields
  return { method, target, minor: version === 'HTTP/1.1' ? 1 : 0, fields }
}

function versionProblem(version: string): Problem {
  if (/^HTTP\/[0-9]\.[0-9]$/.test(version)) return { problem: 'HTTP version', unsupported: 'version' }
  return { problem: 'request line without a version' }
}

/** Parses a response head (without the closing empty line); a missing reason phrase is taken as empty. */
export function parseResponseHead(text: string, limits: HeadLimits): ResponseHead | Problem {
  if (hasForbiddenByte(text)) return { problem: 'control character in the head' }
  const lines = text.split('\r\n')
  const match = statusLine.exec(lines[0] ?? '')
  if (match === null) return { problem: 'no HTTP/1 status line' }
  const phrase = match[3] ?? ''
  if (phrase.length > limits.targetBytes) return { problem: 'status line too long', tooLarge: 'target' }
  if (text.length - phrase.length > limits.fieldBytes)
    return { problem: 'fields too long', tooLarge: 'fields' }
  const fields = parseFields(lines, 1, limits.fieldCount)
  if ('problem' in fields) return fields
  return { status: Number(match[2]), phrase, minor: match[1] === '1' ? 1 : 0, fields }
}
