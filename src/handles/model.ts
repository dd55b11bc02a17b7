import type { HandleRecord } from '../core/model.ts'
import type { AccessDestination } from '../policy/model.ts'

/** The only place of a request in which a placeholder is swapped. */
export type Slot =
  /** Header field; with a scheme the value is `SCHEME SP placeholder`, without one it is the placeholder alone. */
  | { readonly kind: 'header'; readonly name: string; readonly scheme: string | undefined }
  /** `Authorization: Basic`, RFC 7617: the placeholder is the whole user name or the whole password. */
  | { readonly kind: 'basic'; readonly field: 'user' | 'password' }

/** Textual form of placeholders: `prefix` + marker + random, `length` characters in all, at least 128 random bits. */
export interface Shape {
  readonly prefix: string
  readonly length: number
}

/** An access as the configuration declares it. */
export interface Access {
  readonly name: string
  readonly credential: string
  readonly destinations: readonly AccessDestination[]
  readonly slot: Slot
  readonly shape: Shape
  /** Environment variable that carries the placeholder in the sandbox. */
  readonly env: string | undefined
  readonly foreign: 'refuse' | 'allow'
}

/** A sandbox has an access: the access and the live handle made for it. */
export interface Grant {
  readonly access: Access
  readonly handle: HandleRecord
}
