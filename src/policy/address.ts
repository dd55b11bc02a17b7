import { isIP } from 'node:net'
import ipaddr from 'ipaddr.js'
import { ipv4Blocks, ipv6Blocks } from './address-blocks.ts'
import type { AddressClass, BlockRow } from './address-blocks.ts'
import { metadataAddresses } from './metadata.ts'

export type { AddressClass } from './address-blocks.ts'
export { isMetadataName } from './metadata.ts'

/**
 * 128 bits as four unsigned 32-bit words, most significant first. IPv4 is held as its mapped form
 * ::ffff:a.b.c.d.
 */
export type Words = readonly [number, number, number, number]

/** An IP address in canonical text and as bits. */
export interface Address {
  /** Dotted decimal, or RFC 5952 text without brackets; a mapped address keeps its IPv6 text. */
  readonly text: string
  readonly family: 4 | 6
  readonly words: Words
}

/** A range of addresses. IPv4 ranges cover the mapped spelling of their addresses too. */
export interface Cidr {
  /** Canonical `address/length` as an operator writes it. */
  readonly text: string
  readonly words: Words
  /** Prefix length among 128 bits: an IPv4 /8 is 104. */
  readonly bits: number
}

/** What the address guard says of one address, with the class it found. */
export type Judgement =
  | { readonly allowed: true; readonly class: AddressClass }
  | {
      readonly allowed: false
      readonly reason: 'ip_denied' | 'metadata_denied'
      readonly class: AddressClass
    }

/** A range, or a fragment that says what is wrong with the text and the spelling that works. */
export type CidrResult =
  | { readonly ok: true; readonly cidr: Cidr }
  | { readonly ok: false; readonly problem: string; readonly suggestion?: string }

/** Reads dotted decimal or IPv6 text, without brackets or zone; `undefined` for anything else. */
export function parseAddress(text: string): Address | undefined {
  const family = isIP(text)
  if (family === 4) return ipv4Address(ipv4Number(text))
  if (family !== 6 || text.includes('%')) return undefined
  return ipv6Address(ipv6Parts(text))
}

/**
 * Reads IPv4 in every spelling of inet_aton: one to four parts, each decimal, octal (`0177`) or hex (`0x7f`),
 * the last filling the rest. `undefined` for anything else, so that no spelling is left for a resolver to
 * read differently.
 */
export function parseLooseIpv4(text: string): Address | undefined {
  const parts = text.split('.')
  if (parts.length > 4) return undefined
  let value = 0
  for (const [index, part] of parts.entries()) {
    const number = loosePart(part)
    const isLast = index === parts.length - 1
    const limit = isLast ? 256 ** (4 - index) : 256
    if (number === undefined || number >= limit) return undefined
    value += isLast ? number : number * 256 ** (3 - index)
  }
  return ipv4Address(value)
}

/** Reads a range; refuses what would match everything, host bits and any spelling but the canonical one. */
export function parseCidr(text: string): CidrResult {
  const match = /^([0-9a-f:.]+)\/(0|[1-9][0-9]{0,2})$/i.exec(text)
  const address = parseAddress(match?.[1] ?? text)
  if (match === null) {
    if (address === undefined)
      return { ok: false, problem: 'is not a range such as 10.20.0.0/16 or fd12::/48' }
    const only = cidrOf(address, address.family === 4 ? 32 : 128)
    const problem = 'is one address, not a range'
    return only.ok ? { ok: false, problem, suggestion: only.cidr.text } : { ...only, problem }
  }
  const length = Number(match[2])
  if (address === undefined) return { ok: false, problem: 'does not begin with an IP address in plain form' }
  const longest = address.family === 4 ? 32 : 128
  if (length > longest) return { ok: false, problem: `has a prefix longer than ${longest} bits` }
  if (length === 0) return { ok: false, problem: 'matches every address; name the ranges that are meant' }
  return cidrOf(address, length)
}

/** Is the address inside the range? */
export function contains(cidr: Cidr, address: Address): boolean {
  return startsWith(address.words, cidr.words, cidr.bits) && !isShortOfIpv4(address.words, cidr.bits)
}

/** Equal for all addresses that share their first `bits` bits, and only for them. */
export function networkKey(words: Words, bits: number): string {
  return isShortOfIpv4(words, bits) ? 'ipv4' : masked(words, bits).join('.')
}

