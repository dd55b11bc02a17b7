/**
 * Second reading of addresses: RFC 4291 and 5952 for their text, the IANA special-purpose registries for what may be
 * dialled. Slow on purpose (one whole number of 128 bits for an address, tables walked from the top), and none of it is
 * taken from `src/`.
 */

const bits = 128n
const mappedTop = 0xffffn

/** IPv4 as the mapped form of itself, so that both spellings of one address are one number. */
const ipv4 = (value: bigint): bigint => (mappedTop << 32n) | value

/** Is this number an IPv4 address, which its mapped spelling is too? */
export const isIpv4 = (value: bigint): boolean => value >> 32n === mappedTop

/** Dotted decimal without leading zeros. */
function dotted(text: string): bigint | undefined {
  const parts = text.split('.')
  if (parts.length !== 4) return undefined
  let value = 0n
  for (const part of parts) {
    if (!/^(0|[1-9][0-9]{0,2})$/.test(part) || Number(part) > 255) return undefined
    value = (value << 8n) | BigInt(part)
  }
  return value
}

/** Groups of a half of IPv6 text, a dotted tail as two of them. */
function groups(text: string, mayEndDotted: boolean): number[] | undefined {
  if (text === '') return []
  const parts = text.split(':')
  const found: number[] = []
  for (const [index, part] of parts.entries()) {
    if (part.includes('.')) {
      const tail = index === parts.length - 1 && mayEndDotted ? dotted(part) : undefined
      if (tail === undefined) return undefined
      found.push(Number(tail >> 16n), Number(tail & 0xffffn))
    } else if (/^[0-9A-Fa-f]{1,4}$/.test(part)) found.push(Number.parseInt(part, 16))
    else return undefined
  }
  return found
}

/** An address without brackets or zone as one number; `undefined` for any other text. */
export function readAddress(text: string): bigint | undefined {
  if (!text.includes(':')) {
    const value = dotted(text)
    return value === undefined ? undefined : ipv4(value)
  }
  const halves = text.split('::')
  if (halves.length > 2) return undefined
  const isWhole = halves.length === 1
  const head = groups(halves[0] ?? '', isWhole)
  const tail = isWhole ? [] : groups(halves[1] ?? '', true)
  if (head === undefined || tail === undefined) return undefined
  const missing = 8 - head.length - tail.length
  if (isWhole ? missing !== 0 : missing < 1) return undefined
  const all = [...head, ...Array.from({ length: missing }, () => 0), ...tail]
  return all.reduce((value, group) => (value << 16n) | BigInt(group), 0n)
}

/** RFC 5952 section 4 for IPv6, dotted decimal for `family` 4. */
export function writeAddress(value: bigint, family: 4 | 6): string {
  if (family === 4) return [24n, 16n, 8n, 0n].map((shift) => String((value >> shift) & 0xffn)).join('.')
  const all = Array.from({ length: 8 }, (_, i) => Number((value >> BigInt(112 - 16 * i)) & 0xffffn))
  let best = { from: 0, length: 1 }
  for (let from = 0; from < 8; from++) {
    let length = 0
    while (all[from + length] === 0) length++
    if (length > best.length) best = { from, length }
  }
  const hex = (part: readonly number[]): string => part.map((group) => group.toString(16)).join(':')
  if (best.length < 2) return hex(all)
  return `${hex(all.slice(0, best.from))}::${hex(all.slice(best.from + best.length))}`
}

/** A range: the bits that all of its addresses begin with. */
export interface ReadRange {
  readonly top: bigint
  readonly length: bigint
}

/** A range of the tables or of a policy; IPv4 counts among 128 bits. */
export function readRange(text: string): ReadRange {
  const slash = text.indexOf('/')
  const address = text.slice(0, slash)
  const value = readAddress(address)
  if (value === undefined) throw new TypeError(`no range: ${text}`)
  const length = BigInt(text.slice(slash + 1)) + (address.includes(':') ? 0n : 96n)
  return { top: value >> (bits - length), length }
}

/** Is the address in the range? IPv4 is in a range of IPv4 only, never in one of IPv6 that happens to hold its bits. */
export function isInside(value: bigint, { top, length }: ReadRange): boolean {
  if (isIpv4(value) && length <= 96n) return false
  return value >> (bits - length) === top
}

const ranges = (...texts: string[]): ReadRange[] => texts.map(readRange)
const isInAny = (value: bigint, list: readonly ReadRange[]): boolean =>
  list.some((range) => isInside(value, range))

