import { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { TLSSocket } from 'node:tls'

/** Bytes held before the socket is paused, and below which it is resumed. */
const high = 256 * 1024
const low = 64 * 1024
/** Pieces held apart; a peer that sends byte by byte must not make each a step of its own. */
const manyPieces = 16

/**
 * Pull side of a socket: bytes are taken in order by one consumer, the socket is paused when nobody takes them. Ends
 * quietly: after `ended` or `closed` a wait resolves at once and the consumer decides what that means.
 */
export class ByteReader {
  readonly socket: Duplex
  #chunks: Buffer[] = []
  #size = 0
  #waiting: (() => void) | undefined
  #paused = false
  /** Nothing more will come. */
  ended = false
  /** The peer itself said so (FIN): nothing is missing. A connection that failed ended without. */
  finished = false
  /** The socket is gone in both directions. */
  closed = false
  /** Bytes taken off the socket so far. */
  total = 0

  readonly #onData = (chunk: Buffer): void => {
    this.total += chunk.length
    this.#chunks.push(chunk)
    this.#size += chunk.length
    if (this.#size > high && !this.#paused) {
      this.#paused = true
      this.socket.pause()
    }
    this.#wake()
  }

  readonly #onEnd = (): void => {
    this.finished = true
    this.ended = true
    this.#wake()
  }

  readonly #onError = (): void => {
    this.ended = true
    this.#wake()
  }

  readonly #onClose = (): void => {
    this.ended = true
    this.closed = true
    this.#wake()
  }

  constructor(socket: Duplex) {
    this.socket = socket
    socket.on('data', this.#onData)
    socket.on('end', this.#onEnd)
    socket.on('close', this.#onClose)
    socket.on('error', this.#onError)
    // What happened before is told to nobody again.
    if (socket.closed) this.#onClose()
    else if (socket.readableEnded) this.#onEnd()
    // A socket that another reader gave back is paused.
    socket.resume()
  }

  get size(): number {
    return this.#size
  }

  /** Everything received and not yet taken, as one buffer, without taking it. */
  peek(): Buffer {
    if (this.#chunks.length > 1) this.#chunks = [Buffer.concat(this.#chunks)]
    return this.#chunks[0] ?? Buffer.alloc(0)
  }

  /** Takes the first `count` bytes of what `peek` showed. */
  skip(count: number): void {
    const all = this.peek()
    const rest = all.subarray(count)
    this.#chunks = rest.length > 0 ? [rest] : []
    this.#size = rest.length
    this.#flow()
  }

  /** Takes what came in one piece, or in many small ones, at most `max` bytes; `undefined` when nothing is there. */
  take(max: number): Buffer | undefined {
    if (this.#chunks.length > manyPieces) this.peek()
    const first = this.#chunks[0]
    if (first === undefined) return undefined
    if (first.length <= max) this.#chunks.shift()
    else this.#chunks[0] = first.subarray(max)
    const taken = first.length <= max ? first : first.subarray(0, max)
    this.#size -= taken.length
    this.#flow()
    return taken
  }

  /** Resolves when more bytes have come than are there now, or nothing more will come. */
  async more(): Promise<void> {
    if (this.ended) return
    await new Promise<void>((resolve) => {
      this.#waiting = resolve
    })
  }

  /** Stops reading and gives the socket back with everything that was not taken, paused. */
  detach(): Buffer {
    this.socket.pause()
    this.socket.off('data', this.#onData)
    this.socket.off('end', this.#onEnd)
    const rest = this.peek()
    this.#chunks = []
    this.#size = 0
    return rest
  }

  #flow(): void {
    if (this.#paused && this.#size < low) {
      this.#paused = false
      this.socket.resume()
    }
  }

  #wake(): void {
    const waiting = this.#waiting
    this.#waiting = undefined
    waiting?.()
  }
}

/**
 * Writes; the promise, if there is one, resolves when the socket has room again or is closed. `undefined` means there is
 * room now, which spares a turn of the event loop on the common path.
 */
export function send(socket: Duplex, data: Buffer | string): Promise<void> | undefined {
  if (socket.destroyed) return undefined
  const hasRoom = typeof data === 'string' ? socket.write(data, 'latin1') : socket.write(data)
  return hasRoom ? undefined : room(socket)
}

function room(socket: Duplex): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      socket.off('drain', done)
      socket.off('close', done)
      resolve()
    }
    socket.on('drain', done)
    socket.on('close', done)
  })
}

/**
 * Ends the connection so that the peer cannot take it for the orderly end of a message: by a reset over TCP. TLS says the
 * same by the missing close_notify; a unix socket has no way to say it.
 */
export function resetClose(socket: Duplex): void {
  const isTcp =
    socket instanceof Socket && !(socket instanceof TLSSocket) && socket.remoteFamily !== undefined
  if (isTcp) socket.resetAndDestroy()
  else socket.destroy()
}

/** How long a slow peer may take for the end of what was written to it, `ms`. */
const flushMs = 300_000

/**
 * Ends our side and reads on for `ms` once everything is written, so that the peer can read what was sent before a reset
 * for its unread bytes throws it away (RFC 9112 section 9.6).
 */
export function lingerClose(socket: Duplex, ms = 1_000): void {
  if (socket.destroyed) return
  let timer: NodeJS.Timeout | undefined
  const destroyIn = (after: number): void => {
    clearTimeout(timer)
    timer = setTimeout(() => socket.destroy(), after).unref()
  }
  // TLS has no half-open state: a peer that ended may never take the rest, and nothing tells.
  const isLeft = (): boolean => socket instanceof TLSSocket && socket.readableEnded
  destroyIn(isLeft() ? ms : flushMs)
  socket.end(() => destroyIn(ms))
  socket.removeAllListeners('data')
  socket.on('data', () => undefined)
  socket.resume()
  socket.once('end', () => {
    if (socket.writableFinished) socket.destroy()
    else if (isLeft()) destroyIn(ms)
  })
  socket.once('close', () => clearTimeout(timer))
}
