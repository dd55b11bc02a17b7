import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'

/** How long the rest of an aborted side may take to reach the other, `ms`. */
const flushMs = 1_000

/**
 * Relays bytes both ways until both sides are closed. The end of one direction is passed on as an end: a half-closed
 * connection still carries the other direction.
 */
export async function pipeBoth(a: Duplex, b: Duplex): Promise<void> {
  const bothClosed = Promise.all([closing(a, b), closing(b, a)])
  a.pipe(b)
  b.pipe(a)
  await bothClosed
}

/** Resolves when `side` is closed; what was written to the `other` side is flushed before it goes too. */
function closing(side: Duplex, other: Socket | Duplex): Promise<void> {
  return new Promise((resolve) => {
    side.on('error', () => undefined)
    const closed = (): void => {
      if ('destroySoon' in other) other.destroySoon()
      else other.destroy()
      // Without an end of its own the side was cut off: a peer that does not take the rest must not be waited for.
      if (!side.readableEnded) destroyAfter(other, flushMs)
      resolve()
    }
    if (side.closed) closed()
    else side.once('close', closed)
  })
}

function destroyAfter(socket: Duplex, ms: number): void {
  if (socket.closed) return
  const timer = setTimeout(() => socket.destroy(), ms)
  timer.unref()
  socket.once('close', () => clearTimeout(timer))
}
