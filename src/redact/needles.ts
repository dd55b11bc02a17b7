import { coreMask } from './core-mask.ts'
import { fold, folded } from './folding.ts'
import { Lane } from './lane.ts'

/** How the value stands in the text: itself, in base64, in hexadecimal. */
export type Form = 'text' | 'base64' | 'hex'

/** Shortest run of a value that counts as an echo of it, in characters of the text. */
const shortestRun = 12

/** The same for hexadecimal: ten bytes, so that twelve are found even where an escape swallows the first two. */
const shortestHexRun = 20

/** Shortest base64 and hexadecimal of a short value that is looked for; less stands in ordinary text by chance. */
const shortestWholeBase64 = 5
const shortestWholeHex = 8

/** One byte string to look for, and what a match of it means. */
export interface Needle {
  /** Ids of the entries that have the value. */
  readonly ids: readonly string[]
  readonly form: Form
  /** Decoded bytes as they stand in the text, and the same folded. */
  readonly exact: Uint8Array
  readonly text: Uint8Array
  /** 1 for each character of the core. */
  readonly core: Uint8Array
  /** Characters of core in a row that make a match; the whole length where only the whole matches. */
  readonly minRun: number
  readonly isWholeOnly: boolean
  /** base64: bytes before the value in its first group of three; else 0. */
  readonly lead: number
  /** Bytes of the value. */
  readonly size: number
}

interface Value {
  readonly ids: readonly string[]
  readonly isShort: boolean
}

/** All byte strings by which a value is recognised once escapes are read and line ends left out. */
export function needlesOf(text: string, value: Value): Needle[] {
  const trimmed = text.replaceAll(/^[\r\n]+|[\r\n]+$/g, '')
  if (trimmed === '') return []
  const needles = textVariants(trimmed).map((variant) => textNeedle(variant, value))
  for (const bytes of byteVariants(trimmed)) {
    const mask = byteMask(bytes)
    for (const lead of [0, 1, 2]) needles.push(base64Needle({ bytes, lead, mask }, value))
    for (const isUpper of [false, true]) needles.push(hexNeedle({ bytes, isUpper, mask }, value))
  }
  return needles.filter(({ form, isWholeOnly, text: { length } }) => {
    if (!isWholeOnly) return true
    return length >= (form === 'hex' ? shortestWholeHex : form === 'base64' ? shortestWholeBase64 : 1)
  })
}

/** The value itself, on one line with spaces if it has lines, and in both cases if case says nothing in it. */
function textVariants(text: string): Uint8Array[] {
  const variants = new Set([text, text.replaceAll(/\r\n|\r|\n/g, ' ')])
  if (isCaseBlind(text)) variants.add(text.toLowerCase()).add(text.toUpperCase())
  const bytes = [...variants].map((variant) => Buffer.from(variant, 'utf8'))
  // A header field carries U+0080 to U+00FF as one byte each.
  if (/[\u0080-\u00ff]/.test(text) && !/[\u0100-\uffff]/.test(text)) bytes.push(Buffer.from(text, 'latin1'))
  return bytes
}

/** Hexadecimal, UUID and base32 values, which many programs print in the other case. */
const isCaseBlind = (text: string): boolean =>
  /^[\da-f-]+$/.test(text) ||
  /^[\dA-F-]+$/.test(text) ||
  /^[A-Z2-7]+=*$/.test(text) ||
  /^[a-z2-7]+=*$/.test(text)

function byteVariants(text: string): Uint8Array[] {
  const variants = new Set([text])
  if (/[\r\n]/.test(text)) {
    const plain = text.replaceAll(/\r\n|\r/g, '\n')
    variants.add(plain).add(plain.replaceAll('\n', '\r\n'))
  }
  return [...variants].map((variant) => Buffer.from(variant, 'utf8'))
}

/** The core mask of a value's bytes; a character of several bytes has one flag for each. */
function byteMask(bytes: Uint8Array): Uint8Array {
  const text = Buffer.from(bytes).toString('utf8')
  const mask = coreMask(text)
  if (mask.length === bytes.length) return mask
  const spread: number[] = []
  let at = 0
  for (const character of text) {
    for (let i = 0; i < Buffer.byteLength(character); i++) spread.push(mask[at] ?? 1)
    at += character.length
  }
  return Uint8Array.from({ length: bytes.length }, (_, i) => spread[i] ?? 1)
}

