import type { Lane } from './lane.ts'
import type { Match } from './match.ts'
import type { Region } from './regions.ts'

/** What stands in for a region, and the stretch of source it stands in for. */
export interface Replacement {
  readonly bytes: Uint8Array
  readonly start: number
  readonly end: number
}

interface Source {
  readonly lane: Lane
  readonly bytes: Uint8Array
  /** Offset up to which the source is already written. */
  readonly floor: number
}

/** base64 of any number of dots, at any offset. */
const dots = 'Li4u'

const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/'

const sextets = new Map<number, number>(
  [...alphabet, '-', '_'].map((character, i) => [character.charCodeAt(0), i < 64 ? i : i - 2]),
)

/** A character of either base64 alphabet (or a space, which a form decoder makes of `+`). */
export const isBase64Byte = (byte: number): boolean => byte === 0x20 || sextets.has(byte)

/**
 * The replacement of a region in the encoding it was found in: `text` for a whole value that has one, else the marker.
 * It is never looked at again, so what it contains does not matter.
 */
export function replacementOf(
  region: Region,
  source: Source,
  texts: { text: string | undefined; marker: string },
): Replacement {
  const { start, end, whole, matches } = region
  const form =
    matches.every(({ needle }) => needle.form === matches[0]?.needle.form) && matches[0]?.needle.form
  const text = texts.text ?? texts.marker
  if (form === 'base64') {
    const exact = whole === undefined ? undefined : wholeBase64(whole, source, { text, marker: texts.marker })
    if (exact !== undefined) return exact
    return { bytes: styled(partialBase64(matches, texts.marker), source, region), start, end }
  }
  if (form === 'hex') {
    const digits = whole === undefined ? partialHex(matches, texts.marker) : hexOf(text)
    const isUpper = matches.some(({ needle }) => needle.exact.some((byte) => byte >= 0x41 && byte <= 0x46))
    return { bytes: styled(isUpper ? digits.toUpperCase() : digits, source, region), start, end }
  }
  return { bytes: styled(text, source, region), start, end }
}

/**
 * base64 of the text in place of the value's, with the bits of its neighbours on both sides kept. Where more follows,
 * the text must leave the rest in step, or the marker is used and filled up. Undefined where a neighbour is missing.
 */
function wholeBase64(
  match: Match,
  source: Source,
  texts: { text: string; marker: string },
): Replacement | undefined {
  const { lane } = source
  const { lead, size } = match.needle
  const left = leftNeighbour(match, source)
  if (left === undefined) return undefined
  const rightBits = (8 * (lead + size)) % 6
  const behind = match.placeEnd + (rightBits === 0 ? 0 : 1)
  const right = rightBits === 0 ? 0 : sextets.get(exactOf(lane, match.placeEnd))
  if (right === undefined) return undefined
  const goesOn = sextets.has(exactOf(lane, behind))
  const bits: number[] = []
  pushBits(bits, left.bits, 2 * lead)
  for (const byte of Buffer.from(goesOn ? inStep(texts, size) : texts.text, 'utf8')) pushBits(bits, byte, 8)
  if (goesOn && rightBits > 0) pushBits(bits, right & ((1 << (6 - rightBits)) - 1), 6 - rightBits)
  while (bits.length % 6 !== 0) bits.push(0)
  const body = sextetText(bits)
  const padding = goesOn
    ? { text: '', places: 0 }
    : paddingOf({ lane, behind, rightBits }, lead + body.length)
  const last = behind + padding.places - 1
  const stretch = { start: left.start, end: lane.sourceEndOf(last) }
  return { bytes: styled(body + padding.text, source, stretch), ...stretch }
}

const exactOf = (lane: Lane, place: number): number => (place < lane.length ? lane.exactAt(place) : -1)

/** The bits that the character before the value holds of what stands before it. */
function leftNeighbour(match: Match, source: Source): { bits: number; start: number } | undefined {
  const { lead } = match.needle
  if (lead === 0) return { bits: 0, start: match.start }
  const { lane, floor } = source
  const place = match.placeStart - 1
  if (place < 0 || lane.hasBreakAt(match.placeStart) || lane.sourceOf(place) < floor) return undefined
  const exact = lane.exactAt(place)
  const sextet = sextets.get(exact)
  // Any other escape before base64 is not of it: `100%25` before `4D…` only looks like one that ends in it.
  if (lane.sizeAt(lane.sourceOf(place)) > 1 && exact !== 0x2b && exact !== 0x2f) return undefined
  return sextet === undefined ? undefined : { bits: sextet >> (6 - 2 * lead), start: lane.sourceOf(place) }
}

