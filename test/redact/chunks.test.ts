import { describe, expect, it } from 'vitest'
import { Secret } from '../../src/core/secret.ts'
import { compilePatterns } from '../../src/redact/forms.ts'
import { createRedactor, createScanner } from '../../src/redact/redactor.ts'
import { secretForms } from '../helpers/secret-forms.ts'
import { seeded, type Seeded } from '../helpers/seeded.ts'

const count = Math.ceil(Number(process.env['OCTROI_PROOF_COUNT'] ?? 3_000) / 6)
const seed = Number(process.env['OCTROI_SEED'] ?? Date.now() % 1_000_000_000)

/** Values that share parts, contain one another, hold escapes, lines and public parts. */
const values: readonly (readonly [id: string, value: string, short?: true])[] = [
  ['password', 'correct horse-battery_staple/17'],
  ['url', 'postgres://app:correct horse-battery_staple/17@db.test:5432/main'],
  ['prefix-a', 'shared-prefix-of-two-0123456789-alpha'],
  ['prefix-b', 'shared-prefix-of-two-0123456789-omega'],
  ['escapes', 'C:\\new%41%2fpass&amp;word\\'],
  ['periodic', 'abcabcabcabcabcabcabcabc'],
  ['pem', '-----BEGIN TEST KEY-----\nq8Zt1vY0bXr5Ns2Kd7Lw\n3fHj6pQm9cTgUeRaVo4i\n-----END TEST KEY-----\n'],
  ['jwt', 'eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI0MiJ9.dBjftJeZ4CVPmB92K27uhbUJU1p1r'],
  ['short', 'hunter2', true],
  ['shorter', 'hunter', true],
]

const patterns = compilePatterns(
  values.map(([id, value, short]) => ({ id, value: new Secret(value), short: short === true })),
)

/** Whole values, parts of them, escapes whole and cut, line ends: whatever may make a difference at a border. */
function hostileBody(random: Seeded): string {
  const value = (): string => random.pick(values)[1]
  const part = (text: string): string => {
    const start = random.below(text.length)
    return text.slice(start, start + 1 + random.below(20))
  }
  const pieces = [
    () => value(),
    () => random.pick(secretForms).render(value(), random),
    () => part(value()),
    () => part(random.pick(secretForms).render(value(), random)),
    () => random.pick(['\n', '\r\n', '\n\n', '\r', '\0', '=', '==', ' ', '+', '-', '_', '/']),
    () =>
      random.pick([
        '%',
        '%2',
        '%25',
        '%252',
        '\\',
        '\\\\',
        '\\u',
        '\\u00',
        '\\u005c',
        '&',
        '&#',
        '&#1',
        '&am',
        '&amp;',
      ]),
    () => random.pick(['a', '7', 'Zz', '"}', 'data: ']),
  ]
  let body = ''
  for (let left = 1 + random.below(8); left > 0; left--) body += random.pick(pieces)()
  return body
}

const replacementFor = (id: string): string | undefined =>
  id === 'url' ? undefined : `ph_${id}_0123456789abcdef`

function cut(bytes: Buffer, random: Seeded): Buffer[] {
  const pieces: Buffer[] = []
  const longest = random.pick([1, 2, 5, 40])
  for (let at = 0; at < bytes.length;) {
    const size = 1 + random.below(longest)
    pieces.push(bytes.subarray(at, at + size))
    at += size
  }
  return pieces
}

describe(`bodies in chunks, OCTROI_SEED=${seed}`, () => {
  it('come out the same however they are cut', () => {
    const random = seeded(seed)
    for (let number = 0; number < count; number++) {
      const bytes = Buffer.from(hostileBody(random), 'latin1')
      const one = createRedactor(patterns, replacementFor)
      const whole = Buffer.concat([one.push(bytes), one.flush()]).toString('latin1')
      const other = createRedactor(patterns, replacementFor)
      const pieces = cut(bytes, random)
      const output = pieces.map((piece) => other.push(piece))
      const text = Buffer.concat([...output, other.flush()]).toString('latin1')
      const facts = JSON.stringify({
        seed,
        number,
        body: bytes.toString('latin1'),
        pieces: pieces.map(({ length }) => length),
      })
      expect(text, facts).toBe(whole)
      expect(other.hits, facts).toBe(one.hits)
      for (const [id, value] of values.slice(0, 8))
        expect(whole.includes(value), `${id} in ${facts}`).toBe(false)
    }
  }, 600_000)

  it('are found out by the scanner exactly when the redactor has something to replace, and pass unchanged if not', () => {
    const random = seeded(seed + 1)
    for (let number = 0; number < count; number++) {
      const bytes = Buffer.from(hostileBody(random), 'latin1')
      const redactor = createRedactor(patterns, replacementFor)
      redactor.push(bytes)
      redactor.flush()
      const scanner = createScanner(patterns)
      const output = cut(bytes, random).map((piece) => scanner.push(piece))
      output.push(scanner.flush())
      const facts = JSON.stringify({ seed, number, body: bytes.toString('latin1') })
      expect(output.at(-1) === undefined, facts).toBe(redactor.hits > 0)
      const released = Buffer.concat(output.filter((piece) => piece !== undefined))
      expect(bytes.subarray(0, released.length).equals(released), facts).toBe(true)
      if (redactor.hits === 0) expect(released.length, facts).toBe(bytes.length)
    }
  }, 600_000)
})
