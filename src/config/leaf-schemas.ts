import { METHODS } from 'node:http'
import { z } from 'zod'
import { parseShape, shapePresets } from '../handles/shapes.ts'
import { parseAddress, parseCidr } from '../policy/address.ts'
import { parseHostPattern } from '../policy/host-pattern.ts'
import { parsePathPattern } from '../policy/path-pattern.ts'
import { parseAdminListener, parseProxyListener } from './listeners.ts'
import type { ValueRef } from './model.ts'
import { nearest } from './problem.ts'
import { parseDuration, parseExpiry, parseSize } from './units.ts'
import type { Parsed } from './units.ts'

type Read<T> = (text: string) => Parsed<T>

/** A text that is read into something else; a problem is reported with the text and the spelling that works. */
function text<T>(read: Read<T>, description: string) {
  return z
    .string()
    .meta({ description })
    .transform((given, context): T => {
      const result = read(given)
      if (result.ok) return result.value
      context.issues.push({
        code: 'custom',
        message: result.problem,
        input: given,
        params: { suggestion: result.suggestion },
      })
      return z.NEVER
    })
}

const refuse = (problem: string, suggestion?: string): Parsed<never> => ({ ok: false, problem, suggestion })
const accept = <T>(value: T): Parsed<T> => ({ ok: true, value })

/** A message that begins with what was written, cut to a readable length. */
const about = (given: string, problem: string): string =>
  `\`${given.length > 80 ? `${given.slice(0, 80)}…` : given}\` ${problem}`

/** What names look like; a sandbox's is also a proxy user name and part of file names. */
export const namePattern = /^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/

/** Name of a sandbox, template, access or credential. */
export const name = z.string().regex(namePattern).meta({ description: 'letters, digits, `.`, `_`, `-`' })

/** A label for people, such as an owner: one line. */
export const label = z
  .string()
  .min(1)
  .max(200)
  .regex(/^[^\p{Cc}]*$/u)

/** Id of a rule, as events show it. */
export const ruleId = z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/)

/** Read as `ms`. */
export const duration = text(parseDuration, 'a duration such as 10m or 7d')
/** Read as bytes. */
export const size = text(parseSize, 'a size such as 50MB')
/** Read as `ms` since the epoch. */
export const expiry = text(parseExpiry, 'a date (00:00 UTC) or an RFC 3339 date-time')
/** A whole number from 1. */
export const count = z.number().int().min(1).max(1_000_000_000)

/** Host of a rule, made canonical. */
export const host = text((given) => {
  const parsed = parseHostPattern(given)
  return parsed.ok ? accept(parsed.pattern) : refuse(about(given, parsed.problem), parsed.suggestion)
}, 'a host name, `*.` and a name for everything below it, an IP literal, or `any`')

/** A host of an access: a name or `*.` name, since a credential goes to named peers only. */
export const accessHost = host.transform((given, context) => {
  if (given !== 'any') return given
  const message = 'a credential needs named destinations; `any` is for rules only'
  context.issues.push({ code: 'custom', message, input: given })
  return z.NEVER
})

/** A name without wildcard. */
export const exactName = text((given) => {
  const parsed = parseHostPattern(given)
  if (!parsed.ok) return refuse(about(given, parsed.problem), parsed.suggestion)
  const canonical = parsed.pattern
  if (canonical === 'any' || canonical.startsWith('*.')) return refuse('one exact name, without a wildcard')
  return accept(canonical)
}, 'a host name')

/** A range of addresses, read as `Cidr`. */
export const cidr = text((given) => {
  const parsed = parseCidr(given)
  return parsed.ok ? accept(parsed.cidr) : refuse(about(given, parsed.problem), parsed.suggestion)
}, 'a range such as 10.20.0.0/16')

/** An IP literal, made canonical. */
export const address = text((given) => {
  const parsed = parseAddress(given)
  return parsed === undefined ? refuse(about(given, 'is not an IP address')) : accept(parsed.text)
}, 'an IP address')

