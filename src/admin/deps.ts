import type { Clock } from '../core/clock.ts'
import type { Lifecycle } from '../identity/lifecycle-model.ts'

/** A part of the broker that must work before it serves. */
export type Part = 'store' | 'ca' | 'policy' | 'listeners' | 'audit'

/** What `octroi` shows of a running broker; JSON as it is printed. */
export interface BrokerStatus {
  /** Snapshot hash, as in events. */
  readonly policy: string
  readonly sandboxes: number
  readonly listeners: readonly { readonly name: string; readonly address: string }[]
  readonly audit: 'ok' | 'degraded' | 'full'
  /** ISO 8601. */
  readonly started_at: string
  readonly pid: number
  /** Started by `octroi run` for runs alone; ends by itself. */
  readonly private: boolean
  /** Runs that use the broker now. */
  readonly runs: number
}

/** The operator's log, as far as the admin API writes to it. */
export interface AdminLog {
  warn(fields: object, message: string): void
  error(fields: object, message: string): void
}

/** What the composition root gives the admin API. */
export interface AdminDeps {
  readonly clock: Clock
  /** Cryptographically random bytes. */
  readonly random: (bytes: number) => Uint8Array
  readonly log: AdminLog
  readonly lifecycle: Lifecycle
  readonly status: () => BrokerStatus
  /** Parts that do not work now; empty means ready. Asked anew at every `/readyz`. */
  readonly notReady: () => Promise<readonly Part[]>
  /** Loads the configuration anew, all or nothing; `OperatorError` leaves the old one in force. */
  readonly reload: () => Promise<{ readonly policy: string }>
  /** Root credentials in the sealed store were changed by another process: read them again. */
  readonly secretsChanged: () => Promise<void>
  /** Opens (or finds) the unix socket that is the identity of one sandbox, in one run if given, and returns its path. */
  readonly openSandboxSocket: (sandbox: string, run: string | undefined) => Promise<string>
  /** Counts a run until it is detached; `undefined` when the broker is about to end. */
  readonly attach: () => { readonly run: string; readonly detach: () => void } | undefined
  /** Ends a private broker that no run uses. */
  readonly handOver: () => 'stopping' | 'in_use' | 'permanent'
}
