import type { Access } from '../handles/model.ts'
import { parseHostPattern } from '../policy/host-pattern.ts'
import { canonicalAccess, canonicalCredential, canonicalSandbox, canonicalTemplate } from './canonical.ts'
import { checkCertificates, resolvePath } from './files.ts'
import { checkIdentities, warnOfSourceAlone } from './identity-checks.ts'
import type { PlacedSandbox } from './identity-checks.ts'
import { checkListeners } from './listen-checks.ts'
import { parseEndpoint } from './listeners.ts'
import { checkCredential, checkRef, warnOfExpired } from './liveness.ts'
import type { Findings } from './liveness.ts'
import type { Merged } from './merge.ts'
import type { Config, CredentialConfig, SandboxConfig, TemplateConfig } from './model.ts'
import { below, problemAt } from './problem.ts'
import type { Place } from './problem.ts'
import { identityListeners } from './proofs.ts'
import { checkReferences } from './references.ts'
import { checkTogether } from './sandbox-checks.ts'
import type { PlacedAccess, Written } from './sandbox-checks.ts'
import type { MainWire } from './schema.ts'

/** Everything that was read, and where it stands. */
export interface Parts {
  /** The main file without its named entries; keys that did not fit are left out. */
  readonly shell: { readonly [K in keyof MainWire]?: MainWire[K] | undefined }
  /** Root of the main file. */
  readonly place: Place
  readonly root: string
  readonly merged: Merged
  readonly files: readonly string[]
  readonly includes: readonly string[]
  readonly env: Readonly<Record<string, string | undefined>>
  readonly now: number
}

/** Makes the canonical configuration and checks what no single value shows; `config` counts only without problems. */
export function assemble(parts: Parts): { config: Config } & Findings {
  const { shell, place, root, merged } = parts
  const found: Findings = { problems: checkReferences(merged), warnings: [] }
  const entries = canonicalEntries(parts, found)
  checkPolicies(parts, entries, found)
  const identity = [...merged.sandboxes.values()].flatMap(({ wire, place: at }) =>
    identityListeners(wire, root).map((listener) => ({ listener, place: below(at, 'identity') })),
  )
  const takesPasswords =
    entries.templates.size > 0 || [...entries.sandboxes.values()].some(({ token }) => token !== undefined)
  const listening = checkListeners({
    listen: shell.listen ?? {},
    place: below(place, 'listen'),
    ...{ root, identity, takesPasswords },
  })
  found.problems.push(...listening.problems)
  const config: Config = {
    file: parts.files[0] ?? place.source.file,
    files: parts.files,
    includes: parts.includes,
    root,
    stateFolder: resolvePath(root, shell.state ?? 'data'),
    listen: listening.listen,
    resolver: resolverOf(shell, place, found),
    trust: trustOf(shell, place, { root, found }),
    ...entries,
    selfNames: shell.self ?? [],
    audit: {
      retentionMs: shell.audit?.retention,
      sync: shell.audit?.sync ?? 'full',
      maxEvents: shell.audit?.max_events,
    },
  }
  return { config: deepFreeze(config), ...found }
}

type Entries = Pick<Config, 'credentials' | 'access' | 'templates' | 'sandboxes'>

function canonicalEntries({ merged, root, env }: Parts, found: Findings): Entries {
  const context = { root, problems: found.problems }
  const credentials = new Map<string, CredentialConfig>()
  for (const [name, entry] of merged.credentials) {
    const credential = canonicalCredential(name, entry, root)
    credentials.set(name, credential)
    add(found, checkCredential(credential, entry.place, env))
  }
  const access = new Map<string, Access>()
  for (const [name, entry] of merged.access) access.set(name, canonicalAccess(name, entry))
  const templates = new Map<string, TemplateConfig>()
  for (const [name, entry] of merged.templates) templates.set(name, canonicalTemplate(name, entry))
  const sandboxes = new Map<string, SandboxConfig>()
  const tenantOf = (template: string): string | undefined => templates.get(template)?.tenant
  for (const [name, entry] of merged.sandboxes) {
    const sandbox = canonicalSandbox(name, entry, { ...context, tenantOf })
    sandboxes.set(name, sandbox)
    if (sandbox.token === undefined || sandbox.token === 'generated') continue
    const dead = `nobody can be the sandbox \`${name}\` by its token`
    add(found, checkRef(sandbox.token, below(entry.place, 'identity'), { env, dead }))
  }
  return { credentials, access, templates, sandboxes }
}

