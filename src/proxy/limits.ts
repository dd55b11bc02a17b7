import { requestLimits, responseLimits, type HeadLimits } from '../http1/head.ts'

/** Time and size limits of the data plane; times in `ms`, sizes in bytes. */
export interface PlaneLimits {
  readonly requestHead: HeadLimits
  readonly responseHead: HeadLimits
  /** From the first byte of a head to its last; ends slow senders. */
  readonly headMs: number
  /** Between two requests of a kept connection. */
  readonly idleMs: number
  /** From the end of the request to the first byte of the response's head. */
  readonly firstByteMs: number
  /** Between two pieces of a request or response body. */
  readonly stallMs: number
  /** From a tunnel's 200 to a whole ClientHello or request head, and for the handshake. */
  readonly handshakeMs: number
  /** Without a byte in either direction of a spliced tunnel. */
  readonly tunnelIdleMs: number
  /** A client that sent FIN counts as gone when nothing could be written to it for this long. */
  readonly halfCloseMs: number
  /** Client connections of one listener. */
  readonly connections: number
  /** Client connections of one budget key, tunnels included: nobody may use up those of a listener or the descriptors. */
  readonly sandboxConnections: number
  /** Idle upstream connections kept, in all. */
  readonly idleUpstreams: number
  /** Age after which an idle upstream connection is not used again. */
  readonly upstreamIdleMs: number
  /** Response bodies up to this size are held whole on bound destinations and get a true length. */
  readonly heldBytes: number
  /** How long a bound response without a declared length is held for its end. */
  readonly heldMs: number
  /** Different parts of one credential that answers may show a sandbox before it is paused; see `Guesses`. */
  readonly guessedParts: number
  /** Informational responses before the final one. */
  readonly informational: number
  /** How long a graceful stop waits for exchanges in flight. */
  readonly drainMs: number
}

/** Limits in force where nothing else is said. */
export const defaultLimits: PlaneLimits = {
  requestHead: requestLimits,
  responseHead: responseLimits,
  headMs: 15_000,
  idleMs: 120_000,
  firstByteMs: 60_000,
  stallMs: 300_000,
  handshakeMs: 10_000,
  tunnelIdleMs: 3_600_000,
  halfCloseMs: 1_000,
  connections: 10_000,
  sandboxConnections: 5_000,
  idleUpstreams: 512,
  upstreamIdleMs: 4_000,
  heldBytes: 64 * 1024,
  heldMs: 50,
  guessedParts: 4,
  informational: 32,
  drainMs: 10_000,
}
