import { createHash } from 'node:crypto'
import { effectivePolicy } from '../config/effective.ts'
import type { Config, PolicyBlock, SandboxConfig } from '../config/model.ts'
import type { HandleRecord, SandboxRecord, TokenRecord } from '../core/model.ts'
import type { Grant } from '../handles/model.ts'
import type { AccessDestination } from '../policy/model.ts'
import { compilePolicy, describePolicy } from '../policy/rules.ts'
import type { Policy } from '../policy/rules.ts'
import { boundDestinations } from './bound.ts'
import type { BoundDestinations, Proof, SandboxView, Snapshot } from './model.ts'

/** Configuration and store, as they are at `now` (`ms` since the epoch). */
export interface SnapshotInput {
  readonly config: Config
  readonly sandboxes: readonly SandboxRecord[]
  readonly tokens: readonly TokenRecord[]
  readonly handles: readonly HandleRecord[]
  readonly now: number
}

/**
 * Compiles what every exchange is judged by. Sandboxes of the files need a record in the store; those made at run time
 * take everything from their template, and reach nothing once it is gone. The destroyed and the expired are left out.
 */
export function compileSnapshot(input: SnapshotInput): Snapshot {
  const { config, now } = input
  const tokens = Map.groupBy(input.tokens, (token) => token.sandboxId)
  const handles = Map.groupBy(input.handles, (handle) => handle.sandboxId)
  const views = new Map<string, SandboxView>()
  for (const record of input.sandboxes) {
    if (record.destroyedAt !== undefined) continue
    const view = viewOf(record, {
      config,
      tokens: tokens.get(record.id) ?? [],
      handles: handles.get(record.id) ?? [],
    })
    if (view === undefined || (view.expiresAt !== undefined && view.expiresAt <= now)) continue
    views.set(record.name, view)
  }
  return {
    hash: hashOf(config),
    sandboxes: views,
    handles: new Map(input.handles.map((handle) => [handle.placeholder, handle])),
    bound: boundOf(config),
    selfNames: config.selfNames,
  }
}

interface Belongings {
  readonly config: Config
  readonly tokens: readonly TokenRecord[]
  readonly handles: readonly HandleRecord[]
}

const tokenAlone: readonly (readonly Proof[])[] = [[{ kind: 'token' }]]

function viewOf(record: SandboxRecord, { config, tokens, handles }: Belongings): SandboxView | undefined {
  const own = record.origin === 'config' ? config.sandboxes.get(record.name) : undefined
  if (record.origin === 'config' && own === undefined) return undefined
  const template = templateOf(config, record)
  const { policy, access, limits } = compiledFor(config, own, template?.name)
  const { id, name, tenant, agent, run } = record
  const maxTtlMs = record.origin === 'runtime' ? template?.maxTtlMs : undefined
  return {
    ...{ id, name, tenant, agent, run, template: record.template },
    policy,
    identity: own?.identity ?? tokenAlone,
    tokens,
    grants: access.flatMap((wanted) => grantOf(config, wanted, handles)),
    expiresAt: earliest(record.expiresAt, maxTtlMs === undefined ? undefined : record.createdAt + maxTtlMs),
    paused: record.pausedAt !== undefined,
    limits,
    budgetKey: JSON.stringify([tenant, record.template ?? name, agent ?? '']),
  }
}

// A template that moved to another tenant is another template: nothing of one tenant comes to a sandbox of the other.
function templateOf(config: Config, record: SandboxRecord) {
  const template = record.template === undefined ? undefined : config.templates.get(record.template)
  return template?.tenant === record.tenant ? template : undefined
}

/** The grant with the live handle, else with the dead one, which is refused and still keeps foreign credentials out. */
function grantOf(config: Config, name: string, handles: readonly HandleRecord[]): Grant[] {
  const access = config.access.get(name)
  const own = handles.filter((handle) => handle.access === name).toSorted((a, b) => b.createdAt - a.createdAt)
  const handle = own.find(({ revokedAt }) => revokedAt === undefined) ?? own[0]
  return access === undefined || handle === undefined ? [] : [{ access, handle }]
}

