import { valuesOf, type Field, type Problem } from './fields.ts'
import type { RequestHead, ResponseHead } from './head.ts'

/** How the body of a message is delimited, RFC 9112 section 6. */
export type Framing =
  | { readonly kind: 'none' }
  | { readonly kind: 'length'; readonly length: number }
  | { readonly kind: 'chunked' }
  /** Responses only: the body ends with the connection. */
  | { readonly kind: 'close' }

const digits = /^[0-9]{1,15}$/

/**
 * Framing of a request. Whatever two readers could read differently is refused: Content-Length with Transfer-Encoding,
 * Content-Length twice even with equal values, any coding but `chunked`, chunked in HTTP/1.0.
 */
export function requestFraming(head: RequestHead): Framing | Problem {
  const declared = declaredFraming(head.fields)
  if ('problem' in declared) return declared
  if (declared.kind === 'chunked' && head.minor === 0) return { problem: 'chunked in HTTP/1.0' }
  return declared.kind === 'length' && declared.length === 0 ? { kind: 'none' } : declared
}

/** Framing of a response to `method`; RFC 9112 section 6.3. */
export function responseFraming(head: ResponseHead, method: string): Framing | Problem {
  const declared = declaredFraming(head.fields)
  if ('problem' in declared) return declared
  if (method === 'HEAD' || head.status < 200 || head.status === 204 || head.status === 304)
    return { kind: 'none' }
  if (declared.kind === 'chunked' && head.minor === 0) return { problem: 'chunked in HTTP/1.0' }
  return declared.kind === 'none' ? { kind: 'close' } : declared
}

function declaredFraming(fields: readonly Field[]): Framing | Problem {
  const lengths = valuesOf(fields, 'content-length')
  const codings = valuesOf(fields, 'transfer-encoding')
  if (lengths.length > 0 && codings.length > 0) return { problem: 'Content-Length with Transfer-Encoding' }
  if (codings.length > 0) return chunkedFraming(codings)
  if (lengths.length > 1) return { problem: 'more than one Content-Length' }
  const [length] = lengths
  if (length === undefined) return { kind: 'none' }
  if (!digits.test(length)) return { problem: 'Content-Length is not a number' }
  return { kind: 'length', length: Number(length) }
}

function chunkedFraming(codings: readonly string[]): Framing | Problem {
  if (codings.length > 1) return { problem: 'more than one Transfer-Encoding' }
  const coding = codings[0]?.toLowerCase() ?? ''
  if (coding === 'chunked') return { kind: 'chunked' }
  if (/^(gzip|deflate|compress|x-gzip|br|zstd)(\s*,\s*chunked)?$/.test(coding)) {
    return { problem: 'transfer coding', unsupported: 'coding' }
  }
  return { problem: 'Transfer-Encoding is not chunked' }
}

/** Declared length of a response that has no body of its own (HEAD, 304): passed on as it stands. */
export function declaredLength(fields: readonly Field[]): number | undefined {
  const [length] = valuesOf(fields, 'content-length')
  return length !== undefined && digits.test(length) ? Number(length) : undefined
}
