/** A compiled path pattern: a literal beginning, then a program for the rest. */
export interface PathPattern {
  readonly prefix: string
  /** Character codes, or one of the negative codes below. */
  readonly program: readonly number[]
}

/** Whether text is a path pattern, and if not, what is wrong and which spelling works. */
export type PathPatternResult =
  { readonly ok: true } | { readonly ok: false; readonly problem: string; readonly suggestion?: string }

/** Any run of characters without `/`, of any length. */
const segmentRun = -1
/** Any run of characters, of any length. */
const deepRun = -2
/** One character other than `/`. */
const segmentChar = -3
/** Go on with the next instruction or with the third from here. */
const optionalTwo = -4

const slash = 0x2f
/** Stands for a literal `*` in a folded pattern, where only latin1 characters occur otherwise. */
const literalStar = '\u0100'
/** How often an escape may be encoded again before a path counts as hostile. */
const maxDepth = 8

/** Is this text a path pattern? One that no unambiguous path could match is a problem, not a dead rule. */
export function parsePathPattern(text: string): PathPatternResult {
  if (!text.startsWith('/')) return { ok: false, problem: 'does not begin with /', suggestion: `/${text}` }
  const cut = text.search(/[?#]/)
  if (cut !== -1) {
    return {
      ok: false,
      problem: 'has a query or fragment; only the path is matched',
      suggestion: text.slice(0, cut),
    }
  }
  if (text.includes('***')) {
    return { ok: false, problem: 'has more than two * in a row', suggestion: text.replace(/\*{3,}/g, '**') }
  }
  if (text.length > 1_024) return { ok: false, problem: 'is longer than 1024 characters' }
  if (/[^\x21-\x7e]/.test(text)) {
    return { ok: false, problem: 'has a space, control or non-ASCII character', suggestion: escapeText(text) }
  }
  if (isAmbiguousPath(text)) {
    return {
      ok: false,
      problem: 'has a dot segment, backslash, %2F, %5C, %00 or bad escape, which no allowed path has',
    }
  }
  return { ok: true }
}

/**
 * Compiles a pattern for allow rules and accesses; a `*` that is a whole segment stands for at least one
 * character.
 */
export function compilePath(text: string): PathPattern {
  return compile(decodeUnreserved(text), [segmentChar, segmentRun])
}

/**
 * Compiles a pattern of a deny rule for `foldedPaths`: case-folded and decoded, and `*` may stand for
 * nothing.
 */
export function compileFoldedPath(text: string): PathPattern {
  const pieces = text.split(/(\*+)/)
  const folded = pieces.map((piece) => (piece.startsWith('*') ? piece : foldLiteral(piece)))
  return compile(folded.join(''), [segmentRun])
}

/** Does the whole path match? At most path length times pattern length steps; nothing backtracks. */
export function matchesPath(pattern: PathPattern, path: string): boolean {
  const { prefix, program } = pattern
  if (!path.startsWith(prefix)) return false
  const at = prefix.length
  if (program.length === 0) return path.length === at
  if (program.length === 3 && program[0] === optionalTwo) {
    return path.length === at || path.charCodeAt(at) === slash
  }
  return simulate(program, path, at)
}

/**
 * RFC 3986 section 2.3: an escape of an unreserved character means the character; other escapes compare in
 * upper case.
 */
export function decodeUnreserved(text: string): string {
  if (!text.includes('%')) return text
  return text.replace(/%[0-9a-f]{2}/gi, (escape) => {
    const char = String.fromCharCode(Number.parseInt(escape.slice(1), 16))
    return /[A-Za-z0-9._~-]/.test(char) ? char : escape.toUpperCase()
  })
}

/**
 * What lenient servers may make of a raw path, for deny rules: decoded and case-folded, with and without `;`
 * parameters, with and without `//` merged.
 */
export function foldedPaths(raw: string): readonly string[] {
  const decoded = decodeFully(raw).toLowerCase()
  if (!decoded.includes(';') && !decoded.includes('//')) return [decoded]
  const bare = decoded.replace(/;[^/]*/g, '')
  return [decoded, bare].flatMap((form) => [form, form.replace(/\/{2,}/g, '/')])
}

/**
 * Could two servers read this raw path differently? True for a dot segment, `%2F`, `%5C`, `%00`, a backslash
 * or a bad escape, plain or encoded again any number of times.
 */
export function isAmbiguousPath(raw: string): boolean {
  let path = raw
  for (let depth = 0; depth < maxDepth; depth++) {
    if (path.includes('\\') || path.includes('\0') || isDotted(path)) return true
    if (!path.includes('%')) return false
    // 0xC0, 0xC1 and 0xF5 up never occur in UTF-8: %C0%AF is an overlong slash.
    if (/%(?![0-9a-f]{2})|%(?:2f|5c|00|c0|c1|f[5-9a-f])/i.test(path)) return true
    if (!path.includes('%25')) return false
    path = path.replaceAll('%25', '%')
  }
  return true
}

/**
 * A `.` or `..` segment, with or without `;` parameters, which some servers cut off before they resolve dots.
 */
function isDotted(path: string): boolean {
  return (path.includes('.') || path.includes('%')) && /\/(?:\.|%2e){1,2}(?:[/;]|%3b|$)/i.test(path)
}

function compile(text: string, wholeSegmentStar: readonly number[]): PathPattern {
  const star = text.indexOf('*')
  if (star === -1) return { prefix: literal(text), program: [] }
  // A `**` takes the `/` before it along, so that `/a/**` can match `/a`.
  const start = text.charAt(star + 1) === '*' && text.charAt(star - 1) === '/' ? star - 1 : star
  const program: number[] = []
  let at = start
  while (at < text.length) {
    const [length, instructions] = instructionsAt(text, at)
    program.push(...(instructions ?? wholeSegmentStar))
    at += length
  }
  return { prefix: literal(text.slice(0, start)), program }
}

/**
 * How many characters the pattern's next element has and what it compiles to; `undefined` for a whole-segment
 * `*`.
 */
function instructionsAt(text: string, at: number): readonly [number, readonly number[] | undefined] {
  if (text.startsWith('/**/', at)) return [4, [slash, optionalTwo, deepRun, slash]]
  if (text.startsWith('/**', at) && at + 3 === text.length) return [3, [optionalTwo, slash, deepRun]]
  if (text.startsWith('**', at)) return [2, [deepRun]]
  if (text.charAt(at) !== '*') return [1, [literal(text.charAt(at)).charCodeAt(0)]]
  const isWhole = text.charAt(at - 1) === '/' && (at + 1 === text.length || text.charAt(at + 1) === '/')
  return [1, isWhole ? undefined : [segmentRun]]
}

const literal = (text: string): string => text.replaceAll(literalStar, '*')

/** Runs every way through the program at once: the set of places reached after each character of the path. */
function simulate(program: readonly number[], path: string, from: number): boolean {
  const lastSeen = new Int32Array(program.length + 1).fill(-1)
  let live: number[] = []
  let next: number[] = []
  /** Adds a place and those reachable from it without reading a character, once per character. */
  const enter = (place: number, read: number): void => {
    if (lastSeen[place] === read) return
    lastSeen[place] = read
    next.push(place)
    const instruction = program[place]
    if (instruction === segmentRun || instruction === deepRun) enter(place + 1, read)
    if (instruction !== optionalTwo) return
    enter(place + 1, read)
    enter(place + 3, read)
  }
  enter(0, from)
  for (let at = from; at < path.length && next.length > 0; at++) {
    const spent = live
    live = next
    next = spent
    next.length = 0
    for (const place of live) {
      const to = placeAfter(place, program[place], path.charCodeAt(at))
      if (to !== undefined) enter(to, at + 1)
    }
  }
  return next.includes(program.length)
}

/** Where an instruction leads when it reads this character; `undefined` if it does not take it. */
function placeAfter(place: number, instruction: number | undefined, code: number): number | undefined {
  if (instruction === deepRun) return place
  if (instruction === segmentRun) return code === slash ? undefined : place
  if (instruction === segmentChar) return code === slash ? undefined : place + 1
  return instruction === code ? place + 1 : undefined
}

function foldLiteral(text: string): string {
  return decodeFully(text).toLowerCase().replaceAll('*', literalStar)
}

/** Decodes until nothing changes. Bytes become latin1 characters, on both sides of the comparison. */
function decodeFully(text: string): string {
  let path = text
  for (let depth = 0; depth < maxDepth && path.includes('%'); depth++) {
    path = path.replace(/%([0-9a-f]{2})/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)))
  }
  return path
}

function escapeText(text: string): string {
  return Array.from(text.toWellFormed(), (char) =>
    /[\x21-\x7e]/.test(char) ? char : encodeURIComponent(char),
  ).join('')
}
