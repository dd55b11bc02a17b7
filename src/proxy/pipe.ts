import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'

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
    side.once('close', () => {
      if ('destroySoon' in other) other.destroySoon()
      else other.destroy()
      resolve()
    })
  })
}
