import type { Socket } from 'node:net'
import type { Clock } from '../core/clock.ts'
import { Refusal } from '../core/errors.ts'
import { ByteReader } from './byte-reader.ts'
import type { Deadlines, Timed } from './deadlines.ts'

/** One connection to an upstream, dialled to an address that was judged. */
export class Upstream implements Timed {
  readonly socket: Socket
  readonly reader: ByteReader
  /** The literal that was dialled. */
  readonly address: string
  /** TLS version of this leg; `undefined` in cleartext. */
  readonly tlsVersion: string | undefined
  deadline = Infinity
  /** Exchanges that finished on it. */
  uses = 0
  /** Which of the pool's times it was made in. */
  epoch = 0
  /** Monotonic `ms` at which it became idle, and the age at which its server closes it, if that is known. */
  idleSince = 0
  serverIdleMs = Infinity
  #error: Error | undefined

  constructor(socket: Socket, address: string, tlsVersion: string | undefined) {
    this.socket = socket
    this.address = address
    this.tlsVersion = tlsVersion
    tellFailedWritesLate(socket)
    this.reader = new ByteReader(socket)
  }

  /** Nothing came that was not asked for, and both directions are open. */
  get isFresh(): boolean {
    return !this.reader.ended && this.reader.size === 0 && !this.socket.destroyed && this.socket.writable
  }

  /** Why it cannot be used any more. */
  get failure(): Error {
    return this.#error ?? new Refusal('upstream_failed', { detail: 'the upstream closed the connection' })
  }

  /** Ends the connection; whoever reads from it learns `error`. */
  fail(error: Error): void {
    this.#error ??= error
    this.socket.destroy()
  }

  expire(): void {
    this.fail(new Refusal('upstream_timeout'))
  }
}

/**
 * A write that fails says that the upstream has reset the connection, not that it said nothing: it may have refused the
 * upload first, and that answer lies unread in the kernel (RFC 9112 section 9.6). The stream destroys the socket when it
 * learns of the failure, so it learns of it after one more turn of reading.
 */
function tellFailedWritesLate(socket: Socket): void {
  const write = socket._write.bind(socket)
  const writev = socket._writev?.bind(socket)
  socket._write = (data, encoding, done) => write(data, encoding, late(done))
  if (writev !== undefined) socket._writev = (pieces, done) => writev(pieces, late(done))
}

type Done = (error?: Error | null) => void

const late =
  (done: Done): Done =>
  (error) => {
    if (error instanceof Error) setImmediate(() => setImmediate(() => done(error)))
    else done()
  }

/**
 * Idle upstream connections by key. A key holds the sandbox, the scheme and the destination, so no connection ever
 * carries two sandboxes; the address was judged when it was dialled and is judged again before each use.
 */
export class UpstreamPool {
  readonly #clock: Clock
  readonly #deadlines: Deadlines
  readonly #idle = new Map<string, Upstream[]>()
  readonly #max: number
  readonly #idleMs: number
  #count = 0
  #epoch = 0

  constructor(options: { clock: Clock; deadlines: Deadlines; max: number; idleMs: number }) {
    this.#clock = options.clock
    this.#deadlines = options.deadlines
    this.#max = options.max
    this.#idleMs = options.idleMs
  }

  get size(): number {
    return this.#count
  }

  /** The connection used last, if one is idle and still good. */
  take(key: string): Upstream | undefined {
    const idle = this.#idle.get(key)
    for (;;) {
      const upstream = idle?.pop()
      if (upstream === undefined) break
      this.#count--
      if (idle?.length === 0) this.#idle.delete(key)
      const age = this.#clock.monotonic() - upstream.idleSince
      if (upstream.isFresh && age < Math.min(this.#idleMs, upstream.serverIdleMs)) {
        upstream.deadline = Infinity
        return upstream
      }
      this.discard(upstream)
    }
    return undefined
  }

  /** Counts a new connection in: its deadline is watched from now on. */
  track(upstream: Upstream): void {
    upstream.epoch = this.#epoch
    this.#deadlines.add(upstream)
    upstream.socket.once('close', () => this.#deadlines.delete(upstream))
  }

  /** Keeps a connection whose exchange is complete. */
  give(key: string, upstream: Upstream): void {
    if (!upstream.isFresh || upstream.epoch !== this.#epoch || this.#count >= this.#max) {
      this.discard(upstream)
      return
    }
    upstream.uses++
    upstream.idleSince = this.#clock.monotonic()
    upstream.deadline = upstream.idleSince + this.#idleMs
    const idle = this.#idle.get(key)
    if (idle === undefined) this.#idle.set(key, [upstream])
    else idle.push(upstream)
    this.#count++
    // Once for its whole life, or a busy connection would gather a listener with each exchange.
    if (upstream.uses === 1) upstream.socket.once('close', () => this.#forget(key, upstream))
  }

  discard(upstream: Upstream): void {
    upstream.socket.destroy()
  }

  /** Ends every idle connection, and keeps none of those that are in use now: trust or names have changed. */
  renew(): void {
    this.#epoch++
    this.close()
  }

  /** Ends every idle connection. */
  close(): void {
    for (const idle of [...this.#idle.values()]) for (const upstream of [...idle]) this.discard(upstream)
    this.#idle.clear()
    this.#count = 0
  }

  #forget(key: string, upstream: Upstream): void {
    const idle = this.#idle.get(key)
    const at = idle?.indexOf(upstream) ?? -1
    if (idle === undefined || at < 0) return
    idle.splice(at, 1)
    this.#count--
    if (idle.length === 0) this.#idle.delete(key)
  }
}
