import type { SecureContext } from 'node:tls'

/** Server-side TLS contexts with a leaf certificate for one host, minted off the hot path and cached. */
export interface LeafSource {
  /** `host` is a canonical name or IP literal. */
  contextFor(host: string): Promise<SecureContext>
  /** Fingerprint of the CA in use (lower-case hex SHA-256 of its DER). */
  readonly caFingerprint: string
}
