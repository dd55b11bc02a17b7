import type { Secret } from '../core/secret.ts'

/** Where a value is kept; the same shape as in the configuration. */
export type ValueSource =
  | { readonly kind: 'env'; readonly name: string }
  /** Absolute path. */
  | { readonly kind: 'file'; readonly path: string }
  /** Name in the sealed store. */
  | { readonly kind: 'secret'; readonly name: string }
  /** Program and arguments, run without a shell; stdout is the value. */
  | { readonly kind: 'command'; readonly argv: readonly string[] }

/** What a credential is made from. */
export interface CredentialSource {
  readonly name: string
  readonly issuer: 'static'
  readonly value: ValueSource
  /** Values under 64 bits or 12 characters are accepted, and then matched whole only. */
  readonly allowShort: boolean
}

/** A value fresh from its issuer. */
export interface Issued {
  readonly value: Secret
  /** Equal for equal values within this process, and tells nothing about the value. */
  readonly id: string
  /** Below 64 bits or 12 characters. */
  readonly short: boolean
  /** `ms` since the epoch; `undefined` for a value that does not expire by itself. */
  readonly expiresAt: number | undefined
}

/** Makes the value of one credential. */
export interface Issuer {
  readonly kind: 'static'
  /** A value, or `Refusal` (`issuer_unavailable`, `credential_invalid`) whose detail says what to mend. */
  issue(signal: AbortSignal): Promise<Issued>
  /** Changes whenever `issue` may give something else; cheap enough to ask every second. */
  stamp(): Promise<string>
}

/** What issuers need of the world. */
export interface IssuerWorld {
  readonly env: Readonly<Record<string, string | undefined>>
  /** A value of the sealed store; `undefined` when there is none. */
  readonly secret: (name: string) => Promise<Secret | undefined>
  /** Changes with the value, without opening it; `undefined` when there is none. */
  readonly secretStamp: (name: string) => Promise<string | undefined>
}
