import { createHash } from 'node:crypto'
import type { Clock } from '../core/clock.ts'
import type { SandboxRecord } from '../core/model.ts'
import type { Seal, Store } from '../store/port.ts'
import { LifecycleError } from './lifecycle-model.ts'
import type { LifecycleConfig, LifecycleEvent, SandboxReport } from './lifecycle-model.ts'
import { insteadOf, reportOf } from './lifecycle-report.ts'

/** Everything the life cycle works on; a bare store is enough, so that it also works while the broker is stopped. */
export interface LifecycleDeps {
  readonly store: Store
  readonly seal: Seal
  readonly clock: Clock
  /** Cryptographically random bytes. */
  readonly random: (bytes: number) => Uint8Array
  readonly config: () => LifecycleConfig
  /** Compiles and swaps the snapshot; no answer is given before it has resolved. */
  readonly changed: () => Promise<void>
  /** Takes the `admin` event of an operation; what widens (create, resume, rotate) waits for it before it is done. */
  readonly audit?: ((event: LifecycleEvent) => void | Promise<void>) | undefined
}

/** Sandboxes that were not destroyed, those past their end included. */
export async function living(store: Store): Promise<SandboxRecord[]> {
  return (await store.sandboxes()).filter((record) => record.destroyedAt === undefined)
}

/** The living sandbox of a name, else `not_found`. */
export async function findSandbox(store: Store, name: string): Promise<SandboxRecord> {
  const all = await living(store)
  const found = all.find((record) => record.name === name)
  if (found) return found
  const names = all.map((record) => record.name)
  throw new LifecycleError('not_found', `no sandbox has that name${insteadOf(name, names)}`)
}

/** The report of one sandbox, read anew from the store. */
export async function freshReport(deps: LifecycleDeps, record: SandboxRecord): Promise<SandboxReport> {
  const [tokens, handles] = await Promise.all([deps.store.tokens(), deps.store.handles()])
  return reportOf(record, { tokens, handles, now: deps.clock.now() })
}

/** Makes a token of 256 random bits, stores it sealed beside its hash, and returns it: the only time it is seen. */
export async function addToken(deps: LifecycleDeps, sandboxId: string): Promise<string> {
  const token = Buffer.from(deps.random(32)).toString('base64url')
  await deps.store.putToken({
    id: newId(deps),
    sandboxId,
    sha256: createHash('sha256').update(token).digest('hex'),
    sealed: await deps.seal.seal(token),
    createdAt: deps.clock.now(),
    expiresAt: undefined,
  })
  return token
}

/** Deletes every token and revokes every handle of a sandbox. Safe to repeat after a crash half-way. */
export async function voidProofs(
  deps: LifecycleDeps,
  record: SandboxRecord,
): Promise<{ tokens: number; handles: number }> {
  const { store, clock } = deps
  const tokens = (await store.tokens()).filter((token) => token.sandboxId === record.id)
  for (const token of tokens) await store.deleteToken(token.id)
  const handles = (await store.handles()).filter(
    (handle) => handle.sandboxId === record.id && handle.revokedAt === undefined,
  )
  for (const handle of handles) await store.putHandle({ ...handle, revokedAt: clock.now() })
  return { tokens: tokens.length, handles: handles.length }
}

/** Writes the event of an operation that widens, before it is done. */
export async function auditFirst(deps: LifecycleDeps, event: LifecycleEvent): Promise<void> {
  try {
    await deps.audit?.(event)
  } catch (cause) {
    throw new LifecycleError('unaudited', 'not done: the event log cannot be written', { cause })
  }
}

/** Writes the event of an operation that narrows, after it is done: no full disk may keep a sandbox running. */
export async function auditDone(deps: LifecycleDeps, event: LifecycleEvent): Promise<void> {
  try {
    await deps.audit?.(event)
  } catch (cause) {
    throw new LifecycleError('unaudited', `done (${event.note}), but the event log cannot be written`, {
      cause,
    })
  }
}

/** 128 random bits in hex; never derived from a name, so that nothing made again inherits anything. */
export function newId(deps: LifecycleDeps): string {
  return Buffer.from(deps.random(16)).toString('hex')
}
