import type { Seeded } from './seeded.ts'

/** How an upstream may print a secret. `render` gets the secret and a source of choices. */
export interface SecretForm {
  readonly name: string
  /** Whether the form is promised, or only tried. */
  readonly isGuaranteed: boolean
  /** Reads the form back; absent where the text around it decides. */
  readonly read?: (text: string) => string
  render(secret: string, random: Seeded): string
}

/** Strings hold bytes, one per character. */
const bytes = (text: string): Buffer => Buffer.from(text, 'utf8')
const latin1 = (text: string): string => bytes(text).toString('latin1')

const hex2 = (code: number, isUpper: boolean): string => {
  const digits = code.toString(16).padStart(2, '0')
  return isUpper ? digits.toUpperCase() : digits
}

const percentAll = (text: string, isUpper: boolean): string =>
  [...bytes(text)].map((byte) => `%${hex2(byte, isUpper)}`).join('')

const percentSpecials = (text: string, isUpper: boolean): string =>
  [...bytes(text)]
    .map((byte) =>
      /[\w.~-]/.test(String.fromCharCode(byte)) ? String.fromCharCode(byte) : `%${hex2(byte, isUpper)}`,
    )
    .join('')

const unicode = (text: string, style: (digits: string) => string): string =>
  Array.from(
    { length: text.length },
    (_, i) => `\\u${style(text.charCodeAt(i).toString(16).padStart(4, '0'))}`,
  ).join('')

const inString = (text: string): string => JSON.stringify(text).slice(1, -1)

const mixedCase = (digits: string, random: Seeded): string =>
  [...digits].map((digit) => (random.below(2) === 0 ? digit : digit.toUpperCase())).join('')

const perCharacter = (text: string, choose: (character: string) => string): string =>
  [...text].map(choose).join('')

const fromPercent = (text: string): string => decodeURIComponent(text)
const fromJson = (text: string): string => String(JSON.parse(`"${text}"`))
const fromBase64 = (text: string): string => Buffer.from(text, 'base64').toString('latin1')

const wrapped = (text: string, end: string): string => (text.match(/.{1,76}/g) ?? []).join(end)

type Render = SecretForm['render']
type Read = SecretForm['read']

const form = (name: string, render: Render, read?: Read): SecretForm => ({
  name,
  isGuaranteed: true,
  render,
  ...(read === undefined ? {} : { read }),
})

const tried = (name: string, render: Render): SecretForm => ({ name, isGuaranteed: false, render })

const padded = (secret: string, lead: number, tail: number): Buffer =>
  Buffer.concat([Buffer.from('<>'.slice(0, lead)), bytes(secret), Buffer.from('()'.slice(0, tail))])

const base64Forms = [0, 1, 2].flatMap((lead) =>
  [0, 1, 2].flatMap((tail) => [
    form(
      `base64, ${lead} before, ${tail} behind`,
      (secret) => padded(secret, lead, tail).toString('base64'),
      fromBase64,
    ),
    form(
      `base64url, ${lead} before, ${tail} behind`,
      (secret) => padded(secret, lead, tail).toString('base64url'),
      fromBase64,
    ),
  ]),
)

const wrappedForms = ['\n', '\r\n'].map((end) =>
  form(`base64 in lines ending in ${JSON.stringify(end)}`, (secret, random) => {
    const around = (): Buffer => random.bytes(random.below(70))
    return wrapped(Buffer.concat([around(), bytes(secret), around()]).toString('base64'), end)
  }),
)

