/**
 * An event as it is written: one JSON object, fields in this order, absent ones left out. Never a credential, a proxy
 * password, a body or a prompt. `v`, `seq`, `prev` and `hash` are the sink's to fill.
 */
export interface AuditEvent {
  readonly id: string
  /** `ms` since the epoch. */
  readonly ts: number
  readonly kind:
    'exchange' | 'decision' | 'outcome' | 'dns' | 'run' | 'credential' | 'approval' | 'admin' | 'alert'
  readonly tenant?: string | undefined
  readonly agent?: string | undefined
  readonly sandbox?: string | undefined
  readonly template?: string | undefined
  readonly run?: string | undefined
  readonly caller?: string | undefined
  readonly server?: string | undefined
  readonly tool?: string | undefined
  readonly call?: string | undefined
  readonly method?: string | undefined
  readonly scheme?: string | undefined
  readonly host?: string | undefined
  readonly port?: number | undefined
  /** Without query; secret segments replaced. */
  readonly path?: string | undefined
  /** The address dialled. */
  readonly address?: string | undefined
  readonly verdict?: 'allow' | 'deny' | undefined
  readonly reason?: string | undefined
  readonly would?: string | undefined
  readonly rule?: string | undefined
  /** Snapshot hash. */
  readonly policy?: string | undefined
  readonly access?: string | undefined
  readonly handle?: string | undefined
  readonly lease?: string | undefined
  readonly approval?: string | undefined
  readonly status?: number | undefined
  readonly bytes_up?: number | undefined
  readonly bytes_down?: number | undefined
  readonly duration_ms?: number | undefined
  readonly redactions?: number | undefined
  readonly registry?:
    { ecosystem: string; package?: string; version?: string; integrity?: string } | undefined
  readonly tls?:
    { mode: 'terminate' | 'splice' | 'opaque' | 'none'; version?: string; alpn?: string } | undefined
  readonly exit?: number | undefined
  readonly artifacts?: readonly string[] | undefined
  readonly end?: 'complete' | 'client_gone' | 'upstream_failed' | 'revoked' | 'lost' | undefined
  /** How many identical refusals this event stands for; absent means 1. */
  readonly count?: number | undefined
  /** Free, bounded text for `admin`, `alert`, `run` and `credential` events; no credential, no request bytes. */
  readonly note?: string | undefined
}

/** Where events go. */
export interface AuditSink {
  /**
   * Queues an event. Returns `false` when it cannot be taken: the queue is full or the store is down and the bounded
   * queue (10,000) has no room; the caller then refuses with `audit_unavailable`.
   */
  append(event: AuditEvent): boolean
  /**
   * Queues the event of an exchange that was let in, also where there is no room any more: what went out must be written
   * down, and there are never more than exchanges in flight. Returns `false` once the sink is closed.
   */
  appendEnd(event: AuditEvent): boolean
  /** Resolves when the event is durable, rejects with `Refusal('audit_unavailable')` at once when it cannot be made so. */
  appendDurable(event: AuditEvent): Promise<void>
  /** `ok`, `degraded` (store down, queue has room) or `full`. */
  readonly state: 'ok' | 'degraded' | 'full'
  /** Writes what is queued, then closes. */
  close(): Promise<void>
}
