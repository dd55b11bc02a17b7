import { existsSync, readFileSync } from 'node:fs'
import { createHash } from 'node:crypto'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { Secret } from '../../src/core/secret.ts'
import { compilePatterns } from '../../src/redact/forms.ts'
import { containsSecret } from '../../src/redact/redactor.ts'
import { secretForm } from '../helpers/secret-forms.ts'
import { seeded } from '../helpers/seeded.ts'

const root = fileURLToPath(new URL('../../', import.meta.url))
const page = readFileSync(`${root}SECURITY.md`, 'utf8')

/** Cells of the rows of the table that begins with this heading cell. */
function tableOf(heading: string): string[][] {
  const lines = page.split('\n')
  const start = lines.findIndex((line) => line.startsWith(`| ${heading}`))
  const end = lines.findIndex((line, at) => at > start && !line.startsWith('|'))
  return lines.slice(start + 2, end).map((line) =>
    line
      .slice(1, -1)
      .split('|')
      .map((cell) => cell.trim()),
  )
}

describe('the invariants of SECURITY.md', () => {
  const rows = tableOf('Invariant')

  it('are I1 to I10, each with a condition', () => {
    expect(rows.map(([name = '']) => /^\*\*(I\d+)\*\*/.exec(name)?.[1])).toEqual(
      Array.from({ length: 10 }, (_, i) => `I${i + 1}`),
    )
    for (const [, condition = ''] of rows) expect(condition.length).toBeGreaterThan(5)
  })

  const named = rows.flatMap(([, , tests = '']) =>
    [...tests.matchAll(/`(test\/[\w./-]+)`(?: \(([^)]*)\))?/g)].map(
      ([, path = '', numbers = '']) => [path, numbers] as const,
    ),
  )

  it.each(named)('are held by %s, with its rows %s', (path, numbers) => {
    expect(existsSync(`${root}${path}`)).toBe(true)
    const text = readFileSync(`${root}${path}`, 'utf8')
    for (const number of numbers.split(', ').filter((each) => each !== '')) expect(text).toContain(number)
  })
})

const each = (text: string, render: (character: string) => string): string => [...text].map(render).join('')
const code = (character: string, radix: number): string => character.charCodeAt(0).toString(radix)
const hex = (text: string): string => Buffer.from(text).toString('hex')
const base64 = (text: string): string => Buffer.from(text).toString('base64')
const percent = (text: string): string => each(text, (c) => `%${code(c, 16)}`)
const unicode = (text: string): string => each(text, (c) => `\\u00${code(c, 16)}`)
const tried = (name: string) => (text: string) => secretForm(name).render(text, seeded(1))

function base32(text: string): string {
  const bits = [...Buffer.from(text)].map((byte) => byte.toString(2).padStart(8, '0')).join('')
  const groups = bits.match(/.{1,5}/g) ?? []
  return groups
    .map((group) => 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'[Number.parseInt(group.padEnd(5, '0'), 2)])
    .join('')
}

const rot13 = (text: string): string =>
  text.replaceAll(/[a-z]/gi, (c) => String.fromCharCode(c.charCodeAt(0) + (c.toLowerCase() < 'n' ? 13 : -13)))

/** Fields of a JSON object with so many characters of the value in each. */
const inFields = (text: string, size: number): string =>
  JSON.stringify(Object.fromEntries((text.match(new RegExp(`.{1,${size}}`, 'g')) ?? []).entries()))

/** What stands in a row of the table, as code; strings hold bytes. */
const forms: Readonly<Record<string, readonly ((token: string) => string)[]>> = {
  'HTML entities, decimal, hex and padded': ['HTML, decimal', 'HTML, hex', 'HTML, seven digits'].map(tried),
  'HTML entities mixed with plain characters': [
    (token) => [...token].map((c, at) => (at % 2 === 0 ? c : `&#${code(c, 10)};`)).join(''),
  ],
  'HTML entities without semicolon': [(token) => each(token, (c) => `&#${code(c, 10)}`)],
  '`\\x` escapes': [tried('\\x')],
  '`\\u{…}` and CSS escapes': [
    (token) => each(token, (c) => `\\u{${code(c, 16)}}`),
    (token) => each(token, (c) => `\\${code(c, 16)} `),
  ],
  'UTF-16, either byte order': ['UTF-16LE', 'UTF-16BE'].map(tried),
  'base64 or hex, percent-encoded or in JSON': [
    (token) => percent(base64(token)),
    (token) => percent(hex(token)),
    (token) => unicode(base64(token)),
  ],
  'base64 of base64, of hex or of an escape': [
    (token) => base64(base64(token)),
    (token) => base64(hex(token)),
    (token) => base64(percent(token)),
    (token) => base64(unicode(token)),
  ],
  'hex of hex': [(token) => hex(hex(token))],
  'hex with separators, byte lists, octal': [
    (token) => each(token, (c) => `${code(c, 16)}:`),
    (token) => each(token, (c) => `0x${code(c, 16)}, `),
    (token) => JSON.stringify([...Buffer.from(token)]),
    (token) => each(token, (c) => `\\${code(c, 8)}`),
  ],
  'base32, quoted-printable, rot13': [base32, (token) => each(token, (c) => `=${code(c, 16)}`), rot13],
  'two halves in two fields': [(token) => inFields(token, 20)],
  'quarters in four fields': [(token) => inFields(token, 10)],
  'a blank between the characters': [(token) => each(token, (c) => `${c} `)],
  reversed: [(token) => [...token].reverse().join('')],
  'a gzip file inside a body, also in base64': [
    (token) => gzipSync(token).toString('latin1'),
    (token) => gzipSync(token).toString('base64'),
  ],
  'a hash': [(token) => createHash('sha256').update(token).digest('hex')],
}

describe('the table of best effort in SECURITY.md', () => {
  const rows = tableOf('Form')
  const random = seeded(7)
  const letters = [...'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789']
  const tokens = Array.from({ length: 100 }, () =>
    Array.from({ length: 40 }, () => random.pick(letters)).join(''),
  )
  const patterns = tokens.map((value) =>
    compilePatterns([{ id: 'a', value: new Secret(value), short: false }]),
  )

  it('has a row for each form that is measured', () => {
    expect(rows.map(([form]) => form)).toEqual(Object.keys(forms))
  })

  it.each(rows)('says for "%s" what is found: %s', (form = '', found) => {
    for (const render of forms[form] ?? []) {
      const hits = tokens.filter((token, at) => {
        const pattern = patterns[at]
        return pattern !== undefined && containsSecret(pattern, Buffer.from(`a ${render(token)} b`, 'latin1'))
      })
      expect([form, `${hits.length} %`]).toEqual([form, found])
    }
  })
})