/** Every form by name. */
export const secretForms: readonly SecretForm[] = [
  form('raw', latin1, (text) => text),
  form('percent, specials, upper', (secret) => percentSpecials(secret, true), fromPercent),
  form('percent, specials, lower', (secret) => percentSpecials(secret, false), fromPercent),
  form('percent, every byte, upper', (secret) => percentAll(secret, true), fromPercent),
  form('percent, every byte, lower', (secret) => percentAll(secret, false), fromPercent),
  form(
    'percent twice, specials',
    (secret) => percentSpecials(percentSpecials(secret, true), true),
    (text) => fromPercent(fromPercent(text)),
  ),
  form(
    'percent twice, every byte',
    (secret) => percentSpecials(percentAll(secret, false), true),
    (text) => fromPercent(fromPercent(text)),
  ),
  form(
    'percent twice, every byte of every byte',
    (secret) => percentAll(percentAll(secret, true), true),
    (text) => fromPercent(fromPercent(text)),
  ),
  form('percent, mixed', (secret, random) =>
    perCharacter(secret, (character) => {
      if (character === ' ' && random.below(2) === 0) return '+'
      const isSafe = /[\w.~-]/.test(character) && random.below(2) === 0
      return isSafe ? character : percentAll(character, random.below(2) === 0)
    }),
  ),
  form('form, + for space', (secret) => percentSpecials(secret, true).replaceAll('%20', '+')),
  form('JSON', (secret) => latin1(inString(secret)), fromJson),
  form('JSON with \\/', (secret) => latin1(inString(secret).replaceAll('/', '\\/')), fromJson),
  form('JSON \\u, lower', (secret) => unicode(secret, (digits) => digits), fromJson),
  form('JSON \\u, upper', (secret) => unicode(secret, (digits) => digits.toUpperCase()), fromJson),
  form(
    'JSON \\u, mixed case',
    (secret, random) => unicode(secret, (digits) => mixedCase(digits, random)),
    fromJson,
  ),
  form('JSON, mixed', (secret, random) =>
    perCharacter(secret, (character) =>
      random.below(2) === 0
        ? latin1(inString(character))
        : unicode(character, (digits) => mixedCase(digits, random)),
    ),
  ),
  form(
    'JSON in JSON',
    (secret) => latin1(inString(inString(secret))),
    (text) => fromJson(fromJson(text)),
  ),
  form(
    'JSON \\u in JSON',
    (secret) => inString(unicode(secret, (digits) => digits)),
    (text) => fromJson(fromJson(text)),
  ),
  ...base64Forms,
  ...wrappedForms,
  form('base64 in lines in JSON', (secret, random) =>
    inString(
      wrapped(Buffer.concat([random.bytes(30), bytes(secret), random.bytes(30)]).toString('base64'), '\n'),
    ),
  ),
  form('base64, percent-encoded', (secret) => percentSpecials(padded(secret, 2, 1).toString('base64'), true)),
  form('hex, lower', (secret) => bytes(secret).toString('hex')),
  form('hex, upper', (secret) => bytes(secret).toString('hex').toUpperCase()),
  form('Basic, password', (secret) => `Basic ${bytes(`x-access-token:${secret}`).toString('base64')}`),
  form('Basic, user', (secret) => `Basic ${bytes(`${secret}:x-oauth-basic`).toString('base64')}`),
  tried('HTML, decimal', (secret) => perCharacter(latin1(secret), (c) => `&#${c.charCodeAt(0)};`)),
  tried('HTML, seven digits', (secret) =>
    perCharacter(latin1(secret), (c) => `&#${String(c.charCodeAt(0)).padStart(7, '0')};`),
  ),
  tried('HTML, hex', (secret) => perCharacter(latin1(secret), (c) => `&#x${hex2(c.charCodeAt(0), false)};`)),
  tried('HTML, specials', (secret) =>
    latin1(secret)
      .replaceAll('&', '&amp;')
      .replaceAll('<', '&lt;')
      .replaceAll('>', '&gt;')
      .replaceAll('"', '&quot;'),
  ),
  tried('UTF-16LE', (secret) => Buffer.from(latin1(secret), 'utf16le').toString('latin1')),
  tried('UTF-16BE', (secret) => Buffer.from(latin1(secret), 'utf16le').swap16().toString('latin1')),
  tried('\\x', (secret) => [...bytes(secret)].map((byte) => `\\x${hex2(byte, false)}`).join('')),
]

/** The form of a name. */
export function secretForm(name: string): SecretForm {
  const found = secretForms.find((candidate) => candidate.name === name)
  if (found === undefined) throw new TypeError(`no form is called ${name}`)
  return found
}
