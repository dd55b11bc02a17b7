import type { SandboxRecord } from '../core/model.ts'
import { grant } from './grant.ts'
import { LifecycleError } from './lifecycle-model.ts'
import type {
  Created,
  CreateRequest,
  EndedRun,
  Lifecycle,
  LifecycleConfig,
  Rotated,
  SandboxReport,
  Swept,
} from './lifecycle-model.ts'
import { checkLabel, checkName, eventOf, insteadOf, iso, isOver, reportOf } from './lifecycle-report.ts'
import {
  addToken,
  auditDone,
  auditFirst,
  findSandbox,
  freshReport,
  living,
  newId,
  voidProofs,
} from './lifecycle-state.ts'
import type { LifecycleDeps } from './lifecycle-state.ts'
import { revoke } from './revoke.ts'

/** The life cycle with the sweep that the broker runs on a timer. */
export interface SweepingLifecycle extends Lifecycle {
  /** Ends sandboxes and tokens whose time is up, and finishes what a crash left half ended. */
  expire(): Promise<Swept>
}

const nameAlphabet = 'abcdefghijkmnpqrstuvwxyz23456789' // 32 characters, without 0, 1, l and o
const defaultOverlapMs = 60_000
const maxOverlapMs = 24 * 3_600_000

/** Makes the life cycle. Operations run one after another; each is durable, and in force, before it answers. */
export function createLifecycle(deps: LifecycleDeps): SweepingLifecycle {
  const serial = createSerial()
  const sweep: Sweep = { dueAt: -Infinity }
  /** Runs alone, and has the next sweep look at everything: ends may have come or gone, or be half done. */
  const change = <T>(task: () => Promise<T>): Promise<T> =>
    serial(() => {
      sweep.dueAt = -Infinity
      return task()
    })
  return {
    create: (request) => change(() => create(deps, request)),
    list: () => list(deps),
    show: async (name) => freshReport(deps, await findSandbox(deps.store, name)),
    pause: (name) => serial(() => setPaused(deps, name, true)),
    resume: (name) => serial(() => setPaused(deps, name, false)),
    destroy: (name) => change(() => destroy(deps, name)),
    rotateToken: (name, overlapMs) => change(() => rotateToken(deps, name, overlapMs)),
    revoke: (request) => change(() => revoke(deps, request)),
    grant: (request) => serial(() => grant(deps, request)),
    runEnded: (ended) => runEnded(deps, ended),
    expire: () =>
      serial(() => {
        const isDue = deps.clock.now() >= sweep.dueAt || deps.config() !== sweep.config
        return isDue ? expire(deps, sweep) : Promise.resolve(nothing)
      }),
  }
}

async function create(deps: LifecycleDeps, request: CreateRequest): Promise<Created> {
  const config = deps.config()
  const template = config.templates.get(request.template)
  if (!template)
    throw new LifecycleError(
      'not_found',
      `no template has that name${insteadOf(request.template, [...config.templates.keys()])}`,
    )
  const ttlMs = checkTtl(request, template.maxTtlMs)
  checkLabel('agent', request.agent)
  checkLabel('run', request.run)
  const taken = new Set([
    ...(await living(deps.store)).map((record) => record.name),
    ...config.sandboxes.keys(),
  ])
  const name = request.name ?? freshName(deps, request.template, taken)
  checkName(name)
  if (taken.has(name)) throw new LifecycleError('conflict', `a sandbox named ${name} exists already`)
  const now = deps.clock.now()
  const record: SandboxRecord = {
    id: newId(deps),
    name,
    origin: 'runtime',
    tenant: template.tenant,
    template: request.template,
    agent: request.agent,
    run: request.run ?? name,
    createdAt: now,
    expiresAt: ttlMs === undefined ? undefined : now + ttlMs,
    pausedAt: undefined,
    destroyedAt: undefined,
  }
  await auditFirst(deps, eventOf(record, 'create', `created from template ${request.template}`))
  await deps.store.putSandbox(record)
  const token = await addToken(deps, record.id)
  await deps.changed()
  return { sandbox: await freshReport(deps, record), token }
}

async function list(deps: LifecycleDeps): Promise<SandboxReport[]> {
  const [tokens, handles] = await Promise.all([deps.store.tokens(), deps.store.handles()])
  const sources = { tokens, handles, now: deps.clock.now() }
  const reports = (await living(deps.store)).map((record) => reportOf(record, sources))
  return reports.sort((a, b) => (a.name < b.name ? -1 : 1))
}

async function setPaused(deps: LifecycleDeps, name: string, paused: boolean): Promise<SandboxReport> {
  const before = await findSandbox(deps.store, name)
  if ((before.pausedAt !== undefined) === paused) return freshReport(deps, before)
  const record = { ...before, pausedAt: paused ? deps.clock.now() : undefined }
  // What narrows is done even when the event log is down; what widens is not.
  if (!paused) await auditFirst(deps, eventOf(record, 'resume', 'resumed'))
  await deps.store.putSandbox(record)
  await deps.changed()
  if (paused) await auditDone(deps, eventOf(record, 'pause', 'paused'))
  return freshReport(deps, record)
}

