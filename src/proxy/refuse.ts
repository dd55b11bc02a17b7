import { Refusal } from '../core/errors.ts'
import type { RequestHead } from '../http1/head.ts'
import { requestFraming } from '../http1/framing.ts'
import { CutAnswer } from './answer.ts'
import { bodyOf, type Body } from './body.ts'
import { lingerClose, resetClose, send } from './byte-reader.ts'
import { ClientGone, type ClientConnection } from './connection.ts'
import { alertOfCredential, finishRefused } from './finish.ts'
import type { Record } from './record.ts'
import { asRefusal, refusalMessage } from './refusal.ts'
import { problemRefusal } from './request.ts'
import type { Leg } from './upstream-leg.ts'

/** Content of a refused request that is read and dropped to keep its connection, bytes. */
const drainedBytes = 64 * 1024

interface Context {
  readonly record: Record
  /** `undefined` when not even the head could be read. */
  readonly head: RequestHead | undefined
  /** The request's body if it was being read when the exchange failed. */
  readonly body: Body | undefined
  readonly leg: Leg | undefined
}

/**
 * Ends a failed exchange: tells the client if it can still be told, notes why, and lets go of the upstream. Resolves to
 * `true` when the connection is still good for another request.
 */
export async function refuse(client: ClientConnection, error: unknown, context: Context): Promise<boolean> {
  const { record, leg, head } = context
  if (leg !== undefined) client.plane.pool.discard(leg.upstream)
  if (error instanceof CutAnswer) return cut(client, error, record)
  if (error instanceof ClientGone || client.isGone) {
    record.end ??= 'client_gone'
    // What was decided stands in the log, though nobody is left to be told.
    if (!(error instanceof ClientGone)) note(client, asRefusal(error), record)
    if (record.denied !== undefined && leg === undefined && !record.isDecided)
      finishRefused(client.plane, record)
    client.socket.destroy()
    return false
  }
  let refusal = asRefusal(error)
  note(client, refusal, record)
  const isKept = await mayKeep(client, refusal, context)
  // What was sent upstream, or is durably decided, has an event of its own in any case.
  const id = leg === undefined && !record.isDecided ? finishRefused(client.plane, record) : record.id
  if (id === undefined) refusal = new Refusal('audit_unavailable')
  // A client that reads nothing is not waited for without end.
  client.allow(client.plane.limits.stallMs)
  await send(
    client.socket,
    refusalMessage(refusal, {
      id: id ?? record.id,
      destination: record.destination,
      isHead: head?.method === 'HEAD',
      keepAlive: isKept,
    }),
  )
  client.deadline = Infinity
  if (!isKept) lingerClose(client.socket)
  return isKept
}

function cut(client: ClientConnection, error: CutAnswer, record: Record): false {
  const { reason } = error
  if (reason instanceof ClientGone) record.end ??= 'client_gone'
  else {
    const refusal = asRefusal(reason)
    note(client, refusal, record)
    record.end ??= 'upstream_failed'
  }
  if (error.needsReset) resetClose(client.socket)
  else client.socket.destroy()
  return false
}

function note(client: ClientConnection, refusal: Refusal, record: Record): void {
  record.denied ??= refusal.reason
  record.status ??= refusal.status
  record.note ??= refusal.detail
  if (refusal.status === 502 || refusal.status === 504) record.end ??= 'upstream_failed'
  if (refusal.reason === 'credential_in_response') alertOfCredential(client.plane, record)
  if (refusal.reason !== 'internal') return
  client.plane.log.error({ id: record.id, err: refusal.cause }, 'an exchange failed inside the broker')
}

/** Framing must be certain and the body short enough to be dropped, or the next request could not be found. */
async function mayKeep(client: ClientConnection, refusal: Refusal, context: Context): Promise<boolean> {
  const { head, body } = context
  if (head === undefined || head.minor === 0 || refusal.status === 400 || refusal.status === 421) return false
  if (refusal.status >= 500 || refusal.reason === 'identity_mismatch' || refusal.reason === 'revoked')
    return false
  // One connection too many of its sandbox is not counted as its own, so it cannot stay.
  const isUncounted = client.tunnel === undefined && client.sandboxId === undefined
  if (refusal.status === 429 && isUncounted && context.record.sandbox !== undefined) return false
  if (head.fields.some(([name, value]) => name.toLowerCase() === 'connection' && /\bclose\b/i.test(value)))
    return false
  const framing = requestFraming(head)
  if ('problem' in framing) return false
  if (framing.kind === 'none') return true
  // A client that waits for 100 will not send the body after a final answer; one that does not wait will.
  if (head.fields.some(([name]) => name.toLowerCase() === 'expect')) return false
  if (framing.kind === 'length' && framing.length > drainedBytes) return false
  const rest =
    body ??
    bodyOf(client.reader, framing, {
      cut: () => new ClientGone('the request body was cut'),
      broken: problemRefusal,
    })
  return drain(client, rest)
}

async function drain(client: ClientConnection, body: Body): Promise<boolean> {
  client.allow(client.plane.limits.headMs)
  try {
    for (let dropped = 0; dropped <= drainedBytes;) {
      const piece = await body.next()
      if (piece === undefined) return true
      dropped += piece.length
    }
  } catch {
    return false
  } finally {
    client.deadline = Infinity
  }
  return false
}
