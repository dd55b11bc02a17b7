import { listOf, type Field } from '../http1/fields.ts'

/**
 * Fields of one connection only (RFC 9110 section 7.6.1), and those by which a client could speak in the broker's name:
 * the upstream must not learn a sandbox's proxy password, nor believe a forwarded address, another method or another path
 * than the one that was judged.
 */
const neverForwarded = new Set([
  'connection',
  'proxy-connection',
  'proxy-authorization',
  'proxy-authenticate',
  'keep-alive',
  'te',
  'transfer-encoding',
  'upgrade',
  'content-length',
  'host',
  'expect',
  'via',
  'forwarded',
  'x-forwarded-for',
  'x-forwarded-host',
  'x-forwarded-proto',
  'x-forwarded-port',
  'x-forwarded-server',
  'x-forwarded-prefix',
  'x-forwarded-path',
  'x-forwarded-uri',
  'x-forwarded-scheme',
  'x-original-forwarded-for',
  'x-original-host',
  'x-original-url',
  'x-rewrite-url',
  'x-host',
  'x-cluster-client-ip',
  'true-client-ip',
  'x-real-ip',
  'x-client-ip',
  'x-agent-id',
  'x-http-method-override',
  'x-http-method',
  'x-method-override',
  'http2-settings',
])

const neverReturned = new Set([
  'connection',
  'proxy-connection',
  'proxy-authenticate',
  'proxy-authentication-info',
  'keep-alive',
  'transfer-encoding',
  'content-length',
  'upgrade',
  'te',
  'via',
])

/** Fields that may not stand in a trailer section (RFC 9110 section 6.5.1): framing, routing, credentials, content. */
const neverInTrailer =
  /^(transfer-encoding|content-.*|host|trailer|connection|keep-alive|te|upgrade|expect|authorization|proxy-.*|www-authenticate|cookie|set-cookie2?|cache-control|range|if-.*|age|expires|location|max-forwards|x-api-key|.*-token|.*-key)$/

/**
 * Request fields to pass on: everything but hop-by-hop fields. What `Connection` nominates goes too, except the fields
 * in `kept` (lower-case): a client must not be able to take a swapped credential off its own request.
 */
export function forwardedFields(fields: readonly Field[], kept: ReadonlySet<string>): Field[] {
  const nominated = listOf(fields, 'connection')
  return fields.filter(([name]) => {
    const key = name.toLowerCase()
    // Gateways that hand fields on as environment variables (CGI, WSGI) read `_` and `-` as one.
    const folded = key.includes('_') ? key.replaceAll('_', '-') : key
    return !neverForwarded.has(folded) && (!nominated.includes(key) || kept.has(key))
  })
}

/** Response fields to pass back. */
export function returnedFields(fields: readonly Field[]): Field[] {
  const nominated = listOf(fields, 'connection')
  return fields.filter(([name]) => {
    const key = name.toLowerCase()
    return !neverReturned.has(key) && !nominated.includes(key)
  })
}

/** Trailer fields to pass on: those that cannot change how the message was already read. */
export const permittedTrailers = (fields: readonly Field[]): Field[] =>
  fields.filter(([name]) => {
    const folded = name.toLowerCase().replaceAll('_', '-')
    return !neverInTrailer.test(folded) && !neverForwarded.has(folded)
  })

/** Replaces every field of that name by one; `name` in the case to write. */
export function withField(fields: readonly Field[], name: string, value: string): Field[] {
  return [...withoutFields(fields, [name.toLowerCase()]), [name, value]]
}

/** `names` are lower-case. */
export const withoutFields = (fields: readonly Field[], names: readonly string[]): Field[] =>
  fields.filter(([name]) => !names.includes(name.toLowerCase()))

/** The bytes of a head, closing empty line included; latin1. */
export function writeHead(first: string, fields: readonly Field[]): string {
  let text = `${first}\r\n`
  for (const [name, value] of fields) text += `${name}: ${value}\r\n`
  return `${text}\r\n`
}