async function destroy(deps: LifecycleDeps, name: string): Promise<void> {
  const record = await findSandbox(deps.store, name)
  if (record.origin === 'config')
    throw new LifecycleError(
      'refused',
      `sandbox ${name} is defined in the configuration: remove it there and reload; ` +
        'until then `sandbox pause` stops it and `revoke sandbox` also voids its token and placeholders',
    )
  await deps.store.putSandbox({ ...record, destroyedAt: deps.clock.now() })
  await voidProofs(deps, record)
  await deps.changed()
  await auditDone(deps, eventOf(record, 'destroy', 'destroyed'))
}

async function rotateToken(
  deps: LifecycleDeps,
  name: string,
  overlapMs = defaultOverlapMs,
): Promise<Rotated> {
  if (!Number.isInteger(overlapMs) || overlapMs < 0 || overlapMs > maxOverlapMs)
    throw new LifecycleError('invalid', 'the overlap is from 0s to 24h')
  const sandbox = await findSandbox(deps.store, name)
  await auditFirst(
    deps,
    eventOf(sandbox, 'rotate-token', `token rotated, old one valid for ${String(overlapMs / 1000)} s`),
  )
  const old = (await deps.store.tokens()).filter((token) => token.sandboxId === sandbox.id)
  const token = await addToken(deps, sandbox.id)
  const until = deps.clock.now() + overlapMs
  for (const record of old)
    if (overlapMs === 0) await deps.store.deleteToken(record.id)
    else if (record.expiresAt === undefined || record.expiresAt > until)
      await deps.store.putToken({ ...record, expiresAt: until })
  await deps.changed()
  return { sandbox: await freshReport(deps, sandbox), token, old_valid_until: iso(until) }
}

async function runEnded(deps: LifecycleDeps, { sandbox, exit, run }: EndedRun): Promise<void> {
  const record = await findSandbox(deps.store, sandbox)
  const event = eventOf(record, 'run', `command ended with ${String(exit)}`)
  await auditFirst(deps, { ...event, exit, run: run ?? event.run })
}

/** When the sweep next has something to do, `ms` since the epoch; it runs every second and the store may be large. */
interface Sweep {
  dueAt: number
  /** For which configuration: a reload may bring a shorter `max_ttl`. */
  config?: LifecycleConfig
}

const nothing: Swept = { sandboxes: [], tokens: 0, handles: 0 }

async function expire(deps: LifecycleDeps, sweep: Sweep): Promise<Swept> {
  const { store } = deps
  const now = deps.clock.now()
  const config = deps.config()
  const all = await store.sandboxes()
  const over = all.filter(
    (record) => record.destroyedAt === undefined && isOver({ expiresAt: endOf(record, config) }, now),
  )
  for (const record of over) await store.putSandbox({ ...record, destroyedAt: now })
  const dead = new Set(
    [...all.filter((record) => record.destroyedAt !== undefined), ...over].map(({ id }) => id),
  )
  const kept = all.filter(({ id }) => !dead.has(id)).map((record) => endOf(record, config))
  let tokens = 0
  for (const token of await store.tokens())
    if (dead.has(token.sandboxId) || isOver(token, now)) {
      await store.deleteToken(token.id)
      tokens += 1
    } else kept.push(token.expiresAt)
  let handles = 0
  for (const handle of await store.handles())
    if (dead.has(handle.sandboxId) && handle.revokedAt === undefined) {
      await store.putHandle({ ...handle, revokedAt: now })
      handles += 1
    }
  if (over.length + tokens + handles > 0) await deps.changed()
  sweep.dueAt = Math.min(...kept.filter((end) => end !== undefined), Infinity)
  sweep.config = config
  for (const record of over) await auditDone(deps, eventOf(record, 'expire', 'time to live is over'))
  return { sandboxes: over.map((record) => record.name), tokens, handles }
}

/** When a sandbox ends: by its own time, or by the `max_ttl` that its template has now. */
function endOf(record: SandboxRecord, config: LifecycleConfig): number | undefined {
  const template =
    record.origin === 'runtime' && record.template !== undefined
      ? config.templates.get(record.template)
      : undefined
  if (template?.maxTtlMs === undefined || template.tenant !== record.tenant) return record.expiresAt
  return Math.min(record.expiresAt ?? Infinity, record.createdAt + template.maxTtlMs)
}

function checkTtl(request: CreateRequest, maxTtlMs: number | undefined): number | undefined {
  const { ttlMs = maxTtlMs, template } = request
  if (ttlMs === undefined) return undefined
  if (!Number.isSafeInteger(ttlMs) || ttlMs < 1000)
    throw new LifecycleError('invalid', 'the ttl is at least 1s')
  if (maxTtlMs !== undefined && ttlMs > maxTtlMs)
    throw new LifecycleError(
      'refused',
      `template ${template} allows a ttl of ${String(maxTtlMs / 1000)} s at most`,
    )
  return ttlMs
}

function freshName(deps: LifecycleDeps, template: string, taken: ReadonlySet<string>): string {
  for (;;) {
    const tail = [...deps.random(8)].map((byte) => nameAlphabet.charAt(byte % nameAlphabet.length)).join('')
    const name = `${template.slice(0, 50)}-${tail}`
    if (!taken.has(name)) return name
  }
}

function createSerial(): <T>(task: () => Promise<T>) => Promise<T> {
  let last: Promise<unknown> = Promise.resolve()
  return (task) => {
    const next = last.then(task)
    last = next.catch(() => undefined)
    return next
  }
}
