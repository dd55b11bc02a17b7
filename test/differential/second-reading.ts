import type { Destination, HostRule, PolicyInput, PolicyRequest, Rule } from '../../src/policy/model.ts'
import {
  carriedIpv4,
  isInside,
  isMetadata,
  readAddress,
  readRange,
  writeAddress,
} from './second-reading-address.ts'

export { readGuard } from './second-reading-address.ts'

/**
 * A second reading of the rules of `design.md`, to be compared with `src/policy/` and `src/handles/`: every rule is looked
 * at for every request, nothing is compiled, indexed or remembered, and no code is shared but the types. Registry rules
 * are left out: what they stand for is data of `src/`.
 */

/** A host in canonical spelling, or nothing. */
export type ReadHost = Pick<Destination, 'host' | 'ip'> | undefined

const isOneOf = (characters: string, text: string): boolean =>
  [...text].every((character) => characters.includes(character))

const digits = '0123456789'
const hexDigits = `${digits}abcdef`
const nameCharacters = `${digits}abcdefghijklmnopqrstuvwxyz-_.`

/** `inet_aton`: one to four numbers, decimal, octal after `0`, hex after `0x`; the last one fills what is left. */
function readNumbers(name: string): bigint | undefined {
  const parts = name.split('.')
  if (parts.length > 4) return undefined
  const values: bigint[] = []
  for (const part of parts) {
    const [prefix, rest, allowed] = part.startsWith('0x')
      ? ['0x', part.slice(2), hexDigits]
      : part.startsWith('0') && part.length > 1
        ? ['0o', part.slice(1), digits.slice(0, 8)]
        : ['', part, digits]
    if (rest === '' || !isOneOf(allowed, rest)) return undefined
    values.push(BigInt(prefix + rest))
  }
  const last = values.pop() ?? 0n
  if (last >= 256n ** BigInt(4 - values.length) || values.some((value) => value > 255n)) return undefined
  return values.reduce((sum, value, index) => sum + value * 256n ** BigInt(3 - index), last)
}

/** Host text of the wire, one character for each byte. */
export function readHost(text: string): ReadHost {
  for (const character of text) if (character <= ' ' || character > '~') return undefined
  if (text.startsWith('[')) {
    const inner = text.slice(1, -1)
    const value = text.endsWith(']') && inner.includes(':') ? readAddress(inner) : undefined
    return value === undefined ? undefined : { host: writeAddress(value, 6), ip: 6 }
  }
  let name = text.toLowerCase()
  if (name.endsWith('.')) name = name.slice(0, -1)
  if (name === '' || !isOneOf(nameCharacters, name)) return undefined
  const labels = name.split('.')
  const last = labels.at(-1) ?? ''
  const isNumber =
    (last !== '' && isOneOf(digits, last)) || (last.startsWith('0x') && isOneOf(hexDigits, last.slice(2)))
  if (isNumber) {
    const value = readNumbers(name)
    return value === undefined ? undefined : { host: writeAddress(value, 4), ip: 4 }
  }
  const fits = labels.every((label) => label.length >= 1 && label.length <= 63) && name.length <= 253
  return fits ? { host: name, ip: 0 } : undefined
}

/** `host:port`; the port may be missing only where there is a default. */
export function readAuthority(text: string, defaultPort?: number): Destination | undefined {
  const bracket = text.lastIndexOf(']')
  const colon = text.indexOf(':', bracket + 1)
  const host = readHost(colon === -1 ? text : text.slice(0, colon))
  if (host === undefined) return undefined
  if (colon === -1) return defaultPort === undefined ? undefined : { ...host, port: defaultPort }
  const port = text.slice(colon + 1)
  if (port === '' || port.startsWith('0') || port.length > 5 || !isOneOf(digits, port)) return undefined
  return Number(port) > 65_535 ? undefined : { ...host, port: Number(port) }
}

