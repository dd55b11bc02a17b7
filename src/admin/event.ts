import type { AuditEvent } from '../audit/event.ts'
import type { LifecycleEvent } from '../identity/lifecycle-model.ts'

/** The `admin` event of a life cycle operation; `reason` is the action. */
export function adminEvent(
  event: LifecycleEvent,
  stamp: { readonly id: string; readonly ts: number },
): AuditEvent {
  const { action, note, sandbox, tenant, template, agent, run, access, handle, lease } = event
  const who = { tenant, agent, sandbox, template, run }
  return { id: stamp.id, ts: stamp.ts, kind: 'admin', ...who, reason: action, access, handle, lease, note }
}
