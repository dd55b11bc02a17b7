import type { TLSSocket } from 'node:tls'
import type { DataPlane } from './plane.ts'

/** What `serverHandshake` says of a client that left. */
export const leftHandshake = 'closed'

/** Waits for the client's handshake, at most `handshakeMs`; resolves to what went wrong, `undefined` when nothing did. */
export function serverHandshake(socket: TLSSocket, plane: DataPlane): Promise<string | undefined> {
  return new Promise((resolve) => {
    const cancel = plane.clock.after(plane.limits.handshakeMs, () => done('timed out'))
    const done = (problem: string | undefined): void => {
      cancel()
      socket.off('secure', onSecure)
      socket.off('close', onClose)
      socket.off('readable', onReadable)
      resolve(problem)
    }
    const onSecure = (): void => done(undefined)
    const onClose = (): void => done(leftHandshake)
    // Nothing can be read before the handshake but its end, which is told to nobody who does not read.
    const onReadable = (): void => {
      if (socket.readableLength === 0) done(leftHandshake)
    }
    socket.on('secure', onSecure)
    socket.on('close', onClose)
    socket.on('readable', onReadable)
    socket.on('error', (error: NodeJS.ErrnoException) => done(error.code ?? 'failed'))
  })
}