const metadataNames = [
  'metadata',
  'metadata.google.internal',
  'metadata.goog',
  'instance-data',
  'instance-data.ec2.internal',
  'metadata.tencentyun.com',
  'metadata.packet.net',
  'metadata.platformequinix.com',
  'api.metadata.cloud.ibm.com',
]

/** Under these nothing public lives (RFC 6761, 6762, 7686, 8375, 9476; names that ICANN holds back; clusters). */
const privateTops =
  'localhost local internal invalid onion arpa localdomain lan home corp mail intranet private svc'.split(' ')

const isPublicName = (host: string): boolean => {
  const labels = host.split('.')
  return labels.length > 1 && !privateTops.includes(labels.at(-1) ?? '')
}

/** Every address that a literal is, or stands for. */
const meanings = (host: string): bigint[] => {
  const value = readAddress(host)
  return value === undefined ? [] : [value, ...carriedIpv4(value)]
}

/** Does a host pattern name this host? A deny reaches further than an allow: to whatever is the same in the end. */
function namesHost(pattern: string, { host, ip }: Destination, isDeny: boolean): boolean {
  if (pattern === 'any') return isDeny || ip !== 0 || isPublicName(host)
  if (pattern.startsWith('*.')) {
    const labels = host.split('.')
    const below = pattern.slice(2).split('.')
    return (
      ip === 0 && labels.length > below.length && labels.slice(-below.length).join('.') === below.join('.')
    )
  }
  if (pattern === host) return true
  return isDeny && ip !== 0 && meanings(host).some((value) => value === readAddress(pattern))
}

function coversHost(rule: Rule, destination: Destination, isDeny: boolean): boolean {
  if (rule.kind === 'registry') return false
  if (rule.kind === 'host') return namesHost(rule.host, destination, isDeny)
  if (destination.ip === 0) return false
  const range = readRange(rule.address.text)
  const values = meanings(destination.host)
  return (isDeny ? values : values.slice(0, 1)).some((value) => isInside(value, range))
}

const isEscape = (text: string, at: number): boolean =>
  text[at] === '%' && at + 2 < text.length && isOneOf(hexDigits, text.slice(at + 1, at + 3).toLowerCase())

/** Text with escapes undone where `isWanted` says so; the others in upper-case hex. */
function unescaped(text: string, isWanted: (character: string) => boolean): string {
  let result = ''
  for (let at = 0; at < text.length; at++) {
    if (!isEscape(text, at)) {
      result += text[at] ?? ''
      continue
    }
    const hex = text.slice(at + 1, at + 3)
    const character = String.fromCharCode(Number.parseInt(hex, 16))
    result += isWanted(character) ? character : `%${hex.toUpperCase()}`
    at += 2
  }
  return result
}

const isUnreserved = (character: string): boolean => /^[A-Za-z0-9._~-]$/.test(character)

/** Each stage of decoding, until nothing changes; `isWanted` as in `unescaped`. */
function stages(path: string, isWanted: (character: string) => boolean = () => true): string[] {
  const found = [path]
  for (let depth = 0; depth < 12; depth++) {
    const next = unescaped(found.at(-1) ?? '', isWanted)
    if (next === found.at(-1)) break
    found.push(next)
  }
  return found
}

const hasBadEscape = (text: string): boolean =>
  [...text].some((character, at) => character === '%' && !isEscape(text, at))

/** Could two servers take this path for two different ones? Plain or encoded, however often. */
export function isTwoFaced(path: string): boolean {
  // A percent sign before another escape is whatever the second decoder makes of the two.
  const percents = stages(path, (character) => character === '%')
  // What is still encoded after seven decodings is meant to outlast somebody's.
  if (percents.length > 8 || percents.some(hasBadEscape)) return true
  return stages(path).some((stage, depth) => {
    const hasSlashes = depth > 0 && stage.split('/').length !== path.split('/').length
    const hasDots = stage.split('/').some((segment) => ['.', '..'].includes(segment.split(';')[0] ?? ''))
    // RFC 3629 section 3: bytes that no UTF-8 has. Decoders that take them anyhow read `%c0%af` as a slash.
    const isNoText = /[\xc0\xc1\xf5-\xff]/.test(stage)
    return hasBadEscape(stage) || hasSlashes || hasDots || isNoText || /[\\\0]/.test(stage)
  })
}

