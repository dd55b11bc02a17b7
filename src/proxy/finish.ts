import type { DataPlane } from './plane.ts'
import { endEvent, type Record } from './record.ts'

/** Writes the event at the end of an exchange or tunnel: always exactly one, whatever happened. */
export function finish(plane: DataPlane, record: Record): void {
  if (record.isClosed) return
  record.isClosed = true
  if (plane.audit.appendEnd(endEvent(record, plane.clock.monotonic()))) return
  plane.log.error({ id: record.id }, 'an event could not be queued: the event log is closed')
}

/**
 * The same for a request that was refused before anything was sent for it. Returns the id that the client is told:
 * floods of identical refusals share one event. `undefined` when the log has no room for it.
 */
export function finishRefused(plane: DataPlane, record: Record): string | undefined {
  record.isClosed = true
  return plane.auditRefusal(endEvent(record, plane.clock.monotonic()), record.source)
}

/** Tells the operator of a credential that an upstream sent where none belongs; floods share one event. */
export function alertOfCredential(plane: DataPlane, record: Record): void {
  const { sandbox, destination } = record
  plane.auditRefusal(
    {
      id: plane.newId(),
      ts: plane.clock.now(),
      kind: 'alert',
      tenant: sandbox?.tenant,
      agent: sandbox?.agent,
      sandbox: sandbox?.name,
      host: destination?.host,
      port: destination?.port,
      reason: 'credential_in_response',
      note: `in the response of exchange ${record.id}`,
    },
    record.source,
  )
}
