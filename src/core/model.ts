/**
 * Records that several parts share. Times are `ms` since the epoch; a missing time means "never".
 */

/** A sandbox as the store keeps it. Names are unique among the living; ids are never reused. */
export interface SandboxRecord {
  /** Random, never reused, so that a sandbox made again under an old name inherits nothing. */
  readonly id: string
  readonly name: string
  /** `config` sandboxes live in the files, `runtime` ones were made from a template. */
  readonly origin: 'config' | 'runtime'
  readonly tenant: string
  readonly template: string | undefined
  readonly agent: string | undefined
  readonly run: string | undefined
  readonly createdAt: number
  readonly expiresAt: number | undefined
  readonly pausedAt: number | undefined
  readonly destroyedAt: number | undefined
}

/** One proxy password of a sandbox. `sealed` is a JWE that only the state folder's key opens. */
export interface TokenRecord {
  readonly id: string
  readonly sandboxId: string
  /** Lower-case hex SHA-256 of the token; what a presented password is compared with, in constant time. */
  readonly sha256: string
  readonly sealed: string
  readonly createdAt: number
  /** End of validity, set by a rotation (now + overlap). */
  readonly expiresAt: number | undefined
}

/** What a placeholder on the wire refers to. */
export interface HandleRecord {
  readonly id: string
  readonly placeholder: string
  readonly sandboxId: string
  /** Name of the sandbox at the time of issue; only for events about a handle of a destroyed sandbox. */
  readonly sandbox: string
  readonly access: string
  readonly createdAt: number
  readonly revokedAt: number | undefined
  readonly expiresAt: number | undefined
}

/** A root credential in the sealed store. */
export interface SecretRecord {
  readonly name: string
  readonly sealed: string
  readonly version: number
  readonly updatedAt: number
}
