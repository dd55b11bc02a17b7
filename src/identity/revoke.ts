import type { HandleRecord } from '../core/model.ts'
import { revokedKey } from '../store/port.ts'
import { LifecycleError } from './lifecycle-model.ts'
import type { LifecycleConfig, LifecycleEvent, Revoked, RevokeRequest } from './lifecycle-model.ts'
import { eventOf, insteadOf, iso } from './lifecycle-report.ts'
import { auditDone, auditFirst, findSandbox, voidProofs } from './lifecycle-state.ts'
import type { LifecycleDeps } from './lifecycle-state.ts'

/** Revokes what an operator names. Repeating it is no error; an unknown target is. */
export async function revoke(deps: LifecycleDeps, request: RevokeRequest): Promise<Revoked> {
  switch (request.kind) {
    case 'handle':
      if (request.undo) throw final('a revoked placeholder stays revoked; `octroi grant` makes a new one')
      return revokeHandle(deps, request.target)
    case 'sandbox':
      if (request.undo)
        throw final(
          'what the sandbox held stays void; `octroi sandbox resume` and `octroi grant` bring it back',
        )
      return revokeSandbox(deps, request.target)
    case 'credential':
      return revokeCredential(deps, request)
    case 'lease':
      return revokeLease(deps, request)
  }
}

function final(message: string): LifecycleError {
  return new LifecycleError('refused', message)
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

async function revokeCredential(deps: LifecycleDeps, { target, undo }: RevokeRequest): Promise<Revoked> {
  checkCredential(deps.config(), target)
  return setRevoked(deps, { kind: 'credential', target, credential: target, undo })
}

async function revokeLease(deps: LifecycleDeps, { target, undo }: RevokeRequest): Promise<Revoked> {
  const [, credential] = /^static:([^:]+):\d+$/.exec(target) ?? []
  if (credential === undefined)
    throw new LifecycleError('not_found', 'no lease has that id; events show it in their `lease` field')
  checkCredential(deps.config(), credential)
  return setRevoked(deps, { kind: 'lease', target, credential, undo })
}

async function setRevoked(
  deps: LifecycleDeps,
  what: {
    readonly kind: 'credential' | 'lease'
    readonly target: string
    readonly credential: string
    readonly undo: boolean | undefined
  },
): Promise<Revoked> {
  const { kind, target, credential, undo = false } = what
  const lease = kind === 'lease' ? { lease: target } : {}
  const answer = { kind, target, handles: 0, tokens: 0 }
  if (undo) {
    await auditFirst(deps, { action: 'reinstate', note: `${kind} ${target} reinstated`, ...lease })
    await deps.store.putMeta(revokedKey(kind, target), undefined)
    await deps.changed()
    return { ...answer, upstream: 'Octroi sends it again.' }
  }
  await deps.store.putMeta(revokedKey(kind, target), iso(deps.clock.now()))
  await deps.changed()
  await auditDone(deps, { action: 'revoke', note: `${kind} ${target} revoked`, ...lease })
  return { ...answer, upstream: sentence(deps.config(), [credential]) }
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
