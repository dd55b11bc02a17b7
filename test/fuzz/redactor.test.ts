import { Secret } from '../../src/core/secret.ts'
import { compilePatterns, type Patterns } from '../../src/redact/forms.ts'
import { containsSecret, createRedactor, createScanner } from '../../src/redact/redactor.ts'
import { findLeaks } from '../helpers/leak-scanner.ts'
import { secretForms } from '../helpers/secret-forms.ts'
import { seeded, type Seeded } from '../helpers/seeded.ts'
import { fuzz, holds, inPieces, same } from './fuzz.ts'

const letters = [...'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789']
const specials = [...letters, ...'+/=-_ &%"\\<>']
const made = seeded(20_260_101)
const text = (length: number, from: readonly string[]): string =>
  Array.from({ length }, () => made.pick(from)).join('')

/** Values of different kinds; the same in each run, so that an input is all it takes to see a failure again. */
const cases: readonly { readonly value: string; readonly core: string; readonly patterns: Patterns }[] = [
  `ghp_${text(36, letters)}`,
  `q${text(22, specials)}7`,
  made.bytes(20).toString('hex'),
  text(90, [...letters, '-', '_']),
  text(13, letters),
].map((value) => ({
  value,
  // What tells the kind of a key is public.
  core: value.replace(/^ghp_/, ''),
  patterns: compilePatterns([{ id: 'one', value: new Secret(value), short: false }]),
}))

const guaranteed = secretForms.filter(({ isGuaranteed }) => isGuaranteed)
const placeholder = 'octroiZm9vYmFyMTIzNDU2Nzg5MDEyMw'

/** `{{name of a form}}` becomes the value in that form; so do `{{1}}` and the like. */
function filled(bytes: Buffer, value: string, random: Seeded): { bytes: Buffer; count: number } {
  let count = 0
  const whole = bytes.toString('latin1').replace(/\{\{([^{}]*)\}\}/g, (kept, name: string) => {
    const form = guaranteed.find((each) => each.name === name) ?? guaranteed[Number(name || NaN)]
    if (form === undefined) return kept
    count++
    return form.render(value, random)
  })
  return { bytes: Buffer.from(whole, 'latin1'), count }
}

/** Bodies around a value in any guaranteed form; and, one time in three, with the form itself damaged. */
fuzz({
  name: 'redactor',
  inCi: 500,
  full: 100_000,
  maxBytes: 500,
  dictionary: [
    ...guaranteed.map(({ name }) => `{{${name}}}`),
    ...[
      '%',
      '%2',
      '%25',
      '\\',
      '\\\\',
      '\\u',
      '\\u00',
      '"',
      '=',
      '==',
      '%3D',
      '&',
      '&#x',
      '\r\n',
      '\n',
      '+',
      '/',
      '-',
      '_',
      'A',
      '\0',
    ],
    ...['Basic ', 'Bearer ', 'data: ', '{"a":"', '"}', '<', 'QUJD', '4142'],
  ],
  check(input, random) {
    const { value, core, patterns } = random.pick(cases)
    const { bytes, count } = filled(input, value, random)
    const isDamaged = count > 0 && random.below(3) === 0
    const body = isDamaged ? damaged(bytes, random) : bytes
    const redactor = createRedactor(patterns, () => placeholder)
    const whole = Buffer.concat([redactor.push(body), redactor.flush()])
    const again = createRedactor(patterns, () => placeholder)
    const pieces = inPieces(body, random).map((piece) => again.push(piece))
    same(
      Buffer.concat([...pieces, again.flush()]).toString('latin1'),
      whole.toString('latin1'),
      'the body in pieces',
    )
    same(again.hits, redactor.hits, 'hits of the body in pieces')
    same(scan(patterns, inPieces(body, random)), redactor.hits > 0, 'what a scan beside it finds')
    if (count === 0) {
      same(whole.toString('latin1'), body.toString('latin1'), 'a body without a value')
      return 'refused'
    }
    holds(!containsSecret(patterns, whole), `redacted twice: ${JSON.stringify(whole.toString('latin1'))}`)
    // The scanner forgives escapes that JSON does not have, so that it reads more out of damage than anybody could.
    const leaks = findLeaks(whole, { value, core: [core] }).filter(
      ({ transform }) => !isDamaged || /^(as it is( .*)?|percent|percent twice)$/.test(transform),
    )
    holds(leaks.length === 0, `leaks ${JSON.stringify(leaks)} in ${JSON.stringify(whole.toString('latin1'))}`)
    return `taken:${Math.min(count, 3)} ${isDamaged}`
  },
})

/** One byte changed, left out or put in. */
function damaged(bytes: Buffer, random: Seeded): Buffer {
  const at = random.below(bytes.length)
  const added = random.bytes(random.below(2))
  return Buffer.concat([bytes.subarray(0, at), added, bytes.subarray(at + random.below(2))])
}

/** Does the scanner of other destinations stop? */
function scan(patterns: Patterns, pieces: readonly Buffer[]): boolean {
  const scanner = createScanner(patterns)
  return pieces.some((piece) => scanner.push(piece) === undefined) || scanner.flush() === undefined
}
