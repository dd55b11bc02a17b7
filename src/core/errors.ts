/** When a denied client may sensibly try again. */
export type Retry = 'never' | 'after_approval' | 'after_30s'

interface Entry {
  /** HTTP status of the refusal; `statuses` lists the others that a stage may choose instead. */
  readonly status: number
  /** Short name, RFC 9457 `title`. */
  readonly title: string
  /** RFC 9209 section 2.3 proxy error type. */
  readonly proxyError: string
  readonly retry: Retry
  /** One sentence that is safe to show a client or a model: never a range, an internal name or request bytes. */
  readonly hint: string
}

type Row = readonly [status: number, title: string, proxyError: string, retry: Retry, hint: string]

const refuse = (...[status, title, proxyError, retry, hint]: Row): Entry => ({
  status,
  title,
  proxyError,
  retry,
  hint,
})

// prettier-ignore
/**
 * Every reason for which a request can be refused, with what the client sees. `docs/errors.md` is kept equal to this
 * table by a test. A retired reason stays listed and is never reused.
 */
export const catalogue = {
  auth_missing: refuse(407, 'Proxy authentication required', 'http_request_denied', 'never', 'Send the proxy credentials of your sandbox; `octroi env` prints them.'),
  auth_invalid: refuse(407, 'Proxy authentication required', 'http_request_denied', 'never', 'Send the proxy credentials of your sandbox; `octroi env` prints them.'),
  malformed: refuse(400, 'Malformed request', 'http_request_error', 'never', 'The request is ambiguous or breaks HTTP framing; send it in canonical form.'),
  method_unsupported: refuse(405, 'Method not supported', 'http_request_denied', 'never', 'This method is not relayed.'),
  too_large: refuse(431, 'Request header fields too large', 'http_request_error', 'never', 'The request head is larger than the limit.'),
  identity_mismatch: refuse(403, 'Identity mismatch', 'http_request_denied', 'never', 'The proofs of identity on this connection name different sandboxes.'),
  sandbox_paused: refuse(403, 'Sandbox paused', 'http_request_denied', 'after_30s', 'An operator paused this sandbox; it may be resumed.'),
  revoked: refuse(403, 'Revoked', 'http_request_denied', 'never', 'This access was revoked.'),
  host_denied: refuse(403, 'Host denied', 'http_request_denied', 'never', 'No rule of this sandbox allows this host.'),
  port_denied: refuse(403, 'Port denied', 'http_request_denied', 'never', 'This host is allowed on another port only.'),
  method_denied: refuse(403, 'Method denied', 'http_request_denied', 'never', 'This host is allowed with other methods only.'),
  path_denied: refuse(403, 'Path denied', 'http_request_denied', 'never', 'This host is allowed on other paths only.'),
  rule_expired: refuse(403, 'Rule expired', 'http_request_denied', 'never', 'The rule that allowed this has expired.'),
  package_denied: refuse(403, 'Package denied', 'http_request_denied', 'never', 'This package is not on the list of this sandbox.'),
  package_too_new: refuse(403, 'Package too new', 'http_request_denied', 'never', 'This version is younger than the age gate; pick an older one.'),
  ip_denied: refuse(403, 'Address denied', 'destination_ip_prohibited', 'never', 'The host resolves to an address that is not public.'),
  metadata_denied: refuse(403, 'Metadata service denied', 'destination_ip_prohibited', 'never', 'Instance metadata services are never reachable.'),
  self: refuse(403, 'Broker is not a destination', 'http_request_denied', 'never', 'The broker is never a destination of its own proxy.'),
  dns_denied: refuse(403, 'Name denied', 'http_request_denied', 'never', 'This name may not be resolved.'),
  non_tls: refuse(403, 'Not TLS', 'http_request_denied', 'never', 'This port is allowed for TLS only; plain HTTP needs a rule with `scheme: http`.'),
  handle_unknown: refuse(403, 'Placeholder unknown', 'http_request_denied', 'never', 'This placeholder is not valid here; print the current ones with `octroi env`.'),
  handle_wrong_destination: refuse(403, 'Placeholder at the wrong destination', 'http_request_denied', 'never', 'This placeholder is not valid for this destination.'),
  handle_placement: refuse(403, 'Placeholder in the wrong place', 'http_request_denied', 'never', 'Send the placeholder only in the field its access names.'),
  handle_scope: refuse(403, 'Outside the scope of the placeholder', 'http_request_denied', 'never', 'The access behind this placeholder does not cover this method or path.'),
  foreign_credential: refuse(403, 'Foreign credential', 'http_request_denied', 'never', 'On this destination only the placeholder of your sandbox may be sent as a credential.'),
  approval_required: refuse(403, 'Approval required', 'http_request_denied', 'after_approval', 'A human has to approve this first.'),
  approval_denied: refuse(403, 'Approval denied', 'http_request_denied', 'never', 'A human refused this.'),
  authority_mismatch: refuse(421, 'Misdirected request', 'http_request_error', 'never', 'The tunnel, the TLS server name and the Host field must name the same host.'),
  rate_limited: refuse(429, 'Too many requests', 'http_request_denied', 'after_30s', 'Slow down and retry after the given time.'),
  budget_exhausted: refuse(429, 'Budget exhausted', 'http_request_denied', 'after_30s', 'A budget of this sandbox is used up.'),
  dns_failed: refuse(502, 'Name resolution failed', 'dns_error', 'after_30s', 'The host name could not be resolved.'),
  upstream_unreachable: refuse(502, 'Upstream unreachable', 'destination_unavailable', 'after_30s', 'The upstream could not be reached.'),
  upstream_failed: refuse(502, 'Upstream failed', 'http_response_incomplete', 'after_30s', 'The upstream closed or answered with broken HTTP.'),
  upstream_tls: refuse(502, 'Upstream certificate not trusted', 'tls_certificate_error', 'never', 'The TLS certificate of the upstream could not be verified.'),
  unreadable_encoding: refuse(502, 'Unreadable content coding', 'http_response_content_coding', 'never', 'The response uses a content coding that cannot be read, so it was not passed on.'),
  bomb: refuse(502, 'Decompression limit', 'http_response_body_size', 'never', 'The response expands beyond the limit.'),
  credential_in_response: refuse(502, 'Credential in response', 'http_response_incomplete', 'never', 'The response contained a credential and was not passed on.'),
  credential_invalid: refuse(502, 'Credential invalid', 'proxy_internal_error', 'never', 'The stored credential cannot be sent in this field; tell the operator.'),
  not_ready: refuse(503, 'Not ready', 'proxy_internal_error', 'after_30s', 'The broker is starting or stopping.'),
  audit_unavailable: refuse(503, 'Audit unavailable', 'proxy_internal_error', 'after_30s', 'The event log cannot be written, so the request was not sent.'),
  issuer_unavailable: refuse(503, 'Credential unavailable', 'proxy_internal_error', 'after_30s', 'The credential behind the placeholder cannot be obtained now.'),
  upstream_timeout: refuse(504, 'Upstream timed out', 'http_response_timeout', 'after_30s', 'The upstream did not answer in time.'),
  dns_timeout: refuse(504, 'Name resolution timed out', 'dns_timeout', 'after_30s', 'The host name could not be resolved in time.'),
  internal: refuse(500, 'Internal error', 'proxy_internal_error', 'after_30s', 'The broker failed; the request was not sent.'),
} as const satisfies Record<string, Entry>

