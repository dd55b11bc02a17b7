import type { Duplex } from 'node:stream'
import type { TLSSocket } from 'node:tls'

/**
 * Makes it safe to destroy a TLS socket after the socket below it. Node 24 then frees the TLS state at once, and when that
 * happens in a callback of this very state (a `data` or `secure` event, or a promise settled by one) the process ends
 * with SIGSEGV. The call is left out: the TLS socket follows by the `close` event of the one below. Call it right after
 * the TLS socket was made.
 */
export function guardDestroy(tls: TLSSocket, below: Duplex): void {
  let isClosed = false
  // Before the listener by which Node itself destroys the TLS socket; `closed` is true too early to tell.
  below.prependOnceListener('close', () => (isClosed = true))
  const destroy = tls.destroy.bind(tls)
  tls.destroy = (error) => (below.destroyed && !isClosed ? tls : destroy(error))
}