/** A text whose length leaves the groups of three behind it in step. */
function inStep(texts: { text: string; marker: string }, size: number): string {
  const isInStep = (text: string): boolean => (Buffer.byteLength(text) - size) % 3 === 0
  if (isInStep(texts.text)) return texts.text
  return [texts.marker, `${texts.marker}.`, `${texts.marker}..`].find(isInStep) ?? texts.marker
}

function pushBits(bits: number[], value: number, count: number): void {
  for (let bit = count - 1; bit >= 0; bit--) bits.push((value >> bit) & 1)
}

function sextetText(bits: readonly number[]): string {
  let text = ''
  for (let at = 0; at < bits.length; at += 6) {
    let value = 0
    for (let i = 0; i < 6; i++) value = value * 2 + (bits[at + i] ?? 0)
    text += alphabet.charAt(value)
  }
  return text
}

/** The `=` to write and the places of those it replaces; none are written where the text did without. */
function paddingOf(
  end: { lane: Lane; behind: number; rightBits: number },
  sextetCount: number,
): { text: string; places: number } {
  const { lane, behind, rightBits } = end
  let places = 0
  while (places < 2 && exactOf(lane, behind + places) === 0x3d) places++
  // A value that needed no padding does not show whether the text uses any.
  const isPadded = places > 0 || rightBits === 0
  return { text: isPadded ? '='.repeat((4 - (sextetCount % 4)) % 4) : '', places }
}

/** Dots up to a whole group, the marker, dots up to where the rest goes on. */
function partialBase64(matches: readonly Match[], marker: string): string {
  const first = matches[0]
  const last = matches.reduce((a, b) => (b.end > a.end ? b : a), matches[0] ?? neverEmpty())
  const phase = (match: Match, offset: number): number =>
    (Math.ceil((8 * match.needle.lead) / 6) + offset) % 4
  const startPhase = first === undefined ? 0 : phase(first, first.from)
  const filled = marker.padEnd(Math.ceil(marker.length / 3) * 3, '.')
  return (
    (startPhase === 0 ? '' : dots.slice(startPhase)) +
    Buffer.from(filled).toString('base64') +
    dots.slice(0, phase(last, last.to))
  )
}

function neverEmpty(): never {
  throw new TypeError('a region has at least one match')
}

const hexOf = (text: string): string => Buffer.from(text, 'utf8').toString('hex')

/** Keeps the digits around it in pairs. */
function partialHex(matches: readonly Match[], marker: string): string {
  const isOddStart = (matches[0]?.from ?? 0) % 2 === 1
  const last = matches.reduce((a, b) => (b.end > a.end ? b : a), matches[0] ?? neverEmpty())
  return (isOddStart ? 'e' : '') + hexOf(marker) + (last.to % 2 === 1 ? '2' : '')
}

/** Escapes a text the way the stretch of source it replaces is escaped. */
function styled(text: string, source: Source, stretch: { start: number; end: number }): Uint8Array {
  const { buffer, byteOffset } = source.bytes
  const raw = Buffer.from(buffer, byteOffset + stretch.start, stretch.end - stretch.start).toString('latin1')
  // UTF-16 in either byte order: the zero byte before or behind the stretch stays where it is.
  const isWide = raw.includes('\0')
  const escaped = escapedLike(raw, text)
  return Buffer.from(isWide ? [...escaped].join('\0') : escaped, 'utf8')
}

function escapedLike(raw: string, text: string): string {
  const opener = /[%\\&]/.exec(raw)?.[0]
  if (opener === '%') {
    const once = encodeURIComponent(text)
    return /%25[\da-f]{2}/i.test(raw) ? encodeURIComponent(once) : once
  }
  if (opener === '\\') {
    const once = jsonEscaped(text)
    return raw.includes('\\\\') ? jsonEscaped(once) : once
  }
  if (opener === '&') return text.replaceAll(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`)
  return text
}

const jsonEscaped = (text: string): string => JSON.stringify(text).slice(1, -1)
