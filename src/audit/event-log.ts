import type { Clock } from '../core/clock.ts'
import type { AuditSink } from './event.ts'
import type { Retention } from './event-writer.ts'
import type { SyncMode } from './events-database.ts'

/** What is kept unless the configuration says otherwise. */
export const defaultRetention: Retention = {
  retentionMs: 90 * 86_400_000,
  maxEvents: 1_000_000,
  maxBytes: 1024 * 1024 * 1024,
}

/** How to open the event log of a state folder. */
export interface EventLogOptions {
  readonly folder: string
  /** Default `full`. */
  readonly sync?: SyncMode
  /** Default 90 days, a million events, 1 GiB; `Infinity` is no bound. */
  readonly retention?: Retention
  readonly clock?: Clock
  /** A sentence for the operator's log when the store goes down, comes back or grows too large. */
  readonly onProblem?: (message: string) => void
}

/** The sink with what only the composition root uses. */
export interface EventLog extends AuditSink {
  /** Ends decisions that a crash left open with an outcome `lost`; returns how many. Never touches those of this sink. */
  closeOrphans(): Promise<number>
  /** Keeps the text of a policy by its hash, so that old decisions can be explained. Retried until it is written. */
  recordPolicy(hash: string, text: string): void
}
