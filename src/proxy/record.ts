import type { AuditEvent } from '../audit/event.ts'
import type { DenyReason } from '../core/errors.ts'
import type { SandboxView, Snapshot } from '../identity/model.ts'
import type { Allow, Destination } from '../policy/model.ts'

/** How an exchange or tunnel ended. */
export type End = 'complete' | 'client_gone' | 'upstream_failed' | 'revoked'

/**
 * What is learned of one exchange or tunnel on its way, stage by stage; its events are made from it. Mutable on purpose
 * and private to one exchange: whatever stage fails, what is known so far gets into the event.
 */
export interface Record {
  readonly id: string
  /** Wall time of the start, `ms`. */
  readonly ts: number
  /** Monotonic start, `ms`. */
  readonly started: number
  readonly policy: string
  sandbox: SandboxView | undefined
  /** Peer address of the connection; only for aggregation and notes, not an event field. */
  readonly source: string
  /** Run of `octroi run` whose connection it is. */
  readonly run: string | undefined
  method: string | undefined
  scheme: string | undefined
  destination: Destination | undefined
  path: string | undefined
  address: string | undefined
  decision: Allow | undefined
  denied: DenyReason | undefined
  /** What the operator should know beyond the reason. */
  note: string | undefined
  rule: string | undefined
  access: string | undefined
  handle: string | undefined
  lease: string | undefined
  status: number | undefined
  bytesUp: number
  bytesDown: number
  redactions: number
  tls: AuditEvent['tls']
  end: End | undefined
  /** The `decision` event is durable; what follows is its `outcome`. */
  isDecided: boolean
  /** Its last event is written or counted. */
  isClosed: boolean
}

/** What is known of an exchange before its request is read. */
export interface RecordStart {
  readonly id: string
  readonly ts: number
  readonly started: number
  readonly snapshot: Snapshot
  readonly source: string
  readonly run: string | undefined
}

/** The record of an exchange or tunnel that begins. */
export function startRecord(start: RecordStart): Record {
  return {
    id: start.id,
    ts: start.ts,
    started: start.started,
    policy: start.snapshot.hash,
    source: start.source,
    run: start.run,
    sandbox: undefined,
    method: undefined,
    scheme: undefined,
    destination: undefined,
    path: undefined,
    address: undefined,
    decision: undefined,
    denied: undefined,
    note: undefined,
    rule: undefined,
    access: undefined,
    handle: undefined,
    lease: undefined,
    status: undefined,
    bytesUp: 0,
    bytesDown: 0,
    redactions: 0,
    tls: undefined,
    end: undefined,
    isDecided: false,
    isClosed: false,
  }
}

/** Who, where and what was decided: the fields that `exchange` and `decision` share. */
function decided(record: Record): Omit<AuditEvent, 'kind'> {
  const { sandbox, destination } = record
  return {
    id: record.id,
    ts: record.ts,
    tenant: sandbox?.tenant,
    agent: sandbox?.agent,
    sandbox: sandbox?.name,
    template: sandbox?.template,
    run: record.run ?? sandbox?.run,
    method: record.method,
    scheme: record.scheme,
    host: destination?.host,
    port: destination?.port,
    path: record.path,
    address: record.address,
    verdict: record.denied === undefined ? 'allow' : 'deny',
    reason: record.denied ?? record.decision?.reason,
    rule: record.rule ?? record.decision?.rule,
    policy: record.policy,
    access: record.access,
    handle: record.handle,
    lease: record.lease,
    tls: record.tls,
    note: noteOf(record),
  }
}

/** An upstream has its say in some notes, such as by the names of its certificate: as much as one line. */
const noteOf = ({ note }: Record): string | undefined => note?.slice(0, 500)

/** The durable half of a swapped exchange or a spliced tunnel. */
export const decisionEvent = (record: Record): AuditEvent => ({ ...decided(record), kind: 'decision' })

/** The event at the end: `exchange`, or the `outcome` of a decision. `now` is monotonic `ms`. */
export function endEvent(record: Record, now: number): AuditEvent {
  const result = {
    status: record.status,
    bytes_up: record.bytesUp,
    bytes_down: record.bytesDown,
    duration_ms: Math.round((now - record.started) * 10) / 10,
    redactions: record.redactions > 0 ? record.redactions : undefined,
    end: record.end ?? 'complete',
  }
  if (!record.isDecided) return { ...decided(record), ...result, kind: 'exchange' }
  const { id, sandbox } = record
  return {
    id,
    ts: record.ts + Math.round(now - record.started),
    kind: 'outcome',
    tenant: sandbox?.tenant,
    agent: sandbox?.agent,
    sandbox: sandbox?.name,
    // A decision that was overturned later (revoked, credential found in the response) says so here.
    ...(record.denied === undefined ? {} : { verdict: 'deny', reason: record.denied }),
    ...result,
    address: record.address,
    tls: record.tls,
    note: noteOf(record),
  }
}