/** Why a request was refused. */
export type DenyReason = keyof typeof catalogue
/** Why a request was allowed. */
export type AllowReason = 'rule' | 'access' | 'observed' | 'approved'

/** What only events and operators see where the wire says `handle_unknown`: the truth about the handle. */
export type HandleTruth =
  'handle_never_issued' | 'handle_wrong_sandbox' | 'handle_revoked' | 'handle_expired' | 'handle_deleted'

/** Statuses that a stage may choose instead of the catalogue's own: RFC 9110 has one for each part that is too large. */
export const otherStatuses: Partial<Record<DenyReason, readonly number[]>> = {
  malformed: [501, 505],
  method_unsupported: [501],
  too_large: [413, 414],
}

/** A refusal as an exception, for the stages where a value cannot be returned (dial, TLS, issuer, store). */
export class Refusal extends Error {
  override readonly name = 'Refusal'
  readonly reason: DenyReason
  /** For the operator's log only, never for the client. */
  readonly detail: string | undefined
  /** HTTP status; the catalogue's unless a stage chose one of `otherStatuses`. */
  readonly status: number
  /** Client-safe sentence; the catalogue's unless a stage has a better one. */
  readonly hint: string

  constructor(
    reason: DenyReason,
    options: { cause?: unknown; detail?: string; status?: number; hint?: string } = {},
  ) {
    super(catalogue[reason].title, { cause: options.cause })
    this.reason = reason
    this.detail = options.detail
    this.status = options.status ?? catalogue[reason].status
    this.hint = options.hint ?? catalogue[reason].hint
  }
}

/** A failure the operator must see and mend: bad state on disk, a taken port, a missing file. */
export class OperatorError extends Error {
  override readonly name = 'OperatorError'
  /** Process exit code: 1 failed, 2 wrong usage or configuration. */
  readonly exitCode: 1 | 2

  constructor(message: string, options?: { cause?: unknown; exitCode?: 1 | 2 }) {
    super(message, options)
    this.exitCode = options?.exitCode ?? 1
  }
}