/** The class of an address, looking through every embedding of IPv4. */
export function classify(address: Address): AddressClass {
  const { words } = address
  if (isMetadata(words)) return 'metadata'
  const inner = embeddedIpv4(words)
  if (inner.some((number) => isMetadata(mappedWords(number)))) return 'metadata'
  const own = rowClass(words)
  if (own === 'public' && isIsatap(words)) return 'isatap'
  if (own !== 'nat64') return own
  // RFC 6052: the well-known prefix reaches the public IPv4 internet, so a public inner address may pass.
  return rowClass(mappedWords(words[3])) === 'public' ? 'public' : 'nat64'
}

/**
 * May this address be dialled? `opened` are the ranges that matching rules name; they never open metadata.
 * Text that is not an address is denied.
 */
export function judge(address: Address | string, opened: readonly Cidr[]): Judgement {
  const parsed = typeof address === 'string' ? parseAddress(address) : address
  if (parsed === undefined) return { allowed: false, reason: 'ip_denied', class: 'unparsable' }
  const found = classify(parsed)
  if (found === 'public') return { allowed: true, class: found }
  if (found === 'metadata') return { allowed: false, reason: 'metadata_denied', class: found }
  if (opened.some((cidr) => contains(cidr, parsed))) return { allowed: true, class: found }
  return { allowed: false, reason: 'ip_denied', class: found }
}

/**
 * IPv4 addresses that an IPv6 address carries, in canonical form; none for IPv4 itself. Deny rules look at
 * them too.
 */
export function innerIpv4(address: Address): readonly Address[] {
  if (address.family === 4) return []
  const mapped = isMapped(address.words) ? [address.words[3]] : []
  return [...mapped, ...embeddedIpv4(address.words)].map(ipv4Address)
}

function cidrOf(address: Address, length: number): CidrResult {
  const bits = address.family === 4 ? length + 96 : length
  if (address.family === 6 && isMapped(address.words)) {
    const problem = 'is a mapped IPv4 range; write it as IPv4'
    if (length <= 96) return { ok: false, problem }
    const plain = cidrOf(ipv4Address(address.words[3]), length - 96)
    return plain.ok ? { ok: false, problem, suggestion: plain.cidr.text } : { ...plain, problem }
  }
  const words = masked(address.words, bits)
  const canonical = address.family === 4 ? ipv4Address(words[3]) : ipv6Address(partsOf(words))
  const text = `${canonical.text}/${length}`
  if (canonical.text !== address.text) {
    return { ok: false, problem: 'has bits set after the prefix', suggestion: text }
  }
  return { ok: true, cidr: { text, words, bits } }
}

/** Zeros in front are any number; what is too large for a double is too large for an address as well. */
function loosePart(part: string): number | undefined {
  if (/^0x[0-9a-f]+$/i.test(part)) return Number.parseInt(part.slice(2), 16)
  if (/^0[0-7]+$/.test(part)) return Number.parseInt(part, 8)
  return /^(0|[1-9][0-9]*)$/.test(part) ? Number(part) : undefined
}

function ipv4Number(dotted: string): number {
  return dotted.split('.').reduce((value, part) => value * 256 + Number(part), 0)
}

function ipv4Address(value: number): Address {
  const text = [value >>> 24, (value >>> 16) & 255, (value >>> 8) & 255, value & 255].join('.')
  return { text, family: 4, words: mappedWords(value) }
}

const mappedWords = (value: number): Words => [0, 0, 0xffff, value >>> 0]

/**
 * Eight 16-bit parts of text that isIP took. ipaddr.js is not asked: it reads the compatible `::1.2.3.4` as
 * mapped.
 */
function ipv6Parts(text: string): number[] {
  const tail = /^(.*:)([0-9.]+\.[0-9]+)$/.exec(text)
  const plain = tail?.[1] === undefined ? text : tail[1] + hexPair(ipv4Number(tail[2] ?? ''))
  const [left = '', right] = plain.split('::')
  const head = groups(left)
  if (right === undefined) return head
  const rest = groups(right)
  return [...head, ...new Array<number>(8 - head.length - rest.length).fill(0), ...rest]
}

const hexPair = (value: number): string => `${(value >>> 16).toString(16)}:${(value & 0xffff).toString(16)}`
const groups = (text: string): number[] =>
  text === '' ? [] : text.split(/:/).map((group) => Number.parseInt(group, 16))

