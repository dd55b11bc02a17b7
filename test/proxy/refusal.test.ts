import { describe, expect, it } from 'vitest'
import { catalogue, Refusal, type DenyReason } from '../../src/core/errors.ts'
import { parseResponseHead, requestLimits, type ResponseHead } from '../../src/http1/head.ts'
import type { Destination } from '../../src/policy/model.ts'
import { asRefusal, refusalMessage } from '../../src/proxy/refusal.ts'
import rows from '../vectors/refusals.json' with { type: 'json' }

interface Row {
  name: string
  refusal: { reason: string; status?: number; hint?: string }
  destination: Destination | null
  isHead: boolean
  keepAlive: boolean
  expected: {
    statusLine: string
    proxyStatus?: string
    fields?: Record<string, string>
    retry: string
    connection: string
    hint?: string
  }
}

const id = '01JD8Z'

function read(message: string): { head: ResponseHead; fields: Record<string, string>; content: string } {
  const end = message.indexOf('\r\n\r\n')
  const head = parseResponseHead(message.slice(0, end), requestLimits)
  if ('problem' in head) throw new TypeError(head.problem)
  const fields = Object.fromEntries(head.fields.map(([name, value]) => [name.toLowerCase(), value]))
  return { head, fields, content: message.slice(end + 4) }
}

describe('refusals on the wire', () => {
  it.each(rows as Row[])('$name', ({ refusal, destination, isHead, keepAlive, expected }) => {
    const { reason, ...options } = refusal
    const message = refusalMessage(new Refusal(reason as DenyReason, options), {
      id,
      destination: destination ?? undefined,
      isHead,
      keepAlive,
    })
    const { fields, content } = read(message)
    expect(message.slice(0, message.indexOf('\r\n'))).toBe(expected.statusLine)
    expect(fields).toMatchObject({
      'content-type': 'application/problem+json',
      'cache-control': 'no-store',
      connection: expected.connection,
      ...expected.fields,
    })
    if (expected.proxyStatus !== undefined) expect(fields['proxy-status']).toBe(expected.proxyStatus)
    if (isHead) {
      expect(content).toBe('')
      return
    }
    expect(Number(fields['content-length'])).toBe(Buffer.byteLength(content))
    const problem: unknown = JSON.parse(content)
    expect(problem).toMatchObject({
      id,
      retry: expected.retry,
      ...(expected.hint === undefined ? {} : { hint: expected.hint }),
    })
  })

  it.each(Object.keys(catalogue) as DenyReason[])(
    '%s has a whole answer without anything of the request',
    (reason) => {
      const refusal = new Refusal(reason, { detail: 'operator only', cause: new TypeError('operator only') })
      const message = refusalMessage(refusal, { id, destination: undefined, isHead: false, keepAlive: false })
      const { head, content } = read(message)
      expect(head.status).toBe(catalogue[reason].status)
      expect(message).not.toContain('operator only')
      expect(JSON.parse(content)).toMatchObject({ status: head.status, title: catalogue[reason].title })
    },
  )

  it('answers a wrong and a missing password byte for byte alike', () => {
    const answers = (['auth_missing', 'auth_invalid'] as const).map((reason) =>
      refusalMessage(new Refusal(reason), { id, destination: undefined, isHead: false, keepAlive: true }),
    )
    expect(answers[0]).toBe(answers[1])
  })

  it('turns what nobody foresaw into an internal error that says nothing', () => {
    const refusal = asRefusal(new RangeError('a path of this machine'))
    expect(refusal.reason).toBe('internal')
    expect(
      refusalMessage(refusal, { id, destination: undefined, isHead: false, keepAlive: false }),
    ).not.toContain('path')
  })
})
