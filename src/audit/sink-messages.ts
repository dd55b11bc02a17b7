import type { Retention } from './event-writer.ts'
import type { SyncMode } from './events-database.ts'

/** What the sink's worker is started with. */
export interface WorkerOptions {
  readonly folder: string
  readonly sync: SyncMode
  readonly retention: Retention
}

/** What the sink asks of its worker; each is answered by one reply with the same `call`. */
export type WorkerRequest =
  /** JSON texts of events, in order. */
  | { readonly call: number; readonly op: 'write'; readonly events: readonly string[] }
  | { readonly call: number; readonly op: 'policy'; readonly hash: string; readonly text: string }
  | { readonly call: number; readonly op: 'orphans' }
  | { readonly call: number; readonly op: 'close' }

/** What the worker says: replies, and news of its own. */
export type WorkerReply =
  /** `value` is the number of orphans closed, else 0; `seq` is the chain's head. */
  | { readonly call: number; readonly ok: true; readonly value: number; readonly seq: number }
  | { readonly call: number; readonly ok: false; readonly message: string }
  /** The worker has opened the database. */
  | { readonly op: 'ready'; readonly seq: number }
  /** The database cannot be opened; the worker ends. */
  | { readonly op: 'unopened'; readonly message: string }
  /** The write-ahead log grows since a reader holds it. */
  | { readonly op: 'wal'; readonly bytes: number }
