import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { effectivePolicy } from '../config/effective.ts'
import { codeOf } from '../config/files.ts'
import type { Config, SandboxConfig, ValueRef } from '../config/model.ts'
import type { Clock } from '../core/clock.ts'
import { OperatorError } from '../core/errors.ts'
import type { SandboxRecord, TokenRecord } from '../core/model.ts'
import { entropyFor, makePlaceholder } from '../handles/placeholder.ts'
import type { Seal, Store } from '../store/port.ts'

/** What records are made from. */
export interface Provisioning {
  readonly config: Config
  readonly store: Store
  readonly seal: Seal
  /** Cryptographically random bytes. */
  readonly random: (bytes: number) => Uint8Array
  readonly clock: Pick<Clock, 'now'>
  /** For tokens that `{ env: NAME }` names. */
  readonly env: Readonly<Record<string, string | undefined>>
}

/** Fewest characters of a token that a reference names; generated ones have 43. */
const minTokenLength = 16

/**
 * Writes what the configuration asks for and the store lacks: a record for each of its sandboxes, a placeholder for each
 * new grant, a token. Ends the sandboxes that the files no longer have, last, so that a failure half-way never ends one.
 * Ids and placeholders are never made twice: what was revoked stays revoked. Returns what an operator should know, such
 * as a token that cannot be read. Rejects with an `OperatorError` when a name is taken or the store fails.
 */
export async function provision(input: Provisioning): Promise<string[]> {
  const { config, store } = input
  const living = (await store.sandboxes()).filter((record) => record.destroyedAt === undefined)
  const byName = new Map(living.map((record) => [record.name, record]))
  for (const name of config.sandboxes.keys()) {
    if (byName.get(name)?.origin !== 'runtime') continue
    throw new OperatorError(
      `the configuration has a sandbox ${name}, but one of that name was made at run time; ` +
        `destroy it (octroi sandbox destroy ${name}) or choose another name`,
      { exitCode: 2 },
    )
  }
  const current: SandboxRecord[] = living.filter((record) => record.origin === 'runtime')
  const notes: string[] = []
  const tokens = Map.groupBy(await store.tokens(), (token) => token.sandboxId)
  for (const sandbox of config.sandboxes.values()) {
    const record = await putRecord(input, sandbox, byName.get(sandbox.name))
    current.push(record)
    notes.push(...(await putToken(input, { sandbox, record, own: tokens.get(record.id) ?? [] })))
  }
  await putHandles(input, current)
  for (const record of living) {
    if (record.origin === 'config' && !config.sandboxes.has(record.name)) await end(input, record)
  }
  return notes
}

async function putRecord(
  { store, random, clock }: Provisioning,
  sandbox: SandboxConfig,
  before: SandboxRecord | undefined,
): Promise<SandboxRecord> {
  const { name, tenant, template, agent } = sandbox
  if (before?.tenant === tenant && before.template === template && before.agent === agent) return before
  const fresh = {
    id: newId(random),
    createdAt: clock.now(),
    run: undefined,
    expiresAt: undefined,
    pausedAt: undefined,
    destroyedAt: undefined,
  }
  const record: SandboxRecord = { ...fresh, ...before, name, origin: 'config', tenant, template, agent }
  await store.putSandbox(record)
  return record
}

/** Ids of tokens that a reference named begin so: they end when the configuration says `generated` instead. */
const refPrefix = 'ref-'

/** Gives the sandbox the token that its identity asks for; `own` are those it has. Returns what an operator should know. */
async function putToken(
  input: Provisioning,
  { sandbox, record, own }: { sandbox: SandboxConfig; record: SandboxRecord; own: readonly TokenRecord[] },
): Promise<string[]> {
  const { store, random, clock } = input
  // Which referenced value this sandbox was given last: the same one is not given again after it was revoked.
  const key = `token-ref:${record.id}`
  if (sandbox.token === undefined) return []
  if (sandbox.token === 'generated') {
    const referenced = own.filter(({ id }) => id.startsWith(refPrefix))
    for (const token of referenced) await store.deleteToken(token.id)
    const isLive = own.some(
      ({ id, expiresAt }) =>
        !id.startsWith(refPrefix) && (expiresAt === undefined || expiresAt > clock.now()),
    )
    if (isLive) return []
    await addToken(input, record, { id: newId(random), value: Buffer.from(random(32)).toString('base64url') })
    await store.putMeta(key, undefined)
    return []
  }
  const read = await readReference(input, sandbox.token)
  const problem = read.ok ? tokenProblem(read.value) : read.problem
  if (!read.ok || problem !== undefined) {
    return [
      `sandbox ${sandbox.name}: its token ${problem ?? 'cannot be read'}; nobody can be it by that token`,
    ]
  }
  const sha256 = createHash('sha256').update(read.value).digest('hex')
  if ((await store.meta(key)) === sha256) return []
  for (const token of own) await store.deleteToken(token.id)
  await addToken(input, record, { id: `${refPrefix}${newId(random)}`, value: read.value })
  await store.putMeta(key, sha256)
  return []
}

