import type { Grant, Slot } from './model.ts'

/** Longest credential that is put into a header, bytes; common servers refuse a head of more than 16 KiB. */
export const maxCredentialBytes = 12 * 1024

/** User and password of RFC 7617, each byte one character (Latin-1), so that encoding again yields the same bytes. */
export interface BasicCredentials {
  readonly user: string
  readonly password: string
}

/** Header field of a slot, lower-case. */
export function slotHeader(slot: Slot): string {
  return slot.kind === 'basic' ? 'authorization' : slot.name.toLowerCase()
}

const slotHeaders = new WeakMap<readonly Grant[], ReadonlySet<string>>()

/** Header fields, lower-case, that are a slot of one of the grants; made once for each list. */
export function slotHeadersOf(grants: readonly Grant[]): ReadonlySet<string> {
  let headers = slotHeaders.get(grants)
  if (headers === undefined) {
    headers = new Set(grants.map(({ access }) => slotHeader(access.slot)))
    slotHeaders.set(grants, headers)
  }
  return headers
}

/** Are two slots one and the same, so that two accesses with them on one destination contradict each other? */
export function sameSlot(a: Slot, b: Slot): boolean {
  if (a.kind === 'basic' || b.kind === 'basic') {
    return a.kind === 'basic' && b.kind === 'basic' && a.field === b.field
  }
  return slotHeader(a) === slotHeader(b) && a.scheme?.toLowerCase() === b.scheme?.toLowerCase()
}

/** Does the value of the slot's header hold exactly this placeholder, alone in its slot? */
export function holdsExactly(slot: Slot, value: string, placeholder: string): boolean {
  if (slot.kind === 'basic') {
    const basic = decodeBasic(value)
    if (basic === undefined || basic[slot.field] !== placeholder) return false
    return !basic[slot.field === 'user' ? 'password' : 'user'].includes(placeholder)
  }
  if (slot.scheme === undefined) return value === placeholder
  const scheme = slot.scheme
  // RFC 9110 section 11.1: the scheme is case-insensitive; exactly one space, since peers differ on more.
  return (
    value.slice(0, scheme.length).toLowerCase() === scheme.toLowerCase() &&
    value.slice(scheme.length) === ` ${placeholder}`
  )
}

/**
 * The header's value with the credential in the slot. Only for a value that `holdsExactly` accepted; any other is a
 * `TypeError`. A Basic header with two slots is swapped by two calls, each on the result of the one before.
 */
export function swapValue(slot: Slot, headerValue: string, credential: string): string {
  if (slot.kind === 'header') return slot.scheme === undefined ? credential : `${slot.scheme} ${credential}`
  const basic = decodeBasic(headerValue)
  if (basic === undefined) throw new TypeError('the value is not Basic credentials')
  const own = Buffer.from(credential, 'utf8').toString('latin1')
  const user = slot.field === 'user' ? own : basic.user
  const password = slot.field === 'password' ? own : basic.password
  return `Basic ${Buffer.from(`${user}:${password}`, 'latin1').toString('base64')}`
}

/**
 * May the credential be put into the slot? Never empty, never longer than `maxCredentialBytes`, no control character
 * (CR, LF and NUL would split or cut the head). A header slot takes printable ASCII without spaces at its ends; Basic
 * takes any text, but no colon in the user name (RFC 7617 section 2).
 */
export function credentialFits(slot: Slot, value: string): boolean {
  if (value === '' || Buffer.byteLength(value) > maxCredentialBytes) return false
  if (slot.kind === 'header') return /^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(value)
  // A lone surrogate has no UTF-8 form: what is sent would not be what is stored.
  if (/\p{Cc}/u.test(value) || !value.isWellFormed()) return false
  return slot.field === 'password' || !value.includes(':')
}

/** Basic credentials of an `Authorization` value, decoded strictly; `undefined` for anything else or unclean base64. */
export function decodeBasic(value: string): BasicCredentials | undefined {
  const token = /^basic ([A-Za-z0-9+/]+={0,2})$/i.exec(value)?.[1]
  if (token === undefined) return undefined
  const bytes = Buffer.from(token, 'base64')
  if (bytes.toString('base64') !== token) return undefined
  const text = bytes.toString('latin1')
  const colon = text.indexOf(':')
  if (colon < 0) return undefined
  return { user: text.slice(0, colon), password: text.slice(colon + 1) }
}

/** What any decoder, however lenient, could read in a `Basic` value; for finding placeholders, never for sending. */
export function readBasicLeniently(value: string): string | undefined {
  const token = /^\s*basic\s+(.*)$/is.exec(value)?.[1]
  return token === undefined ? undefined : Buffer.from(token, 'base64').toString('latin1')
}
