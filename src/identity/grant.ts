import { effectivePolicy } from '../config/effective.ts'
import type { SandboxRecord } from '../core/model.ts'
import { entropyFor, makePlaceholder } from '../handles/placeholder.ts'
import { LifecycleError } from './lifecycle-model.ts'
import type { GrantRequest, LifecycleConfig, SandboxReport } from './lifecycle-model.ts'
import { eventOf, insteadOf } from './lifecycle-report.ts'
import { auditFirst, findSandbox, freshReport, newId } from './lifecycle-state.ts'
import type { LifecycleDeps } from './lifecycle-state.ts'

/**
 * Gives a sandbox a new placeholder for an access whose placeholder was revoked. Only for what the files grant it, and
 * only one that lives: the ceiling is theirs.
 */
export async function grant(deps: LifecycleDeps, request: GrantRequest): Promise<SandboxReport> {
  const config = deps.config()
  const sandbox = await findSandbox(deps.store, request.sandbox)
  const granted = accessesOf(config, sandbox)
  const access = granted.includes(request.access) ? config.access.get(request.access) : undefined
  if (access === undefined)
    throw new LifecycleError(
      'refused',
      `the configuration does not give ${sandbox.name} that access${insteadOf(request.access, granted)}`,
    )
  const own = (await deps.store.handles()).filter(
    (handle) => handle.sandboxId === sandbox.id && handle.access === access.name,
  )
  if (own.some((handle) => handle.revokedAt === undefined))
    throw new LifecycleError(
      'conflict',
      `${sandbox.name} has a live placeholder for ${access.name}; revoke that first`,
    )
  const id = newId(deps)
  await auditFirst(deps, {
    ...eventOf(sandbox, 'grant', `new placeholder for access ${access.name}`),
    access: access.name,
    handle: id,
  })
  await deps.store.putHandle({
    id,
    placeholder: makePlaceholder(access.shape, deps.random(entropyFor(access.shape))),
    sandboxId: sandbox.id,
    sandbox: sandbox.name,
    access: access.name,
    createdAt: deps.clock.now(),
    revokedAt: undefined,
    expiresAt: undefined,
  })
  await deps.changed()
  return freshReport(deps, sandbox)
}

/** Names of the accesses that the files give a sandbox. */
function accessesOf(config: LifecycleConfig, record: SandboxRecord): readonly string[] {
  const own = record.origin === 'config' ? config.sandboxes.get(record.name) : undefined
  const template = record.template === undefined ? undefined : config.templates.get(record.template)
  // A template that moved to another tenant gives nothing to the sandboxes made before.
  return effectivePolicy(template?.tenant === record.tenant ? template : undefined, own).access
}
