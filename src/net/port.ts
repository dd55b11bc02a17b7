import type { Socket } from 'node:net'
import type { Cidr } from '../policy/address.ts'
import type { Destination } from '../policy/model.ts'

/** Name resolution: all addresses of a name, or a `Refusal` (`dns_failed`, `dns_timeout`, `metadata_denied`). */
export interface Resolver {
  resolve(host: string, signal: AbortSignal): Promise<readonly string[]>
}

/** The addresses of a destination that passed the guard, in the order to try; never empty. */
export interface Approved {
  readonly destination: Destination
  readonly addresses: readonly string[]
}

/** The only way out: judges a destination, then dials what was judged. */
export interface Connector {
  /** Resolve once and judge every address; a `Refusal` names what failed. Dials nothing. */
  approve(destination: Destination, opened: readonly Cidr[], signal: AbortSignal): Promise<Approved>
  /**
   * Connect to the first approved address that answers. The address dialled is one that was judged, and `approved` is the
   * object that `approve` returned. The socket allows half-open connections: its owner ends it after `end`.
   */
  dial(approved: Approved, signal: AbortSignal): Promise<{ socket: Socket; address: string }>
}
