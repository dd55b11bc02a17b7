import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { Secret } from '../../src/core/secret.ts'
import { coreMask } from '../../src/redact/core-mask.ts'
import { compilePatterns } from '../../src/redact/forms.ts'
import { containsSecret, createRedactor } from '../../src/redact/redactor.ts'
import { findLeaks } from '../helpers/leak-scanner.ts'
import { secretForm } from '../helpers/secret-forms.ts'
import { seeded } from '../helpers/seeded.ts'

interface Row {
  readonly name: string
  readonly form: string
  readonly template: string
}

const rows = JSON.parse(
  readFileSync(new URL('../vectors/redaction-forms.json', import.meta.url), 'utf8'),
) as Row[]

const placeholder = 'octroi_ph_Zm9vYmFyMTIzNDU2Nzg5MA'

/** A token, and a password with every character that some encoding treats apart. */
const secrets = ['ghp_16C7e42F292c6912E7710c838347Ae178B4a', 'Tr0ub/4dor & "3\\x+é<y>%z=_-~']

function redact(value: string, text: string): string {
  const patterns = compilePatterns([{ id: 'one', value: new Secret(value), short: false }])
  const redactor = createRedactor(patterns, (id) => (id === 'one' ? placeholder : undefined))
  const bytes = Buffer.concat([redactor.push(Buffer.from(text, 'latin1')), redactor.flush()])
  return bytes.toString('latin1')
}

describe('forms of a secret', () => {
  for (const { name, form, template } of rows) {
    it(name, () => {
      for (const secret of secrets) {
        const { render, read } = secretForm(form)
        const encoded = render(secret, seeded(11))
        const output = redact(
          secret,
          template.replaceAll('{secret}', () => encoded),
        )
        expect(findLeaks(Buffer.from(output, 'latin1'), { value: secret }), output).toEqual([])
        const [before = '', behind = ''] = template.split('{secret}')
        expect(output.startsWith(before)).toBe(true)
        expect(output.endsWith(template.split('{secret}').at(-1) ?? '')).toBe(true)
        if (read === undefined || form.startsWith('base64')) continue
        const end = behind === '' ? output.length : output.indexOf(behind, before.length)
        expect(read(output.slice(before.length, end))).toContain(placeholder)
      }
    })
  }

  it('gives a placeholder in base64 with what stood before and behind it, at every alignment', () => {
    for (const secret of secrets) {
      for (const lead of ['', '<', '<>']) {
        for (const tail of ['', ')', '))']) {
          for (const coding of ['base64', 'base64url'] as const) {
            const output = redact(secret, `x=${Buffer.from(lead + secret + tail).toString(coding)};`)
            const text = Buffer.from(output.slice(2, -1), 'base64').toString()
            const isInStep = (placeholder.length - Buffer.byteLength(secret)) % 3 === 0 || tail.length === 0
            const value = isInStep ? placeholder : text.slice(lead.length, text.length - tail.length)
            expect(text).toBe(lead + value + tail)
            expect(isInStep || value.startsWith('[octroi:redacted]')).toBe(true)
          }
        }
      }
    }
  })

  it('gives Basic credentials that still are user and password', () => {
    const [secret = ''] = secrets
    const output = redact(secret, `Basic ${Buffer.from(`x-access-token:${secret}`).toString('base64')}`)
    expect(Buffer.from(output.slice(6), 'base64').toString()).toBe(`x-access-token:${placeholder}`)
  })
})