/** A path pattern, as written. */
export const path = text((given) => {
  const parsed = parsePathPattern(given)
  return parsed.ok ? accept(given) : refuse(about(given, parsed.problem), parsed.suggestion)
}, 'a path pattern: `*` within a segment, `**` across')

// A tunnel is allowed by a rule for its host, never by its method; TRACE would reflect credentials.
const methods: readonly string[] = METHODS.filter((method) => method !== 'CONNECT' && method !== 'TRACE')

/** An HTTP method that a rule may name. */
export const method = text((given) => {
  if (methods.includes(given)) return accept(given)
  if (given.toUpperCase() === 'CONNECT' || given.toUpperCase() === 'TRACE') {
    return refuse(`${given.toUpperCase()} is not a method of a rule`)
  }
  return refuse(about(given, 'is not an HTTP method'), nearest(given, methods))
}, 'an HTTP method in upper case')

/** A TCP port. */
export const port = z.number().int().min(1).max(65_535)

/** Form of a placeholder, read as `Shape`. */
export const shape = z
  .union([z.enum(Object.keys(shapePresets)), z.strictObject({ prefix: z.string(), length: z.number() })])
  .transform((given, context) => {
    const parsed = parseShape(given)
    if (parsed.ok) return parsed.shape
    context.issues.push({ code: 'custom', message: parsed.problem, input: given })
    return z.NEVER
  })

// What `octroi env` sets itself, and what would make a placeholder run code.
const reservedVariables =
  /^(?:(?:https?|all|no|ftp|ws|wss)_proxy|node_(?:options|extra_ca_certs|use_env_proxy)|path|home|shell|ifs|ld_.*|dyld_.*|ssl_cert_.*|.*_ca_bundle|bash_env|env|pythonpath|octroi_.*)$/i

/** Name of an environment variable that `octroi env` may set. */
export const variable = text((given) => {
  if (!/^[A-Za-z_][A-Za-z0-9_]{0,127}$/.test(given))
    return refuse(about(given, 'is not the name of a variable'))
  return reservedVariables.test(given)
    ? refuse(about(given, 'is set by octroi or the system'))
    : accept(given)
}, 'the name of an environment variable')

const fieldName = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$/

// Fields that frame or route a message, or that the broker itself reads or removes (RFC 9110 section 7.6.1).
const framingFields = new Set(
  'host connection content-length transfer-encoding te trailer upgrade keep-alive expect via proxy-authorization proxy-authenticate proxy-connection content-type content-encoding accept-encoding range cookie set-cookie forwarded'.split(
    ' ',
  ),
)

/** Header field that may carry a credential, lower-case. */
export const header = text((given) => {
  if (!fieldName.test(given)) return refuse(about(given, 'is not the name of a header field'))
  const lower = given.toLowerCase()
  return framingFields.has(lower) ? refuse(`\`${lower}\` cannot carry a credential`) : accept(lower)
}, 'the name of a header field')

/** Scheme before a credential, such as Bearer. */
export const authScheme = z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._~+-]{0,31}$/)

const source = z
  .string()
  .min(1)
  .max(4096)
  .regex(/^[^\0]*$/)
const variableName = z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/)

/** A relative path stays relative here; `canonical.ts` resolves it against the root. */
export const valueRef = z.union([
  z.strictObject({ env: variableName }).transform((ref): ValueRef => ({ kind: 'env', name: ref.env })),
  z.strictObject({ file: source }).transform((ref): ValueRef => ({ kind: 'file', path: ref.file })),
  z.strictObject({ secret: name }).transform((ref): ValueRef => ({ kind: 'secret', name: ref.secret })),
  z
    .strictObject({ command: z.array(source).min(1).max(64) })
    .transform((ref): ValueRef => ({ kind: 'command', argv: ref.command })),
])

/** A file path as written. */
export const filePath = source

/** A socket path stays as written. */
export const proxyListener = text(parseProxyListener, 'ADDRESS:PORT, https://ADDRESS:PORT or unix:/path')
/** Where the admin API listens, read as `AdminListener`. */
export const adminListener = text(parseAdminListener, 'ADDRESS:PORT on loopback')