/**
 * Tries every way in which the pattern, from `i`, could stand for the text, from `j`: `*` for anything within a segment,
 * `**` for anything. In an allow rule a `*` that is a whole segment stands for at least one character.
 */
function stands(pattern: string, text: string, isDeny: boolean, i = 0, j = 0): boolean {
  if (i === pattern.length) return j === text.length
  const isBorder = (at: number): boolean => at === pattern.length || pattern[at] === '/'
  // `/a/**` is also `/a`, and `/a/**/z` is also `/a/z`.
  const mayVanish = pattern.startsWith('/**', i) && isBorder(i + 3)
  if (mayVanish && stands(pattern, text, isDeny, i + 3, j)) return true
  if (pattern.startsWith('**', i)) {
    for (let to = j; to <= text.length; to++) if (stands(pattern, text, isDeny, i + 2, to)) return true
    return false
  }
  if (pattern[i] !== '*') return pattern[i] === text[j] && stands(pattern, text, isDeny, i + 1, j + 1)
  const isWhole = pattern[i - 1] === '/' && isBorder(i + 1)
  for (let to = j; to <= text.length; to++) {
    const isEnough = isDeny || !isWhole || to > j
    if (isEnough && stands(pattern, text, isDeny, i + 1, to)) return true
    if (text[to] === '/') return false
  }
  return false
}

/** Allow rules and accesses: the raw path as it is, only unreserved escapes undone. */
const allowsPath = (pattern: string, path: string): boolean =>
  stands(unescaped(pattern, isUnreserved), unescaped(path, isUnreserved), false)

/** Stands for a `*` that is no wildcard. */
const star = '\u0100'
const literal = (text: string): string => (stages(text).at(-1) ?? '').toLowerCase().replaceAll('*', star)

/** Deny rules: the path as it is, and in every form a server might fold it to. */
function deniesPath(pattern: string, path: string): boolean {
  if (allowsPath(pattern, path)) return true
  const folded = pattern
    .split(/(\*+)/)
    .map((piece) => (piece.startsWith('*') ? piece : literal(piece)))
    .join('')
  const plain = literal(path)
  const bare = plain.replace(/;[^/]*/g, '')
  const forms = [plain, bare].flatMap((form) => [form, form.replace(/\/+/g, '/')])
  return forms.some((form) => stands(folded, form, true))
}

type PathRule = {
  readonly methods?: readonly string[] | undefined
  readonly paths?: readonly string[] | undefined
}

const allowsMethod = ({ methods }: PathRule, method: string): boolean =>
  methods === undefined || methods.includes(method)

/** One request as the rules see it; a tunnel that is being opened has no scheme, method or path yet. */
interface Asked {
  readonly destination: Destination
  readonly inside: { readonly scheme: string; readonly method: string; readonly path: string } | undefined
  readonly now: number
}

function denies(rule: Rule, { destination, inside }: Asked): boolean {
  if (rule.kind === 'registry' || !coversHost(rule, destination, true)) return false
  if (rule.ports.length > 0 && !rule.ports.includes(destination.port)) return false
  // A tunnel is refused only where nothing that could go through it is allowed.
  if (inside === undefined) return rule.methods === undefined && rule.paths === undefined
  const method = inside.method.toUpperCase()
  const fits = rule.methods === undefined || rule.methods.some((each) => each.toUpperCase() === method)
  return fits && (rule.paths === undefined || rule.paths.some((path) => deniesPath(path, inside.path)))
}

function allows(rule: Exclude<Rule, { kind: 'registry' }>, { destination, inside, now }: Asked): boolean {
  if (!coversHost(rule, destination, false) || !rule.ports.includes(destination.port)) return false
  if (rule.expires !== undefined && now >= rule.expires) return false
  if (inside === undefined) return rule.methods?.length !== 0 && rule.paths?.length !== 0
  return (
    rule.scheme === inside.scheme &&
    allowsMethod(rule, inside.method) &&
    (rule.paths === undefined || rule.paths.some((path) => allowsPath(path, inside.path)))
  )
}

