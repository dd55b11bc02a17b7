/** Result of a read that needs bytes which have not come yet. */
export const incomplete = -1

/** Nothing is left to read; its size is 0. */
const past = 0x1fffff

const codeMask = 0x1fffff
const sizeShift = 21

/** A decoded byte of 0x80 or more, which is part of UTF-8, and not a code point that becomes UTF-8. */
const rawByte = 0x110000

/** Longest entity read, from `&` to `;`: seven digits with two leading zeros fit. */
const longestEntity = 12

/** Longest escape read, in source bytes; nesting could otherwise make one of any size. */
const longestEscape = 512

/** How often an escape may be escaped again (JSON in JSON, percent in percent). */
export const deepest = 3

const cacheRow = 32
const cacheSize = cacheRow * (deepest + 1)

const percentSign = 0x25
const backslash = 0x5c
const ampersand = 0x26

const simpleEscapes = new Map<number, number>(
  Object.entries({ n: 10, r: 13, t: 9, b: 8, f: 12, '"': 34, "'": 39, '/': 47, '\\': 92 }).map(
    ([name, code]) => [name.charCodeAt(0), code],
  ),
)

const entities = new Map<string, number>(
  Object.entries({
    amp: '&',
    lt: '<',
    gt: '>',
    quot: '"',
    apos: "'",
    sol: '/',
    bsol: '\\',
    plus: '+',
    equals: '=',
    lowbar: '_',
    hyphen: '-',
    period: '.',
    colon: ':',
    semi: ';',
    comma: ',',
    commat: '@',
    dollar: '$',
    percnt: '%',
    num: '#',
    excl: '!',
    quest: '?',
    ast: '*',
    lpar: '(',
    rpar: ')',
    nbsp: ' ',
  }).map(([name, character]) => [name, character.charCodeAt(0)]),
)

/** Size in source bytes of what `EscapeReader.read` returned. */
export const sizeOf = (atom: number): number => atom >>> sizeShift

/** Code point of what was read, or `rawByte` + byte; see `bytesOf`. */
export const codeOf = (atom: number): number => atom & codeMask

const pack = (size: number, code: number): number => (size << sizeShift) | code

/** UTF-8 bytes of a decoded code. */
export function bytesOf(code: number): readonly number[] {
  if (code < 0x80) return [code]
  if (code >= rawByte) return [code - rawByte]
  if (code < 0x800) return [0xc0 | (code >> 6), 0x80 | (code & 63)]
  if (code < 0x10000) return [0xe0 | (code >> 12), 0x80 | ((code >> 6) & 63), 0x80 | (code & 63)]
  return [0xf0 | (code >> 18), 0x80 | ((code >> 12) & 63), 0x80 | ((code >> 6) & 63), 0x80 | (code & 63)]
}

/** Value of a hexadecimal digit, -1 for anything else. */
export function hexValue(code: number): number {
  if (code >= 0x30 && code <= 0x39) return code - 0x30
  const lower = code | 0x20
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : -1
}

/** Does this byte begin an escape of any kind? */
export const opensEscape = (byte: number): boolean =>
  byte === percentSign || byte === backslash || byte === ampersand

/**
 * Reads one character at a place of the source, whatever it is wrapped in: percent, JSON and HTML escapes, each up to
 * `deepest` times over and in any mixture. A reader of level n takes its characters from one of level n - 1.
 */
export class EscapeReader {
  #source: Uint8Array = new Uint8Array(0)
  #end = 0
  #isFinal = true
  /** Last reads by place and level, since each place is read by its neighbours on every level too. */
  readonly #cachedAt = new Int32Array(cacheSize)
  readonly #cached = new Int32Array(cacheSize)
  #isCacheUsed = true

  /** `isFinal`: nothing follows `source`, so an escape cut off at the end is plain text. */
  use(source: Uint8Array, isFinal: boolean): void {
    this.#source = source
    this.#end = source.length
    this.#isFinal = isFinal
    if (this.#isCacheUsed) this.#cachedAt.fill(-1)
    this.#isCacheUsed = false
  }

  /** The character at `at` as size and code, or `incomplete`. */
  read(at: number, level = deepest): number {
    if (at >= this.#end) return this.#isFinal ? past : incomplete
    const byte = this.#source[at] ?? 0
    if (!opensEscape(byte)) return pack(1, byte < 0x80 ? byte : rawByte + byte)
    if (level === 0) return pack(1, byte)
    const slot = level * cacheRow + (at & (cacheRow - 1))
    if (this.#cachedAt[slot] === at) return this.#cached[slot] ?? 0
    const atom = this.#escaped(at, level - 1)
    this.#isCacheUsed = true
    this.#cachedAt[slot] = at
    this.#cached[slot] = atom
    return atom
  }

  #escaped(at: number, level: number): number {
    const lower = this.read(at, level)
    if (lower === incomplete) return incomplete
    const code = codeOf(lower)
    if (code === percentSign) return this.#percent(at, lower, level)
    if (code === backslash) return this.#backslash(at, lower, level)
    // An entity inside an entity (`&amp;#115;`) is read too, since its first character came from the level below.
    return code === ampersand ? this.#entity(at, lower, level) : lower
  }

  #percent(at: number, lower: number, level: number): number {
    const value = this.#hex(at + sizeOf(lower), 2, level)
    if (value < 0) return value === incomplete ? incomplete : lower
    const code = codeOf(value)
    return pack(sizeOf(lower) + sizeOf(value), code < 0x80 ? code : rawByte + code)
  }

  #backslash(at: number, lower: number, level: number): number {
    const next = at + sizeOf(lower)
    const letter = this.read(next, level)
    if (letter === incomplete) return incomplete
    const size = sizeOf(lower) + sizeOf(letter)
    const simple = simpleEscapes.get(codeOf(letter))
    if (simple !== undefined) return pack(size, simple)
    const isUnicode = codeOf(letter) === 0x75
    if (!isUnicode && codeOf(letter) !== 0x78) return lower
    const value = this.#hex(at + size, isUnicode ? 4 : 2, level)
    if (value < 0) return value === incomplete ? incomplete : lower
    const whole = size + sizeOf(value)
    const code = codeOf(value)
    if (code < 0xd800 || code > 0xdbff) return pack(whole, code)
    return this.#surrogate({ at, size: whole, high: code }, level)
  }

