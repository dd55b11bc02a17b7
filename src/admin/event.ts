import type { AuditEvent } from '../audit/event.ts'
import type { LifecycleEvent } from '../identity/lifecycle-model.ts'

/** The event of a life cycle operation: kind `run` for the end of a run, else `admin` with the action as `reason`. */
export function adminEvent(
  event: LifecycleEvent,
  stamp: { readonly id: string; readonly ts: number },
): AuditEvent {
  const { action, note, sandbox, tenant, template, agent, run, access, handle, lease } = event
  const who = { tenant, agent, sandbox, template, run }
  if (action === 'run') return { ...stamp, kind: 'run', ...who, exit: event.exit, note }
  return { ...stamp, kind: 'admin', ...who, reason: action, access, handle, lease, note }
}
