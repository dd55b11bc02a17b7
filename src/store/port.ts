import type { HandleRecord, SandboxRecord, SecretRecord, TokenRecord } from '../core/model.ts'
import type { Secret } from '../core/secret.ts'

/** A value that a static credential once had, sealed; redaction looks for it until it is removed. */
export interface PastValue {
  readonly credential: string
  readonly tenant: string
  readonly sealed: string
  /** `ms` since the epoch when it was first read. */
  readonly at: number
}

/** Key of `Store.meta` under which the revocation of a credential or of one of its leases is kept (ISO 8601 time). */
export function revokedKey(kind: 'credential' | 'lease', target: string): string {
  return `revoked:${kind}:${target}`
}

/** Everything but events that outlives the process. Every write is durable when its promise resolves. */
export interface Store {
  sandboxes(): Promise<SandboxRecord[]>
  /** Inserts or replaces by id; `OperatorError` when another living sandbox has the name. */
  putSandbox(record: SandboxRecord): Promise<void>

  tokens(): Promise<TokenRecord[]>
  putToken(record: TokenRecord): Promise<void>
  deleteToken(id: string): Promise<void>

  /** All handles ever made, dead ones included. */
  handles(): Promise<HandleRecord[]>
  /** Inserts or replaces by id; `OperatorError` when another handle has the placeholder. */
  putHandle(record: HandleRecord): Promise<void>

  secrets(): Promise<SecretRecord[]>
  putSecret(record: SecretRecord): Promise<void>
  deleteSecret(name: string): Promise<void>

  /** Values that credentials ever had, oldest first. */
  pastValues(): Promise<PastValue[]>
  putPastValue(value: PastValue): Promise<void>
  /** Removes the values of one credential that are older than `before` (`ms` since the epoch); all without it. */
  deletePastValues(credential: string, before?: number): Promise<void>

  /** Small durable settings: names of credentials revoked, schema facts. */
  meta(key: string): Promise<string | undefined>
  /** `undefined` removes the key. */
  putMeta(key: string, value: string | undefined): Promise<void>

  close(): Promise<void>
}

/** Seals and opens values with the key of the state folder (JWE, RFC 7516, `dir` + `A256GCM`). */
export interface Seal {
  seal(plain: string | Secret): Promise<string>
  /** `OperatorError` when the text was sealed with another key or was changed. */
  open(sealed: string): Promise<string>
}
