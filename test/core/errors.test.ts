import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { catalogue, OperatorError, otherStatuses, Refusal } from '../../src/core/errors.ts'
import type { DenyReason, HandleTruth } from '../../src/core/errors.ts'

const page = readFileSync(new URL('../../docs/errors.md', import.meta.url), 'utf8')
const reasons = Object.keys(catalogue) as DenyReason[]

/** Rows of the page's table: `| reason | statuses | error | retry | hint |`. */
const documented = new Map(
  page
    .split('\n')
    .filter((line) => line.startsWith('| `'))
    .map((line) => line.split('|').map((cell) => cell.trim()))
    .map(([, reason = '', statuses, proxyError, retry, hint]) => [
      reason.replaceAll('`', ''),
      { statuses, proxyError, retry, hint },
    ]),
)

function expectedRow(reason: DenyReason): object {
  const { status, proxyError, retry, hint } = catalogue[reason]
  const statuses = [status, ...(otherStatuses[reason] ?? [])].join(', ')
  return { statuses, proxyError: `\`${proxyError}\``, retry: `\`${retry}\``, hint }
}

describe('docs/errors.md', () => {
  it.each(reasons)('lists %s as the catalogue has it', (reason) => {
    expect(documented.get(reason)).toEqual(expectedRow(reason))
  })

  it('lists no reason that the catalogue does not have', () => {
    expect([...documented.keys()].filter((reason) => !(reason in catalogue))).toEqual([])
  })

  it('keeps the order of the catalogue', () => {
    expect([...documented.keys()]).toEqual(reasons)
  })

  it('names every truth that hides behind handle_unknown', () => {
    const truths: Record<HandleTruth, true> = {
      handle_never_issued: true,
      handle_wrong_sandbox: true,
      handle_revoked: true,
      handle_expired: true,
      handle_deleted: true,
    }
    for (const truth of Object.keys(truths)) expect(page).toContain(`\`${truth}\``)
  })
})

/** RFC 9209 section 2.3: the registered error types that the catalogue may use. */
const registeredErrors = [
  'dns_timeout',
  'dns_error',
  'destination_not_found',
  'destination_unavailable',
  'destination_ip_prohibited',
  'destination_ip_unroutable',
  'connection_refused',
  'connection_terminated',
  'connection_timeout',
  'connection_read_timeout',
  'connection_write_timeout',
  'connection_limit_reached',
  'tls_protocol_error',
  'tls_certificate_error',
  'tls_alert_received',
  'http_request_error',
  'http_request_denied',
  'http_response_incomplete',
  'http_response_header_section_size',
  'http_response_header_size',
  'http_response_body_size',
  'http_response_trailer_section_size',
  'http_response_trailer_size',
  'http_response_transfer_coding',
  'http_response_content_coding',
  'http_response_timeout',
  'http_upgrade_failed',
  'http_protocol_error',
  'proxy_internal_response',
  'proxy_internal_error',
  'proxy_configuration_error',
  'proxy_loop_detected',
]

describe('the catalogue of reasons', () => {
  it.each(reasons)('gives %s an error type that RFC 9209 registers', (reason) => {
    expect(registeredErrors).toContain(catalogue[reason].proxyError)
  })

  it.each(reasons)('gives %s an error status and one whole sentence as hint', (reason) => {
    const { status, hint, title } = catalogue[reason]
    expect(status).toBeGreaterThanOrEqual(400)
    expect(hint).toMatch(/^[A-Z][^\n|]+\.$/)
    expect(title).toMatch(/^[A-Z][^\n]+[^.]$/)
  })

  it.each(reasons)('keeps addresses and ranges out of the hint of %s', (reason) => {
    expect(catalogue[reason].hint).not.toMatch(/\d+\.\d+\.|::|\/\d/)
  })

  it('answers a missing and a wrong proxy password alike, so that names cannot be probed', () => {
    expect(catalogue.auth_invalid).toEqual(catalogue.auth_missing)
  })

  it('offers other statuses only where they differ from the usual one', () => {
    for (const [reason, statuses] of Object.entries(otherStatuses)) {
      expect(statuses).not.toContain(catalogue[reason as DenyReason].status)
    }
  })
})

describe('Refusal', () => {
  it('takes status and hint from the catalogue and has a title as its message', () => {
    const refusal = new Refusal('host_denied')
    expect(refusal).toMatchObject({
      name: 'Refusal',
      reason: 'host_denied',
      status: 403,
      message: 'Host denied',
      hint: catalogue.host_denied.hint,
    })
  })

  it('keeps the detail for the operator out of what a client is shown', () => {
    const refusal = new Refusal('dns_failed', { detail: 'SERVFAIL from 192.0.2.53' })
    expect(`${refusal.message} ${refusal.hint}`).not.toContain('192.0.2.53')
    expect(refusal.detail).toBe('SERVFAIL from 192.0.2.53')
  })

  it('takes the status that a stage chose', () => {
    expect(new Refusal('too_large', { status: 413 }).status).toBe(413)
  })
})

describe('OperatorError', () => {
  it('ends the process with 1 unless the usage or the configuration was wrong', () => {
    expect(new OperatorError('port taken').exitCode).toBe(1)
    expect(new OperatorError('unknown key', { exitCode: 2 }).exitCode).toBe(2)
  })
})
