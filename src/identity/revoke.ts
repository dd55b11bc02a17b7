import type { HandleRecord } from '../core/model.ts'
import { LifecycleError } from './lifecycle-model.ts'
import type { LifecycleConfig, LifecycleEvent, Revoked, RevokeRequest } from './lifecycle-model.ts'
import { eventOf, insteadOf } from './lifecycle-report.ts'
import { auditDone, findSandbox, voidProofs } from './lifecycle-state.ts'
import type { LifecycleDeps } from './lifecycle-state.ts'

/** Key of `Store.meta` under which the revocation of a credential or of one of its leases is kept. */
export function revokedKey(kind: 'credential' | 'lease', target: string): string {
  return `revoked:${kind}:${target}`
}

/** Revokes what an operator names. Repeating it is no error; an unknown target is. */
export async function revoke(deps: LifecycleDeps, request: RevokeRequest): Promise<Revoked> {
  switch (request.kind) {
    case 'handle':
      return revokeHandle(deps, request.target)
    case 'sandbox':
      return revokeSandbox(deps, request.target)
    case 'credential':
      return revokeCredential(deps, request.target)
    case 'lease':
      return revokeLease(deps, request.target)
  }
}

async function revokeHandle(deps: LifecycleDeps, target: string): Promise<Revoked> {
  const handle = (await deps.store.handles()).find(
    ({ id, placeholder }) => id === target || placeholder === target,
  )
  // The target is not repeated: it may be a mistyped credential.
  if (!handle) throw new LifecycleError('not_found', 'no handle has that id or placeholder')
  const fresh = handle.revokedAt === undefined
  if (fresh) {
    await deps.store.putHandle({ ...handle, revokedAt: deps.clock.now() })
    await deps.changed()
    await auditDone(deps, await handleEvent(deps, handle))
  }
  return {
    kind: 'handle',
    target: handle.id,
    handles: fresh ? 1 : 0,
    tokens: 0,
    upstream: sentence(deps.config(), credentialsOf(deps.config(), [handle.access])),
  }
}

async function handleEvent(deps: LifecycleDeps, handle: HandleRecord): Promise<LifecycleEvent> {
  const owner = (await deps.store.sandboxes()).find((record) => record.id === handle.sandboxId)
  const note = `handle revoked, access ${handle.access}`
  const event: LifecycleEvent = owner
    ? eventOf(owner, 'revoke', note)
    : { action: 'revoke', sandbox: handle.sandbox, note }
  return { ...event, access: handle.access, handle: handle.id }
}

/** Pauses the sandbox and voids its tokens and handles, so that nothing it holds works, even after a resume. */
async function revokeSandbox(deps: LifecycleDeps, name: string): Promise<Revoked> {
  const record = await findSandbox(deps.store, name)
  const accesses = (await deps.store.handles())
    .filter((handle) => handle.sandboxId === record.id && handle.revokedAt === undefined)
    .map((handle) => handle.access)
  await deps.store.putSandbox({ ...record, pausedAt: record.pausedAt ?? deps.clock.now() })
  const ended = await voidProofs(deps, record)
  await deps.changed()
  await auditDone(deps, eventOf(record, 'revoke', 'paused; tokens and placeholders revoked'))
  const upstream = sentence(deps.config(), credentialsOf(deps.config(), accesses))
  return { kind: 'sandbox', target: name, ...ended, upstream }
}

async function revokeCredential(deps: LifecycleDeps, name: string): Promise<Revoked> {
  checkCredential(deps.config(), name)
  await putRevoked(deps, 'credential', name)
  return done('credential', name, sentence(deps.config(), [name]))
}

async function revokeLease(deps: LifecycleDeps, lease: string): Promise<Revoked> {
  const [, name] = /^static:([^:]+):\d+$/.exec(lease) ?? []
  if (name === undefined)
    throw new LifecycleError('not_found', 'no lease has that id; events show it in their `lease` field')
  checkCredential(deps.config(), name)
  await putRevoked(deps, 'lease', lease)
  return done('lease', lease, sentence(deps.config(), [name]))
}

async function putRevoked(deps: LifecycleDeps, kind: 'credential' | 'lease', target: string): Promise<void> {
  await deps.store.putMeta(revokedKey(kind, target), new Date(deps.clock.now()).toISOString())
  await deps.changed()
  const note = `${kind} ${target} revoked`
  await auditDone(deps, { action: 'revoke', note, ...(kind === 'lease' ? { lease: target } : {}) })
}

function checkCredential(config: LifecycleConfig, name: string): void {
  if (config.credentials.has(name)) return
  throw new LifecycleError(
    'not_found',
    `no credential has that name${insteadOf(name, [...config.credentials.keys()])}`,
  )
}

function credentialsOf(config: LifecycleConfig, accesses: readonly string[]): string[] {
  const names = accesses.map((access) => config.access.get(access)?.credential)
  return [...new Set(names.filter((name) => name !== undefined))].sort()
}

/** Until when what Octroi no longer sends would still be accepted by the other side. */
function sentence(config: LifecycleConfig, credentials: readonly string[]): string {
  if (credentials.length === 0) return 'Octroi sends nothing for it any more; no credential stands behind it.'
  const parts = credentials.map((name) =>
    config.credentials.get(name)?.issuer === 'static'
      ? `the value of ${name} is static and stays valid upstream until you rotate it there`
      : `what was issued from ${name} stays valid upstream until it expires`,
  )
  return `Octroi sends nothing for it any more; ${parts.join('; ')}.`
}

function done(kind: 'credential' | 'lease', target: string, upstream: string): Revoked {
  return { kind, target, handles: 0, tokens: 0, upstream }
}
