import type { Socket } from 'node:net'
import { judge, parseAddress } from '../policy/address.ts'
import type { Cleared } from './admit.ts'
import type { DataPlane } from './plane.ts'
import type { Record } from './record.ts'
import { Upstream } from './upstream-pool.ts'

/** The connection of one exchange. */
export interface Leg {
  readonly key: string
  readonly upstream: Upstream
  /** It carried another exchange before. */
  readonly isReused: boolean
}

/**
 * A connection to the destination of a cleared request: a kept one whose address still passes, else a new one. A name is
 * resolved and every address judged on each new connection, and the address dialled is one of those judged (I5).
 */
export async function connectUpstream(
  plane: DataPlane,
  cleared: Cleared,
  options: { record: Record; signal: AbortSignal; mayReuse: boolean },
): Promise<Leg> {
  const { record, signal, mayReuse } = options
  const key = poolKey(cleared)
  const kept = mayReuse ? takeKept(plane, cleared, key) : undefined
  const upstream = kept ?? (await dial(plane, cleared, signal))
  record.address = upstream.address
  return { key, upstream, isReused: kept !== undefined }
}

function poolKey({ sandbox, request }: Cleared): string {
  const { host, port } = request.destination
  return `${sandbox.id} ${request.scheme} ${host} ${port}`
}

function takeKept(plane: DataPlane, cleared: Cleared, key: string): Upstream | undefined {
  const upstream = plane.pool.take(key)
  if (upstream === undefined) return undefined
  const address = parseAddress(upstream.address)
  if (address !== undefined && judge(address, cleared.decision.addresses).allowed) return upstream
  plane.pool.discard(upstream)
  return undefined
}

async function dial(plane: DataPlane, cleared: Cleared, signal: AbortSignal): Promise<Upstream> {
  const { destination, scheme } = cleared.request
  const approved = await plane.connector.approve(destination, cleared.decision.addresses, signal)
  const { socket, address } = await plane.connector.dial(approved, signal)
  const upstream = await secured(plane, { socket, address, scheme, servername: destination.host, signal })
  plane.pool.track(upstream)
  return upstream
}

async function secured(
  plane: DataPlane,
  leg: { socket: Socket; address: string; scheme: string; servername: string; signal: AbortSignal },
): Promise<Upstream> {
  const { socket, address, servername, signal } = leg
  if (leg.scheme === 'http') return new Upstream(socket, address, undefined)
  const tls = await plane.upstreamTls.connectTls(socket, { servername, signal })
  return new Upstream(tls, address, tls.getProtocol() ?? undefined)
}
