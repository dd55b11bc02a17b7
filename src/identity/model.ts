import type { Grant } from '../handles/model.ts'
import type { HandleRecord, TokenRecord } from '../core/model.ts'
import type { Cidr } from '../policy/address.ts'
import type { Policy } from '../policy/rules.ts'

/** One proof of identity. Within one alternative every proof must hold. */
export type Proof =
  | { readonly kind: 'token' }
  | { readonly kind: 'socket'; readonly path: string }
  | { readonly kind: 'port'; readonly port: number }
  | { readonly kind: 'source'; readonly range: Cidr }
  /** Lower-case hex SHA-256 of the certificate's DER. */
  | { readonly kind: 'client_certificate'; readonly sha256: string }

/** Limits of one sandbox; each has a default, a sandbox can only lower its template's. */
export interface Limits {
  /** Live tunnels. */
  readonly tunnels: number
  /** Requests in flight. */
  readonly requests: number
  readonly requestsPerMinute: number | undefined
  /** Request body, bytes; `undefined` means no limit. */
  readonly bodyBytes: number | undefined
  /** Response body, bytes; `undefined` means no limit. */
  readonly responseBytes: number | undefined
}

/** Everything one exchange needs to know of its sandbox; part of a snapshot, immutable. */
export interface SandboxView {
  readonly id: string
  readonly name: string
  readonly tenant: string
  readonly template: string | undefined
  readonly agent: string | undefined
  readonly run: string | undefined
  readonly policy: Policy
  readonly identity: readonly (readonly Proof[])[]
  readonly tokens: readonly TokenRecord[]
  readonly grants: readonly Grant[]
  /** Upper bound on lifetime; past it every request is `auth_invalid`. */
  readonly expiresAt: number | undefined
  readonly paused: boolean
  readonly limits: Limits
  /** Key of budgets: tenant + template + agent, so that a sandbox made again does not reset them. */
  readonly budgetKey: string
}

/** Compiled configuration and store, swapped whole. One exchange sees one snapshot. */
export interface Snapshot {
  /** Short hash of the policy in force, for events. */
  readonly hash: string
  readonly sandboxes: ReadonlyMap<string, SandboxView>
  /** Every placeholder ever issued, living or dead: the truth behind `handle_unknown`. */
  readonly handles: ReadonlyMap<string, HandleRecord>
  /** Host and port of every access of a tenant (`host:port`, patterns included): the bound destinations of redaction. */
  readonly bound: ReadonlyMap<string, BoundDestinations>
  /** Names from `self:`, canonical. */
  readonly selfNames: readonly string[]
}

/** Destinations of the accesses of one tenant. */
export interface BoundDestinations {
  /** Is host:port a destination of any access of the tenant? */
  has(host: string, port: number): boolean
}

/** What is known of a client connection before its first byte. */
export interface ConnectionFacts {
  /** Unix socket path or port of the listener it came in on, where that was opened as a proof. */
  readonly socketPath: string | undefined
  readonly port: number | undefined
  /** Peer address; `undefined` on a unix socket. */
  readonly remoteAddress: string | undefined
  readonly clientCertificate: string | undefined
  /**
   * Id of the sandbox for which the broker itself opened this listener (`octroi run`): proof enough alone. Not its name,
   * which another sandbox may have by now.
   */
  readonly openedFor: string | undefined
  /** Id of the run of `octroi run` that the listener was opened for; says nothing of who asks. */
  readonly run?: string | undefined
}

/** The sandbox that asks, or why none does. */
export type Identified =
  | {
      readonly ok: true
      readonly sandbox: SandboxView
      /** `false` for `source` alone. */ readonly mayUseHandles: boolean
    }
  | {
      readonly ok: false
      readonly reason: 'auth_missing' | 'auth_invalid' | 'identity_mismatch' | 'rate_limited'
      /** Names the proofs pointed at, for the event only. */
      readonly sandboxes: readonly string[]
    }