  /** The second half of a character outside the basic plane; a lone first half stays as it is. */
  #surrogate(first: { at: number; size: number; high: number }, level: number): number {
    const at = first.at + first.size
    const alone = pack(first.size, first.high)
    const slash = this.read(at, level)
    if (slash === incomplete) return incomplete
    if (codeOf(slash) !== backslash) return alone
    const letter = this.read(at + sizeOf(slash), level)
    if (letter === incomplete) return incomplete
    if (codeOf(letter) !== 0x75) return alone
    const size = sizeOf(slash) + sizeOf(letter)
    const value = this.#hex(at + size, 4, level)
    if (value === incomplete) return incomplete
    const low = value < 0 ? 0 : codeOf(value)
    if (low < 0xdc00 || low > 0xdfff) return alone
    const code = 0x10000 + ((first.high - 0xd800) << 10) + (low - 0xdc00)
    return pack(first.size + size + sizeOf(value), code)
  }

  /** A number of hexadecimal digits as size and value, `incomplete`, or -2 where there is another character. */
  #hex(at: number, digits: number, level: number): number {
    let value = 0
    let size = 0
    for (let i = 0; i < digits; i++) {
      const digit = this.read(at + size, level)
      if (digit === incomplete) return incomplete
      const nibble = hexValue(codeOf(digit))
      size += sizeOf(digit)
      if (nibble < 0 || size > longestEscape) return -2
      value = value * 16 + nibble
    }
    return pack(size, value)
  }

  #entity(at: number, lower: number, level: number): number {
    let size = sizeOf(lower)
    const first = this.read(at + size, level)
    if (first === incomplete) return incomplete
    if (codeOf(first) !== 0x23 && !isLetter(codeOf(first))) return lower
    let text = ''
    for (let atom = first; text.length < longestEntity && size <= longestEscape;) {
      size += sizeOf(atom)
      const code = codeOf(atom)
      if (code === 0x3b) {
        const value = entityCode(text)
        return value === undefined ? lower : pack(size, value)
      }
      if (text !== '' && !isLetter(code) && hexValue(code) < 0) return lower
      text += String.fromCharCode(code)
      atom = this.read(at + size, level)
      if (atom === incomplete) return incomplete
    }
    return lower
  }
}

const isLetter = (code: number): boolean => (code | 0x20) >= 0x61 && (code | 0x20) <= 0x7a

/** What a byte after a backslash means if it is a plain character; 0 for `u`, `x`, openers of escapes, and others. */
const plainEscapes: Uint8Array = Uint8Array.from({ length: 256 }, (_, byte) => {
  const code = simpleEscapes.get(byte) ?? 0
  return opensEscape(code) ? 0 : code
})

/**
 * The most frequent escapes read without ado: one level deep, and no opener of an escape again; openers that open
 * nothing stand for themselves. 0 for all others, which `EscapeReader.read` reads.
 */
export function readPlain(source: Uint8Array, at: number): number {
  const byte = source[at] ?? 0
  const next = source[at + 1] ?? percentSign
  if (opensEscape(next)) return 0
  if (byte === percentSign) return plainPercent(source, at)
  if (byte === ampersand) return next === 0x23 || isLetter(next) ? 0 : pack(1, ampersand)
  const code = plainEscapes[next] ?? 0
  if (code !== 0) return pack(2, code)
  if (next === 0x75) return plainUnicode(source, at)
  return next === 0x78 || simpleEscapes.has(next) ? 0 : pack(1, backslash)
}

function plainPercent(source: Uint8Array, at: number): number {
  const high = hexValue(source[at + 1] ?? 0)
  if (high < 0) return pack(1, percentSign)
  const last = source[at + 2] ?? percentSign
  const low = hexValue(last)
  if (low < 0) return opensEscape(last) ? 0 : pack(1, percentSign)
  const code = high * 16 + low
  return code >= 0x80 || opensEscape(code) ? 0 : pack(3, code)
}

function plainUnicode(source: Uint8Array, at: number): number {
  let code = 0
  for (let i = 2; i < 6; i++) {
    const nibble = hexValue(source[at + i] ?? 0)
    if (nibble < 0) return 0
    code = code * 16 + nibble
  }
  const isSurrogate = code >= 0xd800 && code <= 0xdfff
  return isSurrogate || opensEscape(code) ? 0 : pack(6, code)
}

function entityCode(text: string): number | undefined {
  if (!text.startsWith('#')) return entities.get(text)
  const isHex = text.startsWith('#x') || text.startsWith('#X')
  const digits = text.slice(isHex ? 2 : 1)
  if (!(isHex ? /^[\da-fA-F]+$/ : /^\d+$/).test(digits)) return undefined
  const code = Number.parseInt(digits, isHex ? 16 : 10)
  return code > 0 && code < rawByte ? code : undefined
}
