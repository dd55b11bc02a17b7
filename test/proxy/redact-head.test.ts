import { describe, expect, it } from 'vitest'
import { Secret } from '../../src/core/secret.ts'
import { redactHead } from '../../src/proxy/redact-head.ts'
import { compilePatterns } from '../../src/redact/forms.ts'

const secret = 'k9Wq3vX7tR2mB8sZ5nL1'
const by = {
  patterns: compilePatterns([{ id: 'a', value: new Secret(secret), short: false }]),
  replacement: () => 'octroiPlaceholderPlaceholder',
}

describe('heads of bound upstreams', () => {
  it('come through untouched when they hold nothing', () => {
    const fields = [['Server', 'a'], ['X', 'b: c']] as const // prettier-ignore
    expect(redactHead('OK', fields, by)).toEqual({ phrase: 'OK', fields: [...fields], hits: 0 })
  })

  it('lose a value in the phrase, in a value and in base64, and keep the other fields as they are', () => {
    const basic = Buffer.from(`user:${secret}`).toString('base64')
    const { phrase, fields, hits } = redactHead(`saw ${secret}`, [['A', 'x'], ['B', `Bearer ${secret}!`], ['C', `Basic ${basic}`], ['D', '']], by) // prettier-ignore
    expect(hits).toBe(3)
    expect(phrase).toBe('saw octroiPlaceholderPlaceholder')
    expect(fields[0]).toEqual(['A', 'x'])
    expect(fields[1]).toEqual(['B', 'Bearer octroiPlaceholderPlaceholder!'])
    expect(fields[2]?.[1]).not.toContain(basic.slice(8, 24))
    expect(fields[3]).toEqual(['D', ''])
  })

  it('keep a field whose name held a value, under a name that is a token', () => {
    const { fields } = redactHead('OK', [[`X-${secret}`, 'y']], by)
    expect(fields).toHaveLength(1)
    expect(fields[0]?.[0]).toMatch(/^[\w!#$%&'*+.^`|~-]+$/)
    expect(fields[0]?.[0]).not.toContain(secret.slice(0, 12))
    expect(fields[0]?.[1]).toBe('y')
  })

  it('are refused when a value is spread over two fields, in a way that no single field shows', () => {
    const cut = [['A', secret.slice(0, 10)], [secret.slice(10), 'b']] as const // prettier-ignore
    expect(() => redactHead('OK', cut, by)).toThrow(
      expect.objectContaining({ reason: 'credential_in_response' }),
    )
  })
})
