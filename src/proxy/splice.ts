import type { Duplex } from 'node:stream'
import { Refusal } from '../core/errors.ts'
import { send } from './byte-reader.ts'
import type { Timed } from './deadlines.ts'
import { established } from './intercept.ts'
import { handBack, readOpening } from './opening.ts'
import { pipeBoth } from './pipe.ts'
import { decisionEvent } from './record.ts'
import type { OpenTunnel } from './tunnel.ts'

/**
 * A tunnel that is relayed unread. Its decision is durable before the 200, and no byte goes upstream before the
 * ClientHello's server name equals the CONNECT name, in the clear.
 */
export async function splice(tunnel: OpenTunnel): Promise<void> {
  const { client, approved, record, signal } = tunnel
  const { plane } = client
  if (plane.audit.state !== 'ok') throw new Refusal('audit_unavailable')
  const { socket: upstream, address } = await plane.connector.dial(approved, signal)
  const cut = (): void => {
    upstream.destroy()
  }
  const lost = (): void => {
    record.end ??= 'upstream_failed'
    client.socket.destroy()
  }
  signal.addEventListener('abort', cut)
  try {
    record.address = address
    record.tls = { mode: 'opaque' }
    await plane.audit.appendDurable(decisionEvent(record))
    record.isDecided = true
    signal.throwIfAborted()
    if (upstream.destroyed) throw new Refusal('upstream_failed', { detail: 'the upstream closed at once' })
    await send(client.socket, established)
    record.status = 200
    upstream.once('close', lost)
    await checkHello(tunnel)
    upstream.off('close', lost)
    await relay(tunnel, upstream)
  } finally {
    record.bytesUp = upstream.bytesWritten
    record.bytesDown = upstream.bytesRead
    upstream.destroy()
    // Before the 200 the client can still be told why.
    if (record.status === 200) client.socket.destroy()
  }
}

async function checkHello({ client, destination, record }: OpenTunnel): Promise<void> {
  const opening = await readOpening(client)
  if (opening.kind === 'nothing') {
    record.end ??= 'client_gone'
    return
  }
  if (opening.kind !== 'tls') throw new Refusal('non_tls')
  const { serverName, ech } = opening.hello
  if (ech) throw new Refusal('authority_mismatch', { detail: 'encrypted ClientHello' })
  if (serverName === undefined && destination.ip === 0) {
    throw new Refusal('authority_mismatch', { detail: 'no server name' })
  }
  if (serverName !== undefined && serverName !== destination.host) {
    throw new Refusal('authority_mismatch', { detail: 'another server name' })
  }
}

async function relay({ client, record }: OpenTunnel, upstream: Duplex): Promise<void> {
  if (record.end !== undefined) return
  const { plane, socket } = client
  handBack(client)
  // From here on the end of one direction is only that; the relay passes it on.
  client.onGone(undefined)
  const idle = new IdleTunnel(plane.limits.tunnelIdleMs, () => plane.clock.monotonic(), [socket, upstream])
  plane.deadlines.add(idle)
  await pipeBoth(socket, upstream)
  plane.deadlines.delete(idle)
  record.end ??= 'complete'
}

/** Ends a tunnel in which nothing moved for a whole period. */
class IdleTunnel implements Timed {
  deadline: number
  readonly #periodMs: number
  readonly #now: () => number
  readonly #sockets: readonly (Duplex & { bytesRead?: number; bytesWritten?: number })[]
  #moved = 0

  constructor(periodMs: number, now: () => number, sockets: readonly Duplex[]) {
    this.#periodMs = periodMs
    this.#now = now
    this.#sockets = sockets
    this.deadline = now() + periodMs
  }

  expire(): void {
    const moved = this.#sockets.reduce(
      (sum, { bytesRead = 0, bytesWritten = 0 }) => sum + bytesRead + bytesWritten,
      0,
    )
    if (moved > this.#moved) {
      this.#moved = moved
      this.deadline = this.#now() + this.#periodMs
      return
    }
    for (const socket of this.#sockets) socket.destroy()
  }
}
