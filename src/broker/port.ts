import type { Secret } from '../core/secret.ts'
import type { Access } from '../handles/model.ts'

/** A value that an upstream accepts. */
export interface Credential {
  readonly value: Secret
  /** Id of the lease; for a static credential its name and version, such as `static:openai:3`. */
  readonly lease: string
  readonly expiresAt: number | undefined
}

/** A value the redactor looks for. */
export interface RedactionEntry {
  /** Stable id of the value. */
  readonly id: string
  /** Name of the credential it belongs to; a sandbox with an access to it sees its own placeholder instead. */
  readonly credential: string
  readonly value: Secret
  /** Below 64 bits or 12 characters: match whole only, never partial runs. */
  readonly short: boolean
}

/** All values of a tenant; `version` changes whenever the set does. */
export interface RedactionSet {
  readonly version: number
  readonly entries: readonly RedactionEntry[]
}

/** Where exchanges get credentials, and redaction its values. */
export interface Broker {
  /** The credential behind an access, or `Refusal('issuer_unavailable' | 'revoked')`. */
  credential(access: Access, tenant: string, signal: AbortSignal): Promise<Credential>
  /** Is the credential of that name, or the lease of it in use, revoked? What was swapped with it ends. */
  isRevoked(credential: string): boolean
  /** Every credential and root credential of the tenant: live ones, and static ones ever used until removed. */
  redactionSet(tenant: string): RedactionSet
}
