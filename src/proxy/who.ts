import { Refusal } from '../core/errors.ts'
import { valuesOf } from '../http1/fields.ts'
import type { RequestHead } from '../http1/head.ts'
import type { SandboxView, Snapshot } from '../identity/model.ts'
import type { ClientConnection } from './connection.ts'
import type { Record } from './record.ts'

/** The sandbox that asks, and whether its proof is strong enough for a swap. */
export interface Who {
  readonly sandbox: SandboxView
  readonly mayUseHandles: boolean
}

/** Under which snapshot a request is judged, and where what is learned goes. */
export interface Judging {
  readonly snapshot: Snapshot
  readonly record: Record
}

/**
 * The sandbox that asks. Inside a tunnel it is the tunnel's, whatever the request carries (I6); outside, each request
 * proves its own, and a connection that has proved one sandbox cannot go on as another.
 */
export function whoAsks(client: ClientConnection, head: RequestHead, { snapshot, record }: Judging): Who {
  const { tunnel } = client
  if (tunnel !== undefined) return inside(tunnel, snapshot, record)
  const proofs = valuesOf(head.fields, 'proxy-authorization')
  // Two proofs in one request could be read as either; nobody's policy applies.
  if (proofs.length > 1) throw new Refusal('malformed', { detail: 'more than one Proxy-Authorization' })
  const identified = client.identify(snapshot, proofs[0])
  if (!identified.ok) {
    record.note =
      identified.sandboxes.length > 0 ? `proofs name ${identified.sandboxes.join(', ')}` : undefined
    throw new Refusal(identified.reason)
  }
  const { sandbox, mayUseHandles } = identified
  if (client.sandboxId !== undefined && client.sandboxId !== sandbox.id) {
    record.note = `the connection proved another sandbox before ${sandbox.name}`
    throw new Refusal('identity_mismatch')
  }
  record.sandbox = sandbox
  if (client.sandboxId === undefined) client.belongTo(sandbox)
  return { sandbox, mayUseHandles }
}

/**
 * Notes who sent a request that has no single reading, for its event only: an operator must see which sandbox tries to
 * smuggle. Nothing is decided by it.
 */
export function noteSender(client: ClientConnection, head: RequestHead, { snapshot, record }: Judging): void {
  const { tunnel } = client
  if (tunnel !== undefined) {
    const sandbox = snapshot.sandboxes.get(tunnel.sandboxName)
    if (sandbox?.id === tunnel.sandboxId) record.sandbox = sandbox
    return
  }
  const proofs = valuesOf(head.fields, 'proxy-authorization')
  if (proofs.length > 1) return
  const identified = client.identify(snapshot, proofs[0])
  if (identified.ok) record.sandbox = identified.sandbox
}

function inside(
  tunnel: { sandboxId: string; sandboxName: string; mayUseHandles: boolean },
  snapshot: Snapshot,
  record: Record,
): Who {
  const sandbox = snapshot.sandboxes.get(tunnel.sandboxName)
  if (sandbox === undefined || sandbox.id !== tunnel.sandboxId) throw new Refusal('revoked')
  record.sandbox = sandbox
  return { sandbox, mayUseHandles: tunnel.mayUseHandles }
}
