import { parseAddress, parseLooseIpv4 } from './address.ts'
import type { Destination, Scheme } from './model.ts'

/** Why text was not taken; a fragment to follow "the host", without the text itself. */
interface Problem {
  readonly ok: false
  readonly problem: string
}

/** A canonical host without brackets; `ip` is `0` for a name. */
export type HostResult = { readonly ok: true; readonly host: string; readonly ip: 0 | 4 | 6 } | Problem
/** A canonical host and port. */
export type AuthorityResult = { readonly ok: true; readonly destination: Destination } | Problem
/** The parts of an absolute-form request target. */
export type AbsoluteTargetResult =
  | {
      readonly ok: true
      readonly scheme: Scheme
      readonly destination: Destination
      /** Begins with `/`; as sent, but for an empty path. */
      readonly pathAndQuery: string
    }
  | Problem

const defaultPorts: Readonly<Record<Scheme, number>> = { https: 443, http: 80 }

/**
 * Reads a host as it stands on the wire (latin1 text): a name, IPv4 in any spelling, IPv6 in brackets. The
 * result is canonical: lower case, no trailing dot, dotted decimal, RFC 5952 without brackets.
 */
export function parseHost(text: string): HostResult {
  if (text === '') return refuse('is missing')
  if (/[^\x21-\x7e]/.test(text)) return refuse('has a space, control or non-ASCII character')
  if (text.startsWith('[')) return parseBracketed(text)
  if (text.includes('@')) return refuse('has user information')
  if (text.includes(':')) return refuse('has a colon outside brackets; IPv6 goes in brackets')
  if (!/^[A-Za-z0-9._-]+$/.test(text)) return refuse('has a character that host names do not have')
  const name = (text.endsWith('.') ? text.slice(0, -1) : text).toLowerCase()
  if (name === '') return refuse('is missing')
  if (endsInNumber(name)) {
    const address = parseLooseIpv4(name)
    return address === undefined
      ? refuse('ends in a number but is no IPv4 address')
      : { ok: true, host: address.text, ip: 4 }
  }
  return nameProblem(name) ?? { ok: true, host: name, ip: 0 }
}

/**
 * Reads `host:port`. Without `defaultPort` the port must be written (CONNECT, RFC 9110 section 9.3.6); with
 * one it may be left out (Host field).
 */
export function parseAuthority(text: string, defaultPort?: number): AuthorityResult {
  const colon = text.lastIndexOf(':')
  const split = colon > text.lastIndexOf(']') ? colon : text.length
  const host = parseHost(text.slice(0, split))
  if (!host.ok) return host
  const port = parsePort(text.slice(split), defaultPort)
  if (typeof port === 'string') return refuse(port)
  return { ok: true, destination: { host: host.host, port, ip: host.ip } }
}

/** Reads an absolute-form request target (RFC 9112 section 3.2.2); only `http` and `https`. */
export function parseAbsoluteTarget(target: string): AbsoluteTargetResult {
  if (/[^\x21-\x7e]/.test(target)) return refuse('has a space, control or non-ASCII character')
  if (target.includes('#')) return refuse('has a fragment')
  const match = /^(https?):\/\/([^/?]*)(.*)$/i.exec(target)
  if (match === null) return refuse('is not an http:// or https:// URL in absolute form')
  const scheme: Scheme = match[1]?.toLowerCase() === 'https' ? 'https' : 'http'
  const authority = parseAuthority(match[2] ?? '', defaultPorts[scheme])
  if (!authority.ok) return authority
  const tail = match[3] ?? ''
  const pathAndQuery = tail.startsWith('/') ? tail : `/${tail}`
  return { ok: true, scheme, destination: authority.destination, pathAndQuery }
}

/** `host:port`, with brackets around IPv6. */
export function authorityOf(destination: Destination): string {
  return `${bracketed(destination)}:${destination.port}`
}

/** Value of a Host field: the port only where it is not the scheme's own. */
export function hostFieldOf(destination: Destination, scheme: Scheme): string {
  return destination.port === defaultPorts[scheme] ? bracketed(destination) : authorityOf(destination)
}

/** Are two canonical destinations the same host and port? */
export function sameDestination(a: Destination, b: Destination): boolean {
  return a.port === b.port && a.ip === b.ip && a.host === b.host
}

const refuse = (problem: string): Problem => ({ ok: false, problem })
const bracketed = ({ host, ip }: Destination): string => (ip === 6 ? `[${host}]` : host)

function parseBracketed(text: string): HostResult {
  if (!text.endsWith(']')) return refuse('has an opening bracket without its end')
  const inner = text.slice(1, -1)
  // RFC 9844 withdrew zone identifiers from URLs; a zone would also choose one of the broker's own
  // interfaces.
  if (inner.includes('%')) return refuse('has an IPv6 zone')
  const address = parseAddress(inner)
  if (address?.family !== 6) return refuse('has brackets around what is no IPv6 address')
  return { ok: true, host: address.text, ip: 6 }
}

/** WHATWG URL "ends in a number": resolvers read such names as IPv4 (inet_aton), so they must be IPv4. */
function endsInNumber(name: string): boolean {
  return /^([0-9]+|0x[0-9a-f]*)$/.test(name.slice(name.lastIndexOf('.') + 1))
}

function nameProblem(name: string): Problem | undefined {
  if (name.length > 253) return refuse('is longer than 253 characters')
  let start = 0
  while (start <= name.length) {
    const dot = name.indexOf('.', start)
    const end = dot === -1 ? name.length : dot
    if (end === start) return refuse('has an empty label')
    if (end - start > 63) return refuse('has a label longer than 63 characters')
    start = end + 1
  }
  return undefined
}

/** The port after a host, or the problem with it as text. */
function parsePort(rest: string, defaultPort: number | undefined): number | string {
  if (rest === '') return defaultPort ?? 'has no port'
  if (!/^:[1-9][0-9]{0,4}$/.test(rest)) return 'has a malformed port'
  const port = Number(rest.slice(1))
  return port > 65_535 ? 'has a port above 65535' : port
}