/** An access's destination is an allow rule over TLS for exactly its host and port. */
const asRule = (destination: PolicyInput['access'][number]): HostRule => ({
  ...destination,
  kind: 'host',
  ports: [destination.port],
  scheme: 'https',
  tls: 'terminate',
  ownCredentials: 'pass',
})

/** What the second reading says of one request. */
export type Reading =
  | { readonly verdict: 'deny' }
  | {
      readonly verdict: 'allow'
      /** Accesses whose destinations the request is in. */
      readonly access: readonly string[]
      readonly maySplice: boolean
      readonly refusesOwn: boolean
      /** Ranges that the address guard opens. */
      readonly addresses: readonly string[]
      readonly schemes: readonly string[]
    }

const deny: Reading = { verdict: 'deny' }

/** Default deny; deny beats allow in any order; nothing opens a metadata service. */
export function readDecision(policy: PolicyInput, request: PolicyRequest): Reading {
  const { destination, now } = request
  const { host } = destination
  if (metadataNames.some((name) => host === name || (name.includes('.') && host.endsWith(`.${name}`))))
    return deny
  if (destination.ip !== 0 && isMetadata(readAddress(host) ?? 0n)) return deny
  const asked: Asked = { destination, now, inside: request.kind === 'http' ? request : undefined }
  const all = [...policy.allow, ...policy.access.map(asRule)]
  const hasPaths =
    all.some((rule) => 'paths' in rule && rule.paths !== undefined && coversHost(rule, destination, false)) ||
    policy.deny.some(
      (rule) => 'paths' in rule && rule.paths !== undefined && coversHost(rule, destination, true),
    )
  if (request.kind === 'http' && hasPaths && isTwoFaced(request.path)) return deny
  if (policy.deny.some((rule) => denies(rule, asked))) return deny
  const rules = policy.allow.filter((rule) => rule.kind !== 'registry').filter((rule) => allows(rule, asked))
  const accesses = policy.access.filter((each) => allows(asRule(each), asked))
  if (rules.length + accesses.length === 0) return deny
  return {
    verdict: 'allow',
    access: accesses.map(({ access }) => access),
    ...howTo(policy, asked, [...rules, ...accesses.map(asRule)]),
  }
}

/** Unread only if nothing is left to check inside: no access here, and no rule that looks at what only reading shows. */
function howTo(
  policy: PolicyInput,
  { destination }: Asked,
  matching: readonly Exclude<Rule, { kind: 'registry' }>[],
): { maySplice: boolean; refusesOwn: boolean; addresses: string[]; schemes: string[] } {
  const looksInside = ({ methods, paths }: PathRule): boolean => methods !== undefined || paths !== undefined
  const isHere = (rule: Rule): boolean =>
    rule.kind !== 'registry' &&
    looksInside(rule) &&
    coversHost(rule, destination, true) &&
    (rule.ports.length === 0 || rule.ports.includes(destination.port))
  const { host, port } = destination
  const isOwn = policy.access.some((each) => each.port === port && namesHost(each.host, destination, false))
  // Nor where another sandbox of the tenant has an access.
  const isBound = isOwn || policy.bound?.has(host, port) === true
  const refusesOwn = matching.some((rule) => rule.ownCredentials === 'refuse')
  const isEachUnread = matching.every(
    (rule) => rule.tls === 'splice' && rule.scheme === 'https' && !looksInside(rule),
  )
  return {
    maySplice: isEachUnread && !refusesOwn && !isBound && !policy.deny.some(isHere),
    refusesOwn,
    addresses: matching.flatMap((rule) =>
      rule.kind === 'address' ? [rule.address.text] : rule.addresses.map(({ text }) => text),
    ),
    schemes: matching.map((rule) => rule.scheme),
  }
}
