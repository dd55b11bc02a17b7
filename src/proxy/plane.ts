import type { AuditEvent, AuditSink } from '../audit/event.ts'
import type { Broker } from '../broker/port.ts'
import type { Clock } from '../core/clock.ts'
import type { ConnectionFacts, Identified, Snapshot } from '../identity/model.ts'
import type { Connector } from '../net/port.ts'
import type { UpstreamTls } from '../net/upstream-tls.ts'
import type { Patterns } from '../redact/forms.ts'
import type { LeafSource } from '../tls/port.ts'
import type { Budgets } from './budgets.ts'
import type { Deadlines } from './deadlines.ts'
import type { PlaneLimits } from './limits.ts'
import type { Guesses } from './guesses.ts'
import type { LiveSet } from './live.ts'
import type { UpstreamPool } from './upstream-pool.ts'

/** What the log of the data plane takes; never a header value, a URL's query or a body. */
export interface PlaneLog {
  debug(fields: object, message: string): void
  warn(fields: object, message: string): void
  error(fields: object, message: string): void
}

/** Everything an exchange works with; built once by the composition root. */
export interface DataPlane {
  readonly clock: Clock
  readonly limits: PlaneLimits
  readonly log: PlaneLog
  /** The snapshot in force; taken once per exchange. */
  snapshot(): Snapshot
  /** Who asks; counts failures per source. */
  identify(facts: ConnectionFacts, snapshot: Snapshot, proxyAuthorization: string | undefined): Identified
  /** Is this host and port one of the broker's own, by name or literal? */
  isSelf(host: string, port: number): boolean
  readonly connector: Connector
  readonly upstreamTls: UpstreamTls
  readonly leaves: LeafSource
  readonly broker: Broker
  /** Compiled forms of every secret of the tenant; `undefined` when it has none. */
  patterns(tenant: string): Patterns | undefined
  readonly audit: AuditSink
  /**
   * A refusal's event, of a client at `source`: identical ones past a rate become one with a count. Returns the id of the
   * event that counts it, `undefined` when the log has no room.
   */
  auditRefusal(event: AuditEvent, source: string): string | undefined
  readonly budgets: Budgets
  readonly guesses: Guesses
  readonly live: LiveSet
  readonly deadlines: Deadlines
  readonly pool: UpstreamPool
  /** A new event id. */
  newId(): string
  /** False while starting or stopping: new requests get `not_ready`. */
  isReady(): boolean
}
