import { describe, expect, it } from 'vitest'
import { Secret } from '../../src/core/secret.ts'
import { compilePatterns, type PatternEntry } from '../../src/redact/forms.ts'
import { containsSecret, createRedactor, createScanner, redactText } from '../../src/redact/redactor.ts'
import { findLeaks } from '../helpers/leak-scanner.ts'
import { seeded } from '../helpers/seeded.ts'

const secret = 'kX9pQ2mZ7vL4wR8tN3bY6cH1'
const placeholder = 'octroi_ph_Zm9vYmFyMTIzNDU2Nzg5MA'
const marker = '[octroi:redacted]'

const entry = (value: string, id = value, short = false): PatternEntry => ({
  id,
  value: new Secret(value),
  short,
})
const patterns = compilePatterns([entry(secret, 'one')])
const placeholders = (id: string): string | undefined => (id === 'one' ? placeholder : undefined)

function redact(
  set: Parameters<typeof createRedactor>[0],
  text: string,
  replacementFor = placeholders,
): string {
  const redactor = createRedactor(set, replacementFor)
  return Buffer.concat([redactor.push(Buffer.from(text)), redactor.flush()]).toString()
}

const short = (value: string): string | undefined => `<${value}>`

describe('redacting', () => {
  it('finds a secret once, a thousand times, at the start, at the end and as the whole body', () => {
    expect(redact(patterns, secret)).toBe(placeholder)
    expect(redact(patterns, `${secret} at the start`)).toBe(`${placeholder} at the start`)
    expect(redact(patterns, `at the end ${secret}`)).toBe(`at the end ${placeholder}`)
    const page = (value: string): string =>
      Array.from({ length: 1_000 }, (_, i) => `${i}: ${value}\n`).join('')
    const redactor = createRedactor(patterns, placeholders)
    const output = Buffer.concat([redactor.push(Buffer.from(page(secret))), redactor.flush()])
    expect(output.toString()).toBe(page(placeholder))
    expect(redactor.hits).toBe(1_000)
  })

  it('finds a secret that is cut anywhere into two or three chunks', () => {
    const body = Buffer.from(`before ${secret} behind`)
    for (let first = 0; first <= body.length; first++) {
      for (const second of [first, first + 1, body.length - 1]) {
        const redactor = createRedactor(patterns, placeholders)
        const parts = [
          body.subarray(0, first),
          body.subarray(first, second),
          body.subarray(Math.max(first, second)),
        ]
        const output = Buffer.concat([...parts.map((part) => redactor.push(part)), redactor.flush()])
        expect(output.toString()).toBe(`before ${placeholder} behind`)
      }
    }
  })

  it('finds a secret of twelve characters of which only the first or the last is escaped', () => {
    for (const value of ['kX9pQ2mZ7vL"', '"kX9pQ2mZ7vL']) {
      const set = compilePatterns([entry(value, 'one')])
      expect(redact(set, JSON.stringify({ value }))).toBe(JSON.stringify({ value: placeholder }))
    }
  })

  it('gives a marker for a secret without a placeholder', () => {
    const redactor = createRedactor(patterns, () => undefined)
    expect(Buffer.concat([redactor.push(Buffer.from(`x ${secret}`)), redactor.flush()]).toString()).toBe(
      `x ${marker}`,
    )
  })

  it('takes the placeholder of whichever entry has one where entries share a value', () => {
    const shared = compilePatterns([entry(secret, 'none'), entry(secret, 'one')])
    expect(redact(shared, secret)).toBe(placeholder)
  })

  it('takes parts of twelve characters out of the start, the middle and the end, and leaves eleven', () => {
    for (const part of [secret.slice(0, -4), secret.slice(0, 14), secret.slice(5, 17), secret.slice(-12)]) {
      expect(redact(patterns, `<${part}>`)).toBe(`<${marker}>`)
    }
    for (const part of [secret.slice(0, 11), secret.slice(6, 17), secret.slice(-11)]) {
      expect(redact(patterns, `<${part}>`)).toBe(`<${part}>`)
    }
    const masked = `${secret.slice(0, 4)}****************${secret.slice(-4)}`
    expect(redact(patterns, masked)).toBe(masked)
  })

  it('takes parts out in base64, percent and JSON too', () => {
    const part = secret.slice(0, 15)
    const forms = [
      Buffer.from(`ab${part}yz`).toString('base64'),
      [...part].map((character) => `%${character.charCodeAt(0).toString(16)}`).join(''),
      [...part].map((character) => `\\u00${character.charCodeAt(0).toString(16)}`).join(''),
    ]
    for (const form of forms) {
      const output = redact(patterns, `"${form}"`)
      expect(findLeaks(Buffer.from(output), { value: secret }), output).toEqual([])
    }
  })

  it('joins parts that touch or overlap into one marker', () => {
    const parts = secret.slice(0, 14) + secret.slice(8, 22)
    const redactor = createRedactor(patterns, placeholders)
    expect(Buffer.concat([redactor.push(Buffer.from(parts)), redactor.flush()]).toString()).toBe(marker)
    expect(redactor.hits).toBe(1)
  })

  it('finds the secret behind ten thousand decoys and leaves the decoys', () => {
    const random = seeded(216)
    const letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789'
    const token = (): string => `ghp_${Array.from({ length: 36 }, () => random.pick([...letters])).join('')}`
    const real = token()
    const set = compilePatterns([entry(real, 'one')])
    const decoys = Array.from({ length: 10_000 }, token).join('\n')
    expect(redact(set, `${decoys}\n${real}`)).toBe(`${decoys}\n${placeholder}`)
  })

  it('leaves another token of the same format alone', () => {
    const other = `ghp_${secret.slice(0, 7)}0000000000`
    expect(redact(compilePatterns([entry(`ghp_${secret}`)]), other)).toBe(other)
  })
})

