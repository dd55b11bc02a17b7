import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import type { Socket } from 'node:net'

/** Every `connect()` of this process that the test did not make itself, as `address:port`, at the moment it is tried. */
export interface DialTap {
  readonly dials: string[]
  /** Runs `fn`; what it connects at once is the test's own. */
  own<T>(fn: () => T): T
  stop(): void
}

const channel = 'net.client.socket'

export function tapDials(): DialTap {
  const dials: string[] = []
  let isOwn = false
  const onSocket = (message: unknown): void => {
    if (isOwn) return
    // `as`: what Node documents for this channel.
    const { socket } = message as { socket: Socket }
    socket.on('connectionAttempt', (address: string, port: number) => void dials.push(`${address}:${port}`))
  }
  subscribe(channel, onSocket)
  return {
    dials,
    own(fn) {
      isOwn = true
      try {
        return fn()
      } finally {
        isOwn = false
      }
    },
    stop: () => void unsubscribe(channel, onSocket),
  }
}
