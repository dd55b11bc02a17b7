import { getPublicSuffix } from 'tldts'
import { parseAddress, parseCidr } from './address.ts'
import { parseHost } from './destination.ts'

/** A canonical host pattern, or what is wrong with the text. */
export type HostPatternResult =
  | {
      readonly ok: true
      /** Exact A-label name, `*.` + name, IP literal without brackets, or `any`. */
      readonly pattern: string
    }
  | {
      readonly ok: false
      /** A fragment to follow the key, such as "matches every host". */
      readonly problem: string
      /** The spelling that works, where there is one. */
      readonly suggestion?: string
    }

/** Reads the host of a rule as an operator writes it, and makes it canonical or says which spelling works. */
export function parseHostPattern(text: string): HostPatternResult {
  const lower = text.trim().toLowerCase()
  if (lower === '') return refuse('is empty')
  if (lower === 'any') return { ok: true, pattern: 'any' }
  if (lower === '*' || lower === '*.' || lower === '**') return refuse('matches every host', 'any')
  return misplaced(lower) ?? (lower.includes('*') ? parseWildcard(lower) : parseExact(lower))
}

/**
 * Names under which nothing public lives: RFC 6761, 6762, 7686, ICANN's `internal`, and what private networks
 * use.
 */
const privateSuffixes = new Set(
  'localhost local internal invalid onion localdomain lan home corp mail intranet private svc arpa'.split(
    ' ',
  ),
)

/**
 * Does a canonical pattern cover a canonical host? What `decide` answers by its index, one pattern at a time;
 * for the configuration and for sets of a few patterns.
 */
export function coversHost(pattern: string, host: string): boolean {
  if (pattern === 'any') return parseAddress(host) !== undefined || isPublicName(host)
  return pattern.startsWith('*.')
    ? host.endsWith(pattern.slice(1)) && host.length >= pattern.length
    : host === pattern
}

/** Does `host: any` cover this name? Single labels and private suffixes need a rule that spells them. */
export function isPublicName(host: string): boolean {
  const dot = host.lastIndexOf('.')
  return dot !== -1 && !privateSuffixes.has(host.slice(dot + 1))
}

const refuse = (problem: string, suggestion?: string): HostPatternResult =>
  suggestion === undefined ? { ok: false, problem } : { ok: false, problem, suggestion }

/** Parts of a URL that a host pattern does not have. */
function misplaced(text: string): HostPatternResult | undefined {
  const scheme = /^[a-z][a-z0-9+.-]*:\/\/([^/?#]*)/.exec(text)
  if (scheme !== null) return refuse('is a URL; a rule names the host alone', hostOnly(scheme[1] ?? ''))
  const range = parseCidr(text)
  if (range.ok) return refuse('is a range of addresses', `{ address: ${text} }`)
  if (/[/?#]/.test(text)) return refuse('has a path; paths go under `paths`', hostOnly(text))
  if (text.includes('@'))
    return refuse('has user information', hostOnly(text.slice(text.lastIndexOf('@') + 1)))
  if (/\s/.test(text)) return refuse('has a space inside')
  const port = /^([^:]*|\[[^\]]*\]):([0-9]*)$/.exec(text)
  if (port === null || parseAddress(text) !== undefined) return undefined
  return refuse(`has a port; ports go under \`ports: [${port[2] ?? ''}]\``, hostOnly(port[1] ?? ''))
}

/** The host part of mistaken text, as a suggestion; `undefined` if that is no good host either. */
function hostOnly(text: string): string | undefined {
  const literal = /^\[[^\]/?#]*\]/.exec(text)?.[0]
  const host = literal ?? text.replace(/[/?#].*$/s, '').replace(/:[0-9]*$/, '')
  if (host === '' || (literal === undefined && /[:@]/.test(host))) return undefined
  const parsed = parseHostPattern(host)
  return parsed.ok ? parsed.pattern : undefined
}

function parseExact(text: string): HostPatternResult {
  const bare = text.startsWith('[') && text.endsWith(']') ? text.slice(1, -1) : text
  const literal = parseAddress(bare)
  if (literal !== undefined) return { ok: true, pattern: literal.text }
  if (text.startsWith('.')) {
    const meant = parseWildcard(`*${text}`)
    return refuse('begins with a dot', meant.ok ? meant.pattern : meant.suggestion)
  }
  const name = toAscii(text)
  if (name === undefined) return refuse('is no host name in Unicode either')
  const host = parseHost(name)
  if (!host.ok) return refuse(host.problem)
  if (host.ip !== 0) return refuse('is an IP address in an unusual spelling', host.host)
  return { ok: true, pattern: host.host }
}

function parseWildcard(text: string): HostPatternResult {
  const below = text.slice(text.lastIndexOf('*') + 1).replace(/^[^.]*\./, '')
  if (!text.startsWith('*.') || text.lastIndexOf('*') !== 0) {
    const fallback = parseExact(below)
    const problem = 'has a wildcard that is not the whole leftmost label'
    const isUsable =
      fallback.ok && parseAddress(fallback.pattern) === undefined && isOwnable(fallback.pattern)
    return isUsable ? refuse(problem, `*.${fallback.pattern}`) : refuse(problem)
  }
  const parsed = parseExact(text.slice(2))
  if (!parsed.ok) return parsed
  if (parseAddress(parsed.pattern) !== undefined)
    return refuse('has a wildcard before an IP address', parsed.pattern)
  if (isOwnable(parsed.pattern)) return { ok: true, pattern: `*.${parsed.pattern}` }
  return refuse(
    'covers a whole public suffix, where anyone can register a name',
    `*.example.${parsed.pattern}`,
  )
}

/** Is everything below this name under one owner, by the public suffix list with its private part? */
function isOwnable(name: string): boolean {
  // A suffix rule such as *.ck makes each name one label further down a suffix of its own.
  const probe = `octroi.${name}`
  const suffix = getPublicSuffix(probe, { allowPrivateDomains: true })
  return suffix !== name && suffix !== probe
}

/** UTS 46 mapping to A-labels, as browsers do it; ASCII text is left alone. */
function toAscii(text: string): string | undefined {
  if (/^[\x21-\x7e]*$/.test(text)) return text
  const parsed = URL.parse(`http://${text}/`)
  return parsed === null || parsed.hostname === '' ? undefined : parsed.hostname
}
