import type { Config } from '../config/model.ts'
import { OperatorError } from '../core/errors.ts'

/** What the life cycle reads of the configuration: names and ceilings, which only the files may set. */
export interface LifecycleConfig extends Pick<Config, 'templates' | 'sandboxes' | 'access'> {
  readonly credentials: ReadonlyMap<string, { readonly issuer: string }>
}

/**
 * `invalid` input, `not_found`, `conflict` with a living name, `refused` by a rule: not done, nothing changed.
 * `unaudited`: the event log is down; the message says whether it was done.
 */
export type LifecycleFault = 'invalid' | 'not_found' | 'conflict' | 'refused' | 'unaudited'

/** An operation that did not go as asked; the message is for the operator and repeats nothing that may be a secret. */
export class LifecycleError extends OperatorError {
  readonly fault: LifecycleFault

  constructor(fault: LifecycleFault, message: string, options: { cause?: unknown } = {}) {
    super(message, { ...options, exitCode: fault === 'invalid' ? 2 : 1 })
    this.fault = fault
  }
}

/** One handle of a sandbox as commands and API show it; never the placeholder. */
export interface HandleReport {
  readonly id: string
  readonly access: string
  readonly state: 'live' | 'revoked' | 'expired'
  readonly created_at: string
  readonly expires_at?: string | undefined
}

/** A sandbox as commands and API show it: the JSON as it is printed, times in ISO 8601. Never a token. */
export interface SandboxReport {
  readonly name: string
  readonly id: string
  readonly state: 'active' | 'paused' | 'expired'
  readonly origin: 'config' | 'runtime'
  readonly tenant: string
  readonly template?: string | undefined
  readonly agent?: string | undefined
  readonly run?: string | undefined
  readonly created_at: string
  readonly expires_at?: string | undefined
  readonly paused_at?: string | undefined
  /** Tokens that are accepted now; two during the overlap of a rotation. */
  readonly tokens: number
  readonly handles: readonly HandleReport[]
}

/** What a sandbox is made from. */
export interface CreateRequest {
  readonly template: string
  /** Made from the template's name when absent. */
  readonly name?: string | undefined
  readonly agent?: string | undefined
  readonly run?: string | undefined
  /** `ms`, at least 1,000; absent means the template's `max_ttl`, and without one no end. */
  readonly ttlMs?: number | undefined
}

/** The one answer that holds a new sandbox's token. */
export interface Created {
  readonly sandbox: SandboxReport
  readonly token: string
}

/** The one answer that holds a rotated token. */
export interface Rotated {
  readonly sandbox: SandboxReport
  readonly token: string
  /** ISO 8601; until then the old token is accepted too. */
  readonly old_valid_until: string
}

/** What can be revoked. */
export const revokeKinds = ['handle', 'lease', 'sandbox', 'credential'] as const

/** What to revoke, or whose revocation to take back. */
export interface RevokeRequest {
  readonly kind: (typeof revokeKinds)[number]
  /** Handle id or placeholder, lease id, sandbox name, credential name. */
  readonly target: string
  /** Takes back the revocation of a credential or lease; a handle or sandbox never gets back what it had. */
  readonly undo?: boolean | undefined
}

/** For which access a sandbox gets a new placeholder. */
export interface GrantRequest {
  readonly sandbox: string
  readonly access: string
}

/** The end of one `octroi run`. */
export interface EndedRun {
  readonly sandbox: string
  /** Exit code of the command, 0 to 255. */
  readonly exit: number
  /** Its id, as the events of its requests have it; default that of the sandbox. */
  readonly run?: string | undefined
}

/** What a revocation came to. */
export interface Revoked {
  readonly kind: RevokeRequest['kind']
  /** What was revoked; a handle by its id, also when the placeholder was given. */
  readonly target: string
  readonly handles: number
  readonly tokens: number
  /** A sentence for the operator: until when the value behind it stays valid upstream, or that it is sent again. */
  readonly upstream: string
}

/** What a sweep ended. */
export interface Swept {
  readonly sandboxes: readonly string[]
  readonly tokens: number
  readonly handles: number
}

/** One thing an operator (or the clock) did; becomes an `admin` event, `run` one of its own kind. */
export interface LifecycleEvent {
  readonly action:
    | 'create'
    | 'pause'
    | 'resume'
    | 'destroy'
    | 'rotate-token'
    | 'grant'
    | 'revoke'
    | 'reinstate'
    | 'expire'
    | 'run'
  readonly sandbox?: string | undefined
  readonly tenant?: string | undefined
  readonly template?: string | undefined
  readonly agent?: string | undefined
  readonly run?: string | undefined
  readonly access?: string | undefined
  readonly handle?: string | undefined
  readonly lease?: string | undefined
  /** Exit code, of `run` only. */
  readonly exit?: number | undefined
  readonly note: string
}

/** Everything that may be done to a sandbox while it lives. Rejects with `LifecycleError` when it was not done. */
export interface Lifecycle {
  create(request: CreateRequest): Promise<Created>
  /** The living, by name. */
  list(): Promise<SandboxReport[]>
  show(name: string): Promise<SandboxReport>
  pause(name: string): Promise<SandboxReport>
  resume(name: string): Promise<SandboxReport>
  /** Ends tokens and handles for good; the id is never used again. */
  destroy(name: string): Promise<void>
  /** `overlapMs`: how long the old token is accepted beside the new one; default 60,000, at most 24 h. */
  rotateToken(name: string, overlapMs?: number): Promise<Rotated>
  revoke(request: RevokeRequest): Promise<Revoked>
  /** A new placeholder in place of a revoked one, for an access that the files give the sandbox. */
  grant(request: GrantRequest): Promise<SandboxReport>
  /** A command that `octroi run` started in the sandbox has ended; writes the `run` event. */
  runEnded(run: EndedRun): Promise<void>
}