async function addToken(
  { store, seal, clock }: Provisioning,
  record: SandboxRecord,
  { id, value }: { id: string; value: string },
): Promise<void> {
  await store.putToken({
    id,
    sandboxId: record.id,
    sha256: createHash('sha256').update(value).digest('hex'),
    sealed: await seal.seal(value),
    createdAt: clock.now(),
    expiresAt: undefined,
  })
}

function tokenProblem(value: string): string | undefined {
  if (value === '') return 'is empty'
  if (value.length < minTokenLength) return `is shorter than ${minTokenLength} characters`
  return /\p{Cc}/u.test(value) ? 'has control characters' : undefined
}

type Read = { readonly ok: true; readonly value: string } | { readonly ok: false; readonly problem: string }

async function readReference({ env, store, seal }: Provisioning, ref: ValueRef): Promise<Read> {
  switch (ref.kind) {
    case 'env': {
      const value = env[ref.name]
      return value === undefined ? { ok: false, problem: `${ref.name} is not set` } : { ok: true, value }
    }
    case 'file':
      try {
        return { ok: true, value: (await readFile(ref.path, 'utf8')).replace(/\r?\n$/, '') }
      } catch (cause) {
        return { ok: false, problem: `${ref.path} cannot be read (${codeOf(cause)})` }
      }
    case 'secret': {
      const record = (await store.secrets()).find(({ name }) => name === ref.name)
      if (record === undefined) return { ok: false, problem: `there is no secret ${ref.name}` }
      return { ok: true, value: await seal.open(record.sealed) }
    }
    case 'command':
      throw new TypeError('the configuration refuses tokens from commands')
  }
}

async function putHandles({ config, store, random, clock }: Provisioning, current: readonly SandboxRecord[]) {
  const known = new Set((await store.handles()).map(({ sandboxId, access }) => `${sandboxId} ${access}`))
  for (const record of current) {
    for (const name of grantedTo(config, record)) {
      const access = config.access.get(name)
      if (access === undefined || known.has(`${record.id} ${name}`)) continue
      await store.putHandle({
        id: newId(random),
        placeholder: makePlaceholder(access.shape, random(entropyFor(access.shape))),
        sandboxId: record.id,
        sandbox: record.name,
        access: name,
        createdAt: clock.now(),
        revokedAt: undefined,
        expiresAt: undefined,
      })
    }
  }
}

/** Names of the accesses of a living sandbox. */
function grantedTo(config: Config, record: SandboxRecord): readonly string[] {
  const own = record.origin === 'config' ? config.sandboxes.get(record.name) : undefined
  const template = record.template === undefined ? undefined : config.templates.get(record.template)
  if (own === undefined && template?.tenant !== record.tenant) return []
  return effectivePolicy(template, own).access
}

/** Ends a sandbox for good, so that a later one of its name gets a fresh id and nothing of its predecessor's. */
async function end({ store, clock }: Provisioning, record: SandboxRecord): Promise<void> {
  const now = clock.now()
  await store.putSandbox({ ...record, destroyedAt: now })
  for (const token of await store.tokens()) {
    if (token.sandboxId === record.id) await store.deleteToken(token.id)
  }
  for (const handle of await store.handles()) {
    if (handle.sandboxId === record.id && handle.revokedAt === undefined) {
      await store.putHandle({ ...handle, revokedAt: now })
    }
  }
}

/** 128 random bits in hex. */
function newId(random: Provisioning['random']): string {
  return Buffer.from(random(16)).toString('hex')
}
