import { createHmac, randomBytes } from 'node:crypto'
import { Refusal } from '../core/errors.ts'
import type { Secret } from '../core/secret.ts'

const maxBytes = 16 * 1024
const minBits = 64
const minLength = 12

/** What a program prints where it has no value. */
const missing = new Set(['', 'undefined', 'null', 'none', '(null)', '(none)'])

/** Values so common that replacing them would ruin responses, and that no upstream gives out. */
const common = new Set([
  ...[
    'application/json',
    'application/octet-stream',
    'application/x-www-form-urlencoded',
    'multipart/form-data',
  ],
  ...['application/problem+json', 'text/event-stream', 'text/html; charset=utf-8', 'gzip, deflate, br'],
  ...[
    'authorization',
    'www-authenticate',
    'content-length',
    'content-type',
    'cache-control',
    'transfer-encoding',
  ],
  ...[
    'password',
    'password123',
    'changeme',
    'your-api-key',
    'your_api_key',
    'your-api-key-here',
    'placeholder',
  ],
])

/**
 * Is the value fit to be sent in a header field and looked for in responses? Throws `Refusal` (`credential_invalid`, or
 * `issuer_unavailable` when there is no value) with a detail that never shows it.
 */
export function requireSendable(text: string): void {
  if (missing.has(text.trim().toLowerCase())) throw unavailable('the value is missing or empty')
  if (Buffer.byteLength(text) > maxBytes) throw invalid(`the value is longer than ${maxBytes} bytes`)
  if (/[\r\n]/.test(text)) throw invalid('the value has a line break')
  // RFC 9110 section 5.5: NUL and other controls would end or split the field.
  if (/[\u0000-\u0008\u000b-\u001f\u007f]/.test(text)) throw invalid('the value has a control character') // eslint-disable-line no-control-regex
  if (/[^\u0000-\u00ff]/.test(text)) throw invalid('the value has characters outside ISO 8859-1') // eslint-disable-line no-control-regex
  if (text !== text.trim()) throw invalid('the value begins or ends with white space')
  if (common.has(text.toLowerCase())) throw invalid('the value is a common word, not a secret')
}

/** Is the value under 64 bits or 12 characters, so that it may be matched whole only? */
export function isShort(text: string): boolean {
  return text.length < minLength || bitsOf(text) < minBits
}

/** Upper bound of the bits in a text whose characters were drawn at random from what it seems to be made of. */
function bitsOf(text: string): number {
  const distinct = new Set(text).size
  // A few characters over and over: their number says more than the alphabet they come from.
  if (distinct <= 4) return text.length * Math.log2(Math.max(1, distinct))
  return text.length * Math.log2(alphabetOf(text))
}

function alphabetOf(text: string): number {
  if (/^\d+$/.test(text)) return 10
  if (/^[\da-f]+$/i.test(text)) return 16
  const classes: [RegExp, number][] = [
    [/[a-z]/, 26],
    [/[A-Z]/, 26],
    [/\d/, 10],
    [/[^a-zA-Z\d]/, 20],
  ]
  return classes.reduce((sum, [found, size]) => (found.test(text) ? sum + size : sum), 0)
}

const idKey = randomBytes(32)

/** An id that is equal for equal values in this process and useless outside it. */
export function valueId(secret: Secret): string {
  return createHmac('sha256', idKey).update(secret.reveal()).digest('base64url').slice(0, 16)
}

/** See `isShort`. */
export function isShortSecret(secret: Secret): boolean {
  return isShort(secret.reveal())
}

/** Without the one line break that editors and programs put at the end. */
export function withoutFinalNewline(text: string): string {
  return text.replace(/\r?\n$/, '')
}

/** A value that cannot be had now. */
export function unavailable(detail: string): Refusal {
  return new Refusal('issuer_unavailable', { detail })
}

/** A value that must not be sent or looked for. */
export function invalid(detail: string): Refusal {
  return new Refusal('credential_invalid', { detail })
}
