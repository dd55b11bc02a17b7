import type { Shape } from './model.ts'

/** What every placeholder has between its prefix and its random part, so that one can be found in any text. */
export const placeholderMarker = 'octroi'

/** Fewest random characters: 22 of base62 are 130.9 bits. */
export const minRandomChars = 22

const alphabet = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'

// 248 is the largest multiple of 62 in a byte: taking the rest modulo 62 would favour the first characters.
const fair = 248

/** Where the recognisable part of a placeholder stands in a text; `end` is exclusive. */
export interface Found {
  readonly start: number
  readonly end: number
  /** The core: marker and random part, without the prefix. */
  readonly text: string
}

/** Do only characters occur that neither URLs, headers, JSON nor shells change? The empty prefix counts. */
export function isPrefix(text: string): boolean {
  return /^[A-Za-z0-9_-]*$/.test(text)
}

/** How many random bytes `makePlaceholder` wants for a shape: twice what is used, since unfair bytes are skipped. */
export function entropyFor(shape: Shape): number {
  return 2 * shape.length
}

/**
 * A placeholder of the shape: prefix, marker, and base62 characters drawn without bias from `randomBytes`.
 * Throws `TypeError` for a shape with fewer than 128 random bits or too few bytes (`entropyFor` says how many).
 */
export function makePlaceholder(shape: Shape, randomBytes: Uint8Array): string {
  const wanted = shape.length - shape.prefix.length - placeholderMarker.length
  if (wanted < minRandomChars) throw new TypeError('shape has fewer than 128 random bits')
  if (!isPrefix(shape.prefix) || shape.prefix.toLowerCase().includes(placeholderMarker)) {
    throw new TypeError('shape has a prefix that cannot be recognised')
  }
  let random = ''
  for (const byte of randomBytes) {
    if (random.length === wanted) break
    if (byte < fair) random += alphabet.charAt(byte % alphabet.length)
  }
  if (random.length < wanted) throw new TypeError('too few random bytes for this shape')
  return shape.prefix + placeholderMarker + random
}

/** The core of a placeholder: what is left without its prefix. `undefined` for a text that is not one placeholder. */
export function placeholderCore(placeholder: string): string | undefined {
  const start = placeholder.indexOf(placeholderMarker)
  if (start < 0 || !isPrefix(placeholder.slice(0, start))) return undefined
  const core = placeholder.slice(start)
  return /^octroi[0-9A-Za-z]{22,}$/.test(core) ? core : undefined
}

/** `false` means that the text certainly holds no placeholder; cheap enough for every header of every request. */
export function mayHoldPlaceholder(text: string): boolean {
  return text.includes(placeholderMarker)
}

/** Every core in a text, whatever prefix stands before it, issued or not; longest runs, left to right. */
export function findPlaceholders(text: string): Found[] {
  if (!mayHoldPlaceholder(text)) return []
  return Array.from(text.matchAll(/octroi[0-9A-Za-z]{22,}/g), (match) => ({
    start: match.index,
    end: match.index + match[0].length,
    text: match[0],
  }))
}