function textNeedle(bytes: Uint8Array, value: Value): Needle {
  const mask = byteMask(bytes)
  if (bytes.every((byte) => folded[byte] !== 0)) {
    return needle(value, { form: 'text', exact: bytes, core: mask, lead: 0, size: bytes.length })
  }
  const lane = new Lane()
  lane.fill(bytes, true)
  const places = Array.from({ length: lane.length }, (_, place) => place)
  return needle(value, {
    form: 'text',
    exact: Uint8Array.from(places, (place) => lane.exactAt(place)),
    core: Uint8Array.from(places, (place) => mask[lane.sourceOf(place)] ?? 1),
    lead: 0,
    size: bytes.length,
  })
}

/** The characters that only the value decides; those at the ends also carry bits of its neighbours. */
function base64Needle(input: { bytes: Uint8Array; lead: number; mask: Uint8Array }, value: Value): Needle {
  const { bytes, lead, mask } = input
  const padded = Buffer.concat([Buffer.alloc(lead), bytes, Buffer.alloc(3)])
  const first = Math.ceil((8 * lead) / 6)
  const last = Math.floor((8 * (lead + bytes.length)) / 6)
  const core = new Uint8Array(last - first)
  for (let i = 0; i < core.length; i++) {
    const bit = 6 * (first + i) - 8 * lead
    core[i] = (mask[bit >> 3] ?? 1) & (mask[(bit + 5) >> 3] ?? 1)
  }
  const exact = Buffer.from(padded.toString('base64').slice(first, last), 'latin1')
  return needle(value, { form: 'base64', exact, core, lead, size: bytes.length })
}

function hexNeedle(input: { bytes: Uint8Array; isUpper: boolean; mask: Uint8Array }, value: Value): Needle {
  const { bytes, isUpper, mask } = input
  const digits = Buffer.from(bytes).toString('hex')
  const exact = Buffer.from(isUpper ? digits.toUpperCase() : digits, 'latin1')
  const core = new Uint8Array(exact.length)
  for (let i = 0; i < core.length; i++) core[i] = mask[i >> 1] ?? 1
  return needle(value, { form: 'hex', exact, core, lead: 0, size: bytes.length })
}

function needle(
  value: Value,
  parts: { form: Form; exact: Uint8Array; core: Uint8Array; lead: number; size: number },
): Needle {
  const least = parts.form === 'hex' ? shortestHexRun : shortestRun
  const text = parts.exact.map(fold)
  const isWholeOnly = value.isShort || longestRun(parts.core, 0, text.length) < least || repeatsItself(text)
  return {
    ...parts,
    ids: value.ids,
    text,
    minRun: isWholeOnly ? parts.exact.length : least,
    isWholeOnly,
  }
}

/**
 * Does it consist of a few characters over and over? Any part of it would then match at many places at once, and none
 * tells anything.
 */
function repeatsItself(text: Uint8Array): boolean {
  const grams = new Set<string>()
  const characters = Buffer.from(text).toString('latin1')
  for (let at = 0; at + 4 <= characters.length; at++) grams.add(characters.slice(at, at + 4))
  return grams.size < text.length / 3
}

/** Longest row of core characters between two places of a mask. */
export function longestRun(core: Uint8Array, from: number, to: number): number {
  let longest = 0
  let run = 0
  for (let i = from; i < to; i++) {
    run = core[i] === 1 ? run + 1 : 0
    if (run > longest) longest = run
  }
  return longest
}

/** Is this part of a needle enough to count as a match? */
export function isEchoed(needle: Needle, from: number, to: number): boolean {
  if (to - from < needle.minRun) return false
  return needle.isWholeOnly || longestRun(needle.core, from, to) >= needle.minRun
}

/** Equal characters but for the two alphabets of base64 and the `+` that stands for a space in a form. */
export function isSame(needle: Needle, at: number, byte: number): boolean {
  const wanted = needle.exact[at]
  if (wanted === byte) return true
  if (needle.form === 'text') return wanted === 0x20 && byte === 0x2b
  // A `+` that a form decoder took for a space is base64 of the same value.
  return needle.form === 'base64' && wanted !== undefined && fold(wanted) === fold(byte)
}
