import { opensEscape } from './escapes.ts'

/**
 * The form of a decoded byte that text is compared in: `+`, `-` and space are one (form encoding, base64url), `_` and `/`
 * another. What folding made equal is compared exactly once a match is found.
 */
export function fold(byte: number): number {
  if (byte === 0x2b || byte === 0x2d) return 0x20
  return byte === 0x5f ? 0x2f : byte
}

/** Bytes that stand for themselves, folded; 0 for those that need care: escapes, line ends, NUL. */
export const folded: Uint8Array = Uint8Array.from({ length: 256 }, (_, byte) => {
  if (byte === 0 || byte === 0x0a || byte === 0x0d || opensEscape(byte)) return 0
  return fold(byte)
})

/** The same for two bytes at once, the first in the low half; 0 if either needs care. */
export const foldedPairs: Uint16Array = Uint16Array.from({ length: 65_536 }, (_, pair) => {
  const low = folded[pair & 0xff] ?? 0
  const high = folded[pair >> 8] ?? 0
  return low === 0 || high === 0 ? 0 : low | (high << 8)
})
