import { OperatorError } from '../core/errors.ts'

/** What the life cycle reads of the configuration: names and ceilings, which only the files may set. */
export interface LifecycleConfig {
  readonly templates: ReadonlyMap<string, TemplateCeiling>
  readonly sandboxes: ReadonlyMap<string, unknown>
  readonly access: ReadonlyMap<string, { readonly credential: string }>
  readonly credentials: ReadonlyMap<string, { readonly issuer: string }>
}

/** What a sandbox made at run time takes from its template. */
export interface TemplateCeiling {
  readonly tenant: string
  /** `ms`; the longest life a sandbox of this template may be given, and what it gets when none is asked for. */
  readonly maxTtlMs: number | undefined
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

export const revokeKinds = ['handle', 'lease', 'sandbox', 'credential'] as const

export interface RevokeRequest {
  readonly kind: (typeof revokeKinds)[number]
  /** Handle id or placeholder, lease id, sandbox name, credential name. */
  readonly target: string
}

export interface Revoked {
  readonly kind: RevokeRequest['kind']
  /** What was revoked; a handle by its id, also when the placeholder was given. */
  readonly target: string
  readonly handles: number
  readonly tokens: number
  /** A sentence for the operator: until when the value behind it stays valid upstream. */
  readonly upstream: string
}

/** What a sweep ended. */
export interface Swept {
  readonly sandboxes: readonly string[]
  readonly tokens: number
  readonly handles: number
}

/** One thing an operator (or the clock) did; becomes an `admin` event. */
export interface LifecycleEvent {
  readonly action: 'create' | 'pause' | 'resume' | 'destroy' | 'rotate-token' | 'revoke' | 'expire'
  readonly sandbox?: string | undefined
  readonly tenant?: string | undefined
  readonly template?: string | undefined
  readonly agent?: string | undefined
  readonly run?: string | undefined
  readonly access?: string | undefined
  readonly handle?: string | undefined
  readonly lease?: string | undefined
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
}