function ipv6Address(parts: readonly number[]): Address {
  const word = (index: number): number => (((parts[index] ?? 0) << 16) | (parts[index + 1] ?? 0)) >>> 0
  const text = new ipaddr.IPv6([...parts]).toRFC5952String()
  return { text, family: 6, words: [word(0), word(2), word(4), word(6)] }
}

const partsOf = (words: Words): number[] => words.flatMap((word) => [word >>> 16, word & 0xffff])

/** Mask of the bits of word `index` that a prefix of `bits` covers. */
function wordMask(bits: number, index: number): number {
  const covered = Math.min(32, Math.max(0, bits - 32 * index))
  return covered === 0 ? 0 : (0xffffffff << (32 - covered)) >>> 0
}

function masked(words: Words, bits: number): Words {
  const part = (index: 0 | 1 | 2 | 3): number => (words[index] & wordMask(bits, index)) >>> 0
  return [part(0), part(1), part(2), part(3)]
}

function startsWith(words: Words, prefix: Words, bits: number): boolean {
  const differs = (index: 0 | 1 | 2 | 3): boolean =>
    ((words[index] ^ prefix[index]) & wordMask(bits, index)) !== 0
  return !(differs(0) || differs(1) || differs(2) || differs(3))
}

/** IPv4 lies inside ::/80 as 128 bits only; a range of IPv6 as short as that does not mean IPv4. */
const isShortOfIpv4 = (words: Words, bits: number): boolean => bits <= 96 && isMapped(words)
const isMapped = (words: Words): boolean => words[0] === 0 && words[1] === 0 && words[2] === 0xffff
const isIsatap = (words: Words): boolean => words[2] === 0x5efe || words[2] === 0x02005efe

/**
 * IPv4 addresses inside translated, tunnelled and compatible forms; a mapped address is the IPv4 address
 * itself.
 */
function embeddedIpv4(words: Words): number[] {
  const [w0, w1, w2, w3] = words
  const inner: number[] = []
  if (w0 === 0 && w1 === 0 && (w2 === 0 || w2 === 0xffff0000)) inner.push(w3)
  if (w0 === 0x0064ff9b) inner.push(...nat64Inner(words))
  if (w0 >>> 16 === 0x2002) inner.push((((w0 & 0xffff) << 16) | (w1 >>> 16)) >>> 0)
  // RFC 4380 section 4: the server's address in clear, the client's with every bit turned.
  if (w0 === 0x20010000) inner.push(w1, ~w3 >>> 0)
  if (isIsatap(words)) inner.push(w3)
  return inner
}

/**
 * RFC 6052 section 2.2: where the IPv4 address sits depends on a prefix length that only the network knows.
 */
function nat64Inner([, w1, w2, w3]: Words): number[] {
  if (w1 === 0 && w2 === 0) return [w3]
  const length48 = ((w1 & 0xffff) << 16) | ((w2 >>> 8) & 0xffff)
  const length56 = ((w1 & 0xff) << 24) | (w2 & 0xffffff)
  const length64 = ((w2 & 0xffffff) << 8) | (w3 >>> 24)
  return [w3, length48 >>> 0, length56 >>> 0, length64 >>> 0]
}

interface Block {
  readonly class: AddressClass
  readonly words: Words
  readonly bits: number
}

function block([cidr, class_]: BlockRow): Block {
  const slash = cidr.indexOf('/')
  const { words, family } = known(cidr.slice(0, slash))
  return { class: class_, words, bits: Number(cidr.slice(slash + 1)) + (family === 4 ? 96 : 0) }
}

function known(text: string): Address {
  const address = parseAddress(text)
  if (address === undefined) throw new TypeError(`not an address in our own tables: ${text}`)
  return address
}

/** Longest prefix first, so that the first hit is the registry's most specific row. */
const blocks: readonly Block[] = [...ipv4Blocks, ...ipv6Blocks].map(block).sort((a, b) => b.bits - a.bits)
const metadata: readonly Words[] = metadataAddresses.map((text) => known(text).words)

const isMetadata = (words: Words): boolean => metadata.some((listed) => startsWith(words, listed, 128))

function rowClass(words: Words): AddressClass {
  const row = blocks.find(({ words: prefix, bits }) => startsWith(words, prefix, bits))
  return row === undefined || isShortOfIpv4(words, row.bits) ? 'public' : row.class
}
