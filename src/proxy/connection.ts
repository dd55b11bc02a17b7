import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { findHeadEnd, parseRequestHead, type RequestHead } from '../http1/head.ts'
import type { ConnectionFacts, Identified, SandboxView, Snapshot } from '../identity/model.ts'
import { ByteReader } from './byte-reader.ts'
import type { Timed } from './deadlines.ts'
import type { DataPlane } from './plane.ts'
import { problemRefusal, type Inside } from './request.ts'

/** The client is not there any more: nothing can be answered. */
export class ClientGone extends Error {
  override readonly name = 'ClientGone'
}

/** What is fixed for every request inside a tunnel. */
export interface TunnelFacts extends Inside {
  readonly sandboxId: string
  readonly sandboxName: string
  readonly mayUseHandles: boolean
  /** The TLS server name differs from the CONNECT name: every request inside is misdirected. */
  readonly isMisdirected: boolean
  /** TLS version of the client's side. */
  readonly tlsVersion: string | undefined
  /** Requests that came through, so that a tunnel without any leaves an event of its own. */
  requests: number
}

/** One client connection, or the inside of one tunnel: reads request heads in turn and knows when the client is gone. */
export class ClientConnection implements Timed {
  readonly plane: DataPlane
  readonly socket: Duplex
  readonly reader: ByteReader
  readonly facts: ConnectionFacts
  readonly tunnel: TunnelFacts | undefined
  deadline = Infinity
  /** Requests read so far. */
  count = 0
  #onGone: (() => void) | undefined
  #isExpired = false
  #identified: { snapshot: Snapshot; value: string | undefined; result: Identified } | undefined
  /** Id of the sandbox that first proved itself here. */
  sandboxId: string | undefined

  constructor(plane: DataPlane, socket: Duplex, from: { facts: ConnectionFacts; tunnel?: TunnelFacts }) {
    this.plane = plane
    this.socket = socket
    this.facts = from.facts
    this.tunnel = from.tunnel
    this.reader = new ByteReader(socket)
    if (socket.closed) return
    plane.deadlines.add(this)
    socket.on('close', () => {
      plane.deadlines.delete(this)
      this.#gone()
    })
    socket.on('end', () => this.#halfClosed())
  }

  get isGone(): boolean {
    return this.socket.destroyed || this.reader.closed
  }

  get source(): string {
    return this.facts.remoteAddress ?? this.facts.socketPath ?? 'unix'
  }

  /** Runs `fn` once when the client leaves; one at a time, `undefined` takes it back. */
  onGone(fn: (() => void) | undefined): void {
    this.#onGone = fn
    if (fn === undefined) return
    if (this.isGone) this.#gone()
    else if (this.reader.ended) this.#halfClosed()
  }

  /** From now on this connection is the sandbox's. Throws a `Refusal` when it has too many. */
  belongTo(sandbox: SandboxView): void {
    const { budgets, limits } = this.plane
    const release = budgets.openConnection(sandbox, limits.sandboxConnections)
    this.sandboxId = sandbox.id
    if (this.socket.closed) release()
    else this.socket.once('close', release)
  }

  expire(): void {
    this.#isExpired = true
    this.socket.destroy()
  }

  /** Sets the deadline to `ms` from now. */
  allow(ms: number): void {
    this.deadline = this.plane.clock.monotonic() + ms
  }

  /** Who asks, for the request just read; the same proof under the same snapshot is looked up once. */
  identify(snapshot: Snapshot, proxyAuthorization: string | undefined): Identified {
    const known = this.#identified
    if (known?.snapshot === snapshot && known.value === proxyAuthorization && known.result.ok)
      return known.result
    const result = this.plane.identify(this.facts, snapshot, proxyAuthorization)
    this.#identified = { snapshot, value: proxyAuthorization, result }
    return result
  }

  /** The next request head; `undefined` when the client is done. Throws a `Refusal` for a head that is not one. */
  async nextHead(): Promise<RequestHead | undefined> {
    const { limits } = this.plane
    this.allow(this.count === 0 && this.tunnel === undefined ? limits.headMs : limits.idleMs)
    let searched = 0
    let isStarted = false
    for (;;) {
      if (this.reader.size > 0) this.#dropEmptyLine()
      if (this.reader.size > searched) {
        if (!isStarted) {
          isStarted = true
          this.allow(limits.headMs)
        }
        const bytes = this.reader.peek()
        const end = findHeadEnd(bytes, searched, limits.requestHead)
        if (typeof end === 'number') return this.#head(bytes, end)
        if (end !== undefined) throw problemRefusal(end)
        searched = bytes.length
      }
      if (this.reader.ended || this.#isExpired) return undefined
      await this.reader.more()
    }
  }

  // RFC 9112 section 2.2: one empty line before a request is forgiven; some clients end a POST with it.
  #dropEmptyLine(): void {
    const bytes = this.reader.peek()
    if (bytes.length >= 2 && bytes[0] === 0x0d && bytes[1] === 0x0a) this.reader.skip(2)
  }

  #head(bytes: Buffer, end: number): RequestHead {
    const text = bytes.toString('latin1', 0, end - 4)
    this.reader.skip(end)
    this.deadline = Infinity
    this.count++
    const head = parseRequestHead(text, this.plane.limits.requestHead)
    if ('problem' in head) throw problemRefusal(head)
    return head
  }

  // FIN may come from a client that only finished sending, or from one that left: it gets a moment. A write is what
  // finds out, since a client that left answers it with a reset; so each one that was taken earns another moment.
  #halfClosed(): void {
    const waiting = this.#onGone
    if (waiting === undefined) return
    const written = this.#written
    this.plane.clock.after(this.plane.limits.halfCloseMs, () => {
      if (this.#onGone !== waiting) return
      if (this.#written > written || this.socket.writableLength > 0) this.#halfClosed()
      else this.#gone()
    })
  }

  get #written(): number {
    // Every socket served here is a `net.Socket`, plain or TLS; `Duplex` only says what is used of it.
    return (this.socket as Partial<Pick<Socket, 'bytesWritten'>>).bytesWritten ?? 0
  }

  #gone(): void {
    const fn = this.#onGone
    this.#onGone = undefined
    fn?.()
  }
}