// IANA IPv4 Special-Purpose Address Registry: what is not globally reachable, RFC 5771 multicast, class E.
const closedIpv4 = ranges(
  '0.0.0.0/8',
  '10.0.0.0/8',
  '100.64.0.0/10',
  '127.0.0.0/8',
  '169.254.0.0/16',
  '172.16.0.0/12',
  '192.0.0.0/24',
  '192.0.2.0/24',
  '192.88.99.0/24',
  '192.168.0.0/16',
  '198.18.0.0/15',
  '198.51.100.0/24',
  '203.0.113.0/24',
  '224.0.0.0/4',
  '240.0.0.0/4',
)
// Rows inside 192.0.0.0/24 that the registry marks globally reachable: PCP and TURN anycast.
const openIpv4 = ranges('192.0.0.9/32', '192.0.0.10/32')

// Only 2000::/3 is handed out (RFC 4291 section 2.4, IANA IPv6 address space); of it the registry's closed rows.
const unicastIpv6 = ranges('2000::/3')
const closedIpv6 = ranges(
  '2001::/23',
  '2001:db8::/32',
  // 6to4: deprecated as anycast, and each address is a tunnel to the IPv4 address in it.
  '2002::/16',
  '3fff::/20',
)
// Rows inside 2001::/23 that are marked globally reachable: anycast of PCP, TURN and DNS-SD, AMT, AS112, ORCHIDv2, DRIP.
const openIpv6 = ranges(
  '2001:1::1/128',
  '2001:1::2/128',
  '2001:1::3/128',
  '2001:3::/32',
  '2001:4:112::/48',
  '2001:20::/28',
  '2001:30::/28',
)
const nat64 = readRange('64:ff9b::/96')
const nat64Local = readRange('64:ff9b:1::/48')
const teredo = readRange('2001::/32')
const sixToFour = readRange('2002::/16')

const only32 = 0xffffffffn

/** ISATAP (RFC 5214): an interface identifier of `0000:5efe` or `0200:5efe` and an IPv4 address. */
const isIsatap = (value: bigint): boolean => {
  const middle = (value >> 32n) & only32
  return middle === 0x5efen || middle === 0x02005efen
}

/** IPv4 addresses that a form of IPv6 stands for, each as a number of the mapped kind. */
export function carriedIpv4(value: bigint): bigint[] {
  if (isIpv4(value)) return []
  const found: bigint[] = []
  const low = value & only32
  // Compatible (RFC 4291 section 2.5.5.1) and translated (RFC 2765) forms.
  if (value >> 32n === 0n || value >> 32n === 0xffff0000n) found.push(low)
  if (isInside(value, nat64)) found.push(low)
  if (isInside(value, nat64Local)) {
    // RFC 6052 section 2.2: prefixes of 48, 56, 64 and 96 bits; bits 64 to 71 are skipped.
    const octet = (at: number): bigint => (value >> BigInt(120 - 8 * at)) & 0xffn
    const joined = (...at: number[]): bigint => at.reduce((sum, each) => (sum << 8n) | octet(each), 0n)
    found.push(joined(6, 7, 9, 10), joined(7, 9, 10, 11), joined(9, 10, 11, 12), low)
  }
  if (isInside(value, sixToFour)) found.push((value >> 80n) & only32)
  // RFC 4380 section 4: server in clear, client with every bit turned.
  if (isInside(value, teredo)) found.push((value >> 64n) & only32, low ^ only32)
  if (isIsatap(value)) found.push(low)
  return found.map(ipv4)
}

const metadata = new Set(
  [
    '169.254.169.254',
    '169.254.170.2',
    '169.254.170.23',
    '100.100.100.200',
    '168.63.129.16',
    '192.0.0.192',
    'fd00:ec2::254',
    'fd00:ec2::23',
    'fd20:ce::254',
  ].map(readAddress),
)

/** Is the address, or one that it stands for, that of a metadata service? */
export const isMetadata = (value: bigint): boolean =>
  [value, ...carriedIpv4(value)].some((each) => metadata.has(each))

const isPublicIpv4 = (value: bigint): boolean => !isInAny(value, closedIpv4) || isInAny(value, openIpv4)

function isPublic(value: bigint): boolean {
  if (isIpv4(value)) return isPublicIpv4(value)
  // A NAT64 form of a public address may pass; every other form that stands for IPv4 is refused outright.
  if (isInside(value, nat64)) return carriedIpv4(value).every(isPublicIpv4)
  if (carriedIpv4(value).length > 0) return false
  return isInAny(value, unicastIpv6) && (!isInAny(value, closedIpv6) || isInAny(value, openIpv6))
}

/** What the address guard has to say of the text of an address, where matching rules name the ranges `opened`. */
export function readGuard(
  text: string,
  opened: readonly ReadRange[],
): 'pass' | 'ip_denied' | 'metadata_denied' {
  const value = readAddress(text)
  if (value === undefined) return 'ip_denied'
  if (isMetadata(value)) return 'metadata_denied'
  return isInAny(value, opened) || isPublic(value) ? 'pass' : 'ip_denied'
}
