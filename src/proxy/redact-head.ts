import { Refusal } from '../core/errors.ts'
import type { Field } from '../http1/fields.ts'
import type { Patterns } from '../redact/forms.ts'
import type { PartSeen } from '../redact/port.ts'
import { createRedactor, redactWhole } from '../redact/redactor.ts'

/** What is looked for in a head, and what a client sees instead. */
export interface HeadRedaction {
  readonly patterns: Patterns
  readonly partSeen?: PartSeen
  replacement(entryId: string): string | undefined
}

/** A head whose values are taken out. */
export interface CleanHead {
  readonly phrase: string
  readonly fields: Field[]
  readonly hits: number
}

/**
 * Takes the tenant's values out of a reason phrase and fields. The head is read once as a whole; a value that is spread
 * over two lines cannot be replaced in either, so such a head is refused.
 */
export function redactHead(phrase: string, fields: readonly Field[], by: HeadRedaction): CleanHead {
  const lines = [phrase, ...fields.map(([name, value]) => `${name}: ${value}`)]
  const whole = redactWhole(createRedactor(by.patterns, by.replacement, by.partSeen), lines.join('\n'))
  if (whole.hits === 0) return { phrase, fields: [...fields], hits: 0 }
  const clean = whole.text.split('\n')
  if (clean.length !== lines.length)
    throw new Refusal('credential_in_response', { detail: 'spread over two fields' })
  return {
    phrase: clean[0] ?? '',
    fields: fields.map((field, index) => {
      const line = clean[index + 1] ?? ''
      return line === lines[index + 1] ? field : readLine(line, field)
    }),
    hits: whole.hits,
  }
}

/** A changed line as a field again; a name that held a value keeps its place but not its spelling. */
function readLine(line: string, [name]: Field): Field {
  if (line.startsWith(`${name}: `)) return [name, line.slice(name.length + 2)]
  const colon = line.indexOf(': ')
  if (colon <= 0) throw new Refusal('credential_in_response', { detail: 'spread over a name and its value' })
  return [line.slice(0, colon).replaceAll(/[^\w!#$%&'*+.^`|~-]/g, '-'), line.slice(colon + 2)]
}
