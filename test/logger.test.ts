import { describe, expect, it } from 'vitest'
import { Refusal } from '../src/core/errors.ts'
import { Secret } from '../src/core/secret.ts'
import { createLogger, headersForLog } from '../src/logger.ts'

const value = 'sk-live-7c1f0e9d8b6a5432'

function capture(format: 'json' | 'text' = 'json') {
  const lines: string[] = []
  const log = createLogger({
    level: 'debug',
    format,
    destination: { write: (line) => void lines.push(line) },
  })
  return { log, text: () => lines.join('') }
}

describe('logger', () => {
  it('prints the marker for a secret in a field, in a message and inside an error', () => {
    const { log, text } = capture()
    const secret = new Secret(value)
    log.info({ secret, nested: { secret } }, 'value %s', secret)
    log.error({ err: new TypeError(`broke on ${String(secret)}`) })
    expect(text()).not.toContain(value)
    expect(text()).toContain('[REDACTED]')
  })

  it('shows header values only of allowlisted names', () => {
    const { log, text } = capture()
    log.info({
      headers: { Authorization: `Bearer ${value}`, 'x-new-vendor-key': value, 'Content-Type': 'a/b' },
    })
    expect(text()).not.toContain(value)
    expect(text()).toContain('"Content-Type":"a/b"')
    expect(headersForLog('not a record')).toEqual({})
  })

  it('never serializes a request object that was passed whole', () => {
    const { log, text } = capture()
    log.warn({ req: { headers: { authorization: value } }, response: { body: value } }, 'odd')
    expect(text()).not.toContain(value)
  })

  it('keeps only named fields of an error, and its causes', () => {
    const { log, text } = capture()
    const cause = Object.assign(new TypeError('socket'), { code: 'ECONNRESET', request: { password: value } })
    log.error({ err: new Refusal('upstream_failed', { cause, detail: 'peer closed' }) }, 'failed')
    const line = JSON.parse(text()) as { err: { reason: string; detail: string; cause: { code: string } } }
    expect(line.err).toMatchObject({
      reason: 'upstream_failed',
      detail: 'peer closed',
      cause: { code: 'ECONNRESET' },
    })
    expect(text()).not.toContain(value)
  })

  it('lets no control character through to a terminal', () => {
    const { log, text } = capture('text')
    log.info({ host: 'a\u001b[31mb\u202e' }, 'line\r\nforged \u001b]0;x\u0007')
    expect(text().trimEnd()).toMatch(/^\d\d:\d\d:\d\d info line\\u000d\\u000aforged /)
    expect(text().trimEnd()).not.toMatch(/[\p{Cc}\p{Cf}]/u)
  })

  it('writes an error of a text line with its causes, without its stack', () => {
    const { log, text } = capture('text')
    log.error({ err: new TypeError('outer', { cause: new TypeError('inner') }) }, 'failed')
    expect(text()).toMatch(/^\S+ error failed err="outer: inner"\n$/)
  })
})