interface Compiled {
  readonly policy: Policy
  readonly access: readonly string[]
  readonly limits: SandboxView['limits']
}

// Compiled once per configuration: making a sandbox from a template of 100,000 rules costs nothing.
const compiled = new WeakMap<Config, Map<string, Compiled>>()

function compiledFor(config: Config, own: SandboxConfig | undefined, template: string | undefined): Compiled {
  const cache = compiled.get(config) ?? new Map<string, Compiled>()
  compiled.set(config, cache)
  const isPlain = own === undefined || hasNoRules(own)
  const key = isPlain ? `template ${template ?? ''}` : `sandbox ${own.name}`
  let found = cache.get(key)
  if (found === undefined) {
    found = compile(config, template, isPlain ? undefined : own)
    cache.set(key, found)
  }
  if (!isPlain || own === undefined) return found
  const above = template === undefined ? undefined : config.templates.get(template)
  return { ...found, limits: effectivePolicy(above, own).limits }
}

const hasNoRules = (block: PolicyBlock): boolean =>
  block.allow.length === 0 && block.deny.length === 0 && block.access.length === 0

function compile(config: Config, template: string | undefined, own: SandboxConfig | undefined): Compiled {
  const above = template === undefined ? undefined : config.templates.get(template)
  const { allow, deny, access, limits } = effectivePolicy(above, own)
  const bound = boundOf(config).get(own?.tenant ?? above?.tenant ?? '')
  const policy = compilePolicy({ allow, deny, access: destinationsOf(config, access), bound })
  return { policy, access, limits }
}

const destinationsOf = (config: Config, access: readonly string[]): AccessDestination[] =>
  access.flatMap((name) => config.access.get(name)?.destinations ?? [])

function earliest(a: number | undefined, b: number | undefined): number | undefined {
  if (a === undefined) return b
  return b === undefined ? a : Math.min(a, b)
}

const digests = new WeakMap<Policy, string>()

function digestOf(policy: Policy): string {
  const digest = digests.get(policy) ?? createHash('sha256').update(describePolicy(policy)).digest('hex')
  digests.set(policy, digest)
  return digest
}

const hashes = new WeakMap<Config, string>()

/** Says which rules were in force, the same after every restart and for every order of the files. */
function hashOf(config: Config): string {
  const known = hashes.get(config)
  if (known !== undefined) return known
  const lines = [
    ...[...config.templates.values()].map(({ name, tenant, maxTtlMs }) => {
      const { policy, limits } = compiledFor(config, undefined, name)
      return JSON.stringify(['template', name, tenant, maxTtlMs, limits, digestOf(policy)])
    }),
    ...[...config.sandboxes.values()].map((sandbox) => {
      const { name, tenant, agent, template, identity } = sandbox
      const { policy, limits } = compiledFor(config, sandbox, template)
      return JSON.stringify(['sandbox', name, tenant, agent, template, identity, limits, digestOf(policy)])
    }),
    ...[...config.access.values()].map((access) => JSON.stringify(['access', access])),
    JSON.stringify(['self', config.selfNames]),
  ]
  const hash = createHash('sha256').update(lines.toSorted().join('\n')).digest('hex').slice(0, 16)
  hashes.set(config, hash)
  return hash
}

const bounds = new WeakMap<Config, ReadonlyMap<string, BoundDestinations>>()

/** Per tenant, the destinations of every access that a sandbox or template of it has. */
function boundOf(config: Config): ReadonlyMap<string, BoundDestinations> {
  const known = bounds.get(config)
  if (known !== undefined) return known
  const accesses = new Map<string, Set<string>>()
  const add = (tenant: string, names: readonly string[]): void => {
    const known = accesses.get(tenant) ?? new Set<string>()
    accesses.set(tenant, known)
    for (const name of names) known.add(name)
  }
  for (const { tenant, access } of config.templates.values()) add(tenant, access)
  for (const { tenant, access } of config.sandboxes.values()) add(tenant, access)
  const found = new Map(
    Array.from(accesses, ([tenant, names]) => [
      tenant,
      boundDestinations(destinationsOf(config, [...names])),
    ]),
  )
  bounds.set(config, found)
  return found
}
