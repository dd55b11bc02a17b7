/** A header or trailer field as it stood on the wire: name in its own case, value trimmed of outer blanks, latin1. */
export type Field = readonly [name: string, value: string]

/** What is wrong with a message, in words for the log; the client hears only `malformed` or `too_large`. */
export interface Problem {
  readonly problem: string
  /** Set when a limit, not the grammar, was broken. */
  readonly tooLarge?: 'target' | 'fields' | undefined
  /** Set when the message is well formed but asks for something that is not spoken here. */
  readonly unsupported?: 'coding' | 'version' | undefined
}

/** Did parsing end in a problem? */
export const isProblem = (value: object): value is Problem => 'problem' in value

const token = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/
// CTLs other than HTAB, CR and LF; CR and LF are judged by `bareBreak`. RFC 9110 section 5.5.
const forbidden = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]/ // eslint-disable-line no-control-regex
const bareBreak = /\r(?!\n)|(?<!\r)\n/

/** Is the text a token of RFC 9110 section 5.6.2, as names and methods are? */
export const isToken = (text: string): boolean => token.test(text)

/** Does a head hold a byte that RFC 9112 section 2.2 forbids: a bare CR or LF, NUL or another control? */
export const hasForbiddenByte = (head: string): boolean => forbidden.test(head) || bareBreak.test(head)

/**
 * Parses field lines. Refused: obs-fold, blank before the colon, an empty or non-token name (RFC 9112 section 5); these
 * are what smuggling is made of, so nothing is repaired.
 */
export function parseFields(lines: readonly string[], from: number, max: number): Field[] | Problem {
  if (lines.length - from > max) return { problem: `more than ${max} fields`, tooLarge: 'fields' }
  const fields: Field[] = []
  for (let i = from; i < lines.length; i++) {
    const line = lines[i] ?? ''
    const colon = line.indexOf(':')
    if (colon <= 0) return { problem: 'field line without a name' }
    const name = line.slice(0, colon)
    if (!token.test(name)) return { problem: 'field name is not a token' }
    fields.push([name, trimBlanks(line, colon + 1)])
  }
  return fields
}

function trimBlanks(line: string, from: number): string {
  let start = from
  let end = line.length
  while (start < end && isBlank(line.charCodeAt(start))) start++
  while (end > start && isBlank(line.charCodeAt(end - 1))) end--
  return line.slice(start, end)
}

const isBlank = (code: number): boolean => code === 0x20 || code === 0x09

/** Values of every field of that name, in order. `name` is lower-case. */
export function valuesOf(fields: readonly Field[], name: string): string[] {
  const values: string[] = []
  for (const [key, value] of fields) {
    if (key.length === name.length && key.toLowerCase() === name) values.push(value)
  }
  return values
}

/** Elements of a comma-separated list over every field of that name, lower-case, empty ones left out. */
export function listOf(fields: readonly Field[], name: string): string[] {
  return valuesOf(fields, name)
    .flatMap((value) => value.split(','))
    .map((element) => element.trim().toLowerCase())
    .filter((element) => element !== '')
}