describe('secrets that overlap', () => {
  it('replaces the longest first, in one pass', () => {
    const set = compilePatterns([entry('pass', 'pass', true), entry('password', 'password', true)])
    expect(redact(set, 'pass password passwor word', short)).toBe('<pass> <password> <pass>wor word')
    expect(redact(set, 'passpassword', short)).toBe('<pass><password>')
  })

  it('replaces a secret within another by its own placeholder where it stands alone', () => {
    const outer = `https://app.test/hook/${secret}/end-of-it`
    const set = compilePatterns([entry(outer, 'outer'), entry(secret, 'inner')])
    expect(redact(set, `${secret} and ${outer}`, short)).toBe('<inner> and <outer>')
  })

  it('tells apart secrets that share their first sixteen characters', () => {
    const values = ['alpha', 'beta', 'gamma'].map((end) => `${secret.slice(0, 16)}-${end}-0123456789`)
    const set = compilePatterns(values.map((value, i) => entry(value, String(i))))
    expect(redact(set, values.toReversed().join(' '), short)).toBe('<2> <1> <0>')
  })

  it('never looks at what it has written, and uses a marker that holds no secret', () => {
    const set = compilePatterns([entry('redacted', 'redacted', true), entry(secret, 'secret')])
    const output = redact(set, `${secret} redacted`, () => undefined)
    expect(output).toBe('[********] [********]')
    const echo = compilePatterns([entry(secret, 'one')])
    expect(redact(echo, secret, () => `${secret}${secret}`)).toBe(`${secret}${secret}`)
  })

  it('matches short secrets whole, exactly, and in their encodings', () => {
    const set = compilePatterns([entry('hunter2-', 'h', true)])
    expect(redact(set, 'hunter2- hunter2+ hunter Hunter2- hunter2', short)).toBe(
      '<h> hunter2+ hunter Hunter2- hunter2',
    )
    expect(redact(set, '\\u0068unter2%2d', short)).not.toContain('unter2')
    expect(redact(set, Buffer.from('hunter2-').toString('base64'), short)).toBe(
      Buffer.from('<h>').toString('base64'),
    )
    expect(redact(set, Buffer.from('hunter2-').toString('hex'), short)).toBe(
      Buffer.from('<h>').toString('hex'),
    )
  })
})