function add(found: Findings, more: Findings): void {
  found.problems.push(...more.problems)
  found.warnings.push(...more.warnings)
}

function checkPolicies({ merged, now }: Parts, entries: Entries, found: Findings): void {
  const accesses = new Map<string, PlacedAccess>()
  for (const [name, { place }] of merged.access) {
    const access = entries.access.get(name)
    if (access !== undefined) accesses.set(name, { access, place })
  }
  const templates = new Map<string, Written>()
  for (const [name, { place }] of merged.templates) {
    const block = entries.templates.get(name)
    if (block !== undefined) templates.set(name, { block, place })
  }
  const sandboxes: PlacedSandbox[] = [...merged.sandboxes].flatMap(([name, { place }]) => {
    const sandbox = entries.sandboxes.get(name)
    return sandbox === undefined ? [] : [{ sandbox, place }]
  })
  for (const written of templates.values()) {
    found.problems.push(...checkTogether(written, undefined, accesses))
    found.warnings.push(...warnOfExpired(written.block, written.place, now))
  }
  for (const { sandbox, place } of sandboxes) {
    const template = sandbox.template === undefined ? undefined : templates.get(sandbox.template)
    found.problems.push(...checkTogether({ block: sandbox, place }, template, accesses))
    const hasAccess = sandbox.access.length + (template?.block.access.length ?? 0) > 0
    found.warnings.push(...warnOfExpired(sandbox, place, now))
    found.warnings.push(...warnOfSourceAlone({ sandbox, place }, hasAccess))
  }
  found.problems.push(...checkIdentities(sandboxes))
}

function resolverOf(shell: Parts['shell'], place: Place, found: Findings): Config['resolver'] {
  const at = below(place, 'resolver')
  const servers = (shell.resolver?.servers ?? ['system']).flatMap((text, index) => {
    if (text === 'system') return [text]
    const bare = /^[0-9.]+$/.test(text) ? `${text}:53` : text
    const endpoint = parseEndpoint(/^[0-9a-f:]+$/i.test(bare) ? `[${bare}]:53` : bare)
    if (endpoint.ok && endpoint.value.port > 0) {
      const { host, port } = endpoint.value
      return [`${host.includes(':') ? `[${host}]` : host}:${port}`]
    }
    const message = 'a DNS server is `system`, ADDRESS or ADDRESS:PORT'
    found.problems.push(problemAt(below(at, 'servers', index), message))
    return []
  })
  const hosts = new Map<string, readonly string[]>()
  for (const [name, addresses] of Object.entries(shell.resolver?.hosts ?? {})) {
    const parsed = parseHostPattern(name)
    const isName = parsed.ok && parsed.pattern !== 'any' && !parsed.pattern.startsWith('*.')
    if (isName) hosts.set(parsed.pattern, addresses)
    else {
      const problem = parsed.ok ? 'is not one exact name' : parsed.problem
      found.problems.push(problemAt(below(at, 'hosts', name), `\`${name}\` ${problem}`, { part: 'key' }))
    }
  }
  return { servers, hosts }
}

function trustOf(
  shell: Parts['shell'],
  place: Place,
  { root, found }: { root: string; found: Findings },
): Config['trust'] {
  const ca = (shell.trust?.ca ?? []).map((written, index) => {
    const path = resolvePath(root, written)
    const check = checkCertificates(path)
    if (check.state !== 'ok')
      found.problems.push(problemAt(below(place, 'trust', 'ca', index), check.problem))
    return path
  })
  const system = shell.trust?.system ?? true
  if (!system && ca.length === 0) {
    found.problems.push(problemAt(below(place, 'trust'), 'without the system roots, `ca` must name some'))
  }
  return { system, ca }
}

function deepFreeze<T>(value: T): T {
  if (typeof value !== 'object' || value === null || Object.isFrozen(value)) return value
  Object.freeze(value)
  const parts: Iterable<unknown> = value instanceof Map ? value.values() : Object.values(value)
  for (const part of parts) deepFreeze(part)
  return value
}