describe('what a secret is made of', () => {
  const body = 'q8Zt1vY0bXr5Ns2Kd7LwMmVoXc4eAa6iPp3jTg9hRr0uWkQfGzDbSxEyCnFvBl5J'
  const pem = (end: string): string =>
    ['-----BEGIN TEST KEY-----', body, body.split('').reverse().join(''), '-----END TEST KEY-----', ''].join(
      end,
    )

  it('finds a PEM block with any line ends, on one line and in JSON', () => {
    for (const stored of ['\n', '\r\n']) {
      for (const shown of ['\n', '\r\n', '\\n', ' ', '']) {
        const output = redact(pem(stored), `<${pem(shown)}>`)
        expect(output, JSON.stringify({ stored, shown })).toContain(placeholder)
        expect(findLeaks(Buffer.from(output), { value: body })).toEqual([])
      }
      const json = redact(pem(stored), JSON.stringify({ key: pem('\n') }))
      expect(JSON.parse(json)).toEqual({ key: expect.stringContaining(placeholder) as unknown })
      const base64 = Buffer.from(`  ${pem('\n')}`).toString('base64')
      expect(redact(pem(stored), base64)).not.toContain(base64.slice(8, 60))
    }
  })

  it('does not damage another PEM block, though armour and the start of the DER are the same', () => {
    const header = 'MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg'
    const key = (rest: string): string =>
      `-----BEGIN TEST KEY-----\n${header}${rest}\n-----END TEST KEY-----\n`
    const other = key('0aP9sO8dI7fU6gY5hT4jR3kE2lW1qZmXnCbV')
    expect(redact(key('q8Zt1vY0bXr5Ns2Kd7LwMmVoXc4eAa6iPp3j'), other)).toBe(other)
    expect(redact(other, `a ${other} b`)).toContain(placeholder)
  })

  it('does not damage a JWT or a token of the same format, nor a URL of the same host', () => {
    const header = 'eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9'
    const pairs = [
      [
        `${header}.eyJzdWIiOiI0MiJ9.dBjftJeZ4CVPmB92K27uhbUJU1p1r_wW`,
        `${header}.eyJpYXQiOjF9.Xn5Qa8Lp0Zs3Wd7Ty2Rk`,
      ],
      ['sk-ant-api03-AAbbCCddEEff00112233', 'sk-ant-api03-ZZyyXXwwVVuu99887766'],
      ['github_pat_11ABCDEFG0abcdefghijkl', 'github_pat_11ZZZZZZZ0zyxwvutsrqpo'],
      [
        'postgres://app:kX9pQ2mZ7vL4@db.internal.test:5432/main',
        'postgres://ro:other@db.internal.test:5432/main',
      ],
      ['https://hooks.chat.test/T00/B11/kX9pQ2mZ7vL4', 'https://hooks.chat.test/T22/B33/other'],
    ] as const
    for (const [secret, lookalike] of pairs) {
      expect(redact(secret, `say "${lookalike}" twice`)).toBe(`say "${lookalike}" twice`)
      expect(redact(secret, `say "${secret}" once`)).toBe(`say "${placeholder}" once`)
    }
  })

  it('finds the password of a URL without the rest of it', () => {
    const secret = 'postgres://app:kX9pQ2mZ7vL4wR@db.test:5432/main?sslmode=require'
    expect(redact(secret, 'the password kX9pQ2mZ7vL4wR works')).toBe('the password [octroi:redacted] works')
    expect(redact(secret, '?sslmode=require')).toBe('?sslmode=require')
  })

  it('finds hexadecimal, UUID and base32 values in the other case too', () => {
    const values = [
      '550e8400-e29b-41d4-a716-446655440000',
      '9F86D081884C7D659A2FEAA0C55AD015',
      'JBSWY3DPEHPK3PXPJBSWY3DP',
    ]
    for (const value of values) {
      for (const shown of [value.toLowerCase(), value.toUpperCase()]) {
        expect(redact(value, `id ${shown}.`)).toBe(`id ${placeholder}.`)
      }
    }
    expect(redact('AbCdEfGhIjKlMnOpQrSt', 'abcdefghijklmnopqrst')).toBe('abcdefghijklmnopqrst')
  })

  it('finds a secret of 16 KiB and the start, middle and end of it', () => {
    const secret = seeded(5).bytes(12_288).toString('base64')
    expect(redact(secret, `<${secret}>`)).toBe(`<${placeholder}>`)
    expect(redact(secret, secret.slice(0, 9_000))).toBe('[octroi:redacted]')
    expect(redact(secret, `a ${secret.slice(5_000, 5_012)} b`)).toBe('a [octroi:redacted] b')
    expect(redact(secret, secret.slice(-12))).toBe('[octroi:redacted]')
    expect(redact(secret, secret.slice(-11))).toBe(secret.slice(-11))
  })

  it('takes a value that is registered twice as one, and not as short if it once is not', () => {
    const value = 'kX9pQ2mZ7vL4wR8t'
    const entries = [true, false].map((short, i) => ({ id: String(i), value: new Secret(value), short }))
    expect(containsSecret(compilePatterns(entries), Buffer.from(value.slice(0, 12)))).toBe(true)
  })

  it('has nothing to look for in an empty value or an empty set', () => {
    expect(containsSecret(compilePatterns([]), Buffer.from('anything'))).toBe(false)
    expect(redact('', 'anything')).toBe('anything')
    expect(redact('\n', 'any\nthing')).toBe('any\nthing')
  })

  it('counts all of an ordinary token as its core', () => {
    expect([...coreMask('kX9pQ2mZ7vL4wR8t')]).toEqual(Array.from({ length: 16 }, () => 1))
  })
})