describe('holding back', () => {
  const released = (text: string): string =>
    createRedactor(patterns, placeholders).push(Buffer.from(text)).toString()

  it('lets an SSE event go at once, whatever letters it ends in', () => {
    for (const event of [
      'data: hello\n\n',
      'data: kX9\n\n',
      'data: 100%\r\n\r\n',
      `: ${secret.slice(0, 9)}\n\n`,
    ]) {
      expect(released(event)).toBe(event)
    }
  })

  it('lets a line go at once unless a secret may have begun in it', () => {
    expect(released('{"progress":50}\n')).toBe('{"progress":50}\n')
    expect(released('so far so good\n')).toBe('so far so good\n')
    expect(released(`key ${secret.slice(0, 9)}\n`).length).toBeLessThanOrEqual(4)
  })

  it('holds the beginning of a secret until it is one or is not', () => {
    const redactor = createRedactor(patterns, placeholders)
    expect(redactor.push(Buffer.from(`: ${secret.slice(0, 8)}`)).toString()).toBe(': '.trimEnd())
    expect(redactor.push(Buffer.from('!')).toString()).toBe(` ${secret.slice(0, 8)}!`)
    expect(redactor.flush()).toHaveLength(0)
  })

  it('delivers a beginning that never goes on when the body ends', () => {
    const redactor = createRedactor(patterns, placeholders)
    const output = Buffer.concat([redactor.push(Buffer.from(secret.slice(0, 11))), redactor.flush()])
    expect(output.toString()).toBe(secret.slice(0, 11))
  })

  it('holds an escape that is cut off and nothing before it', () => {
    expect(released('{"a":"}\\u00')).toBe('{"a":"}')
    expect(released('?}%')).toBe('?}')
  })

  it('lets each event of a stream of them go with the event', () => {
    const redactor = createRedactor(patterns, placeholders)
    for (let i = 0; i < 50; i++) {
      const value = i % 3 === 0 ? secret : 'nothing'
      const output = redactor.push(Buffer.from(`id: ${i}\ndata: {"value":"${value}"}\n\n`)).toString()
      expect(output).toBe(`id: ${i}\ndata: {"value":"${value === secret ? placeholder : value}"}\n\n`)
    }
  })

  it('does not keep the chunks it was given', () => {
    const redactor = createRedactor(patterns, placeholders)
    const chunk = Buffer.from(`x ${secret.slice(0, 12)}`)
    const first = Buffer.from(redactor.push(chunk))
    chunk.fill(0)
    const rest = [redactor.push(Buffer.from(secret.slice(12))), redactor.flush()]
    expect(Buffer.concat([first, ...rest]).toString()).toBe(`x ${placeholder}`)
  })

  it('bounds what it holds however long parts are strung together', () => {
    const ends = ['aB3dE5fG7hJ9kL', 'mN1pQ3rS5tU7vW']
    const [first = '', second = ''] = ends
    // Each value begins with the end of the other, so that parts overlap without end.
    const set = compilePatterns([entry(`${first}${second}`, 'one'), entry(`${second}${first}`, 'two')])
    const redactor = createRedactor(set, () => undefined)
    let output = ''
    for (let i = 0; i < 100; i++) output += redactor.push(Buffer.from((first + second).repeat(30))).toString()
    expect(output).toContain(marker)
    output += redactor.flush().toString()
    expect(output.replaceAll(marker, '')).toBe('')
    expect(output.length).toBeLessThan(100 * marker.length)
  })
})

describe('long matches in small chunks', () => {
  it('are searched a bounded number of times', () => {
    const long = seeded(9).bytes(1_500).toString('base64')
    const set = compilePatterns([entry(long, 'one')])
    const redactor = createRedactor(set, placeholders)
    const body = Buffer.from(
      `<${[...long].map((c) => `\\u00${c.charCodeAt(0).toString(16).padStart(2, '0')}`).join('')}>`,
    )
    const before = set.lane.bytesRead
    const output = [...body].map((byte) => redactor.push(Buffer.of(byte)))
    expect(Buffer.concat([...output, redactor.flush()]).toString()).toBe(`<${placeholder}>`)
    // Every byte is read a few times, not once for each chunk that follows it.
    expect(set.lane.bytesRead - before).toBeLessThan(body.length * 150)
  })
})

describe('scanning', () => {
  it('releases what is clean and stops for good at a match', () => {
    const scanner = createScanner(patterns)
    expect(Buffer.from(scanner.push(Buffer.from('clean. ')) ?? []).toString()).toBe('clean.')
    expect(scanner.push(Buffer.from(secret))).toBeUndefined()
    expect(scanner.push(Buffer.from('more'))).toBeUndefined()
    expect(scanner.flush()).toBeUndefined()
  })

  it('passes every byte of bodies without a secret, and finds one across chunks of any size', () => {
    const random = seeded(221)
    const body = random.bytes(300_000)
    for (const size of [1_000, 65_536, 300_000]) {
      const scanner = createScanner(patterns)
      const output: Uint8Array[] = []
      for (let at = 0; at < body.length; at += size)
        output.push(scanner.push(body.subarray(at, at + size)) ?? Buffer.of())
      output.push(scanner.flush() ?? Buffer.of())
      expect(Buffer.concat(output).equals(body)).toBe(true)
    }
    const bad = Buffer.concat([body, Buffer.from(secret), body])
    expect(containsSecret(patterns, bad)).toBe(true)
    expect(containsSecret(patterns, body)).toBe(false)
  })
})

describe('texts of a head', () => {
  it('are redacted whole, byte by byte', () => {
    const text = `caf\u00e9 ${secret}; q=1`
    expect(redactText(patterns, text, placeholders)).toEqual({
      text: `caf\u00e9 ${placeholder}; q=1`,
      hits: 1,
    })
    expect(redactText(patterns, 'caf\u00e9', placeholders)).toEqual({ text: 'caf\u00e9', hits: 0 })
    expect(redactText(patterns, '', placeholders)).toEqual({ text: '', hits: 0 })
  })

  it('find a secret that is not ASCII in both encodings of it', () => {
    const value = 'pässwörd-kX9pQ2mZ7vL4'
    const set = compilePatterns([entry(value, 'one')])
    for (const text of [value, Buffer.from(value).toString('latin1')]) {
      expect(redactText(set, `x ${text}`, placeholders).text).toBe(`x ${placeholder}`)
    }
  })
})
