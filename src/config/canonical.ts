import type { Access } from '../handles/model.ts'
import { shapePresets } from '../handles/shapes.ts'
import { resolvePath } from './files.ts'
import type { Entry } from './merge.ts'
import type {
  CredentialConfig,
  LimitsConfig,
  PolicyBlock,
  SandboxConfig,
  TemplateConfig,
  ValueRef,
} from './model.ts'
import { below, problemAt } from './problem.ts'
import type { Problem } from './problem.ts'
import { canonicalProofs } from './proofs.ts'
import type { AccessWire, CredentialWire, LimitsWire, SandboxWire, TemplateWire } from './schema.ts'

/** What canonical forms need of their surroundings; problems are added to `problems`. */
export interface Canonicalising {
  readonly root: string
  readonly problems: Problem[]
}

/** Tenant of what names none. */
export const defaultTenant = 'default'

/** A credential with its file path resolved. */
export function canonicalCredential(
  name: string,
  { wire }: Entry<CredentialWire>,
  root: string,
): CredentialConfig {
  const { issuer, value, allow_short: allowShort = false } = wire
  return { name, issuer, value: resolveRef(value, root), allowShort }
}

/** An access with its defaults: port 443, a Bearer slot, the generic shape. */
export function canonicalAccess(name: string, { wire }: Entry<AccessWire>): Access {
  const { slot = { header: 'authorization', scheme: 'Bearer' } } = wire
  return {
    name,
    credential: wire.credential,
    destinations: wire.destinations.map(({ host, port = 443, methods, paths, addresses = [] }) => ({
      access: name,
      ...{ host, port, methods, paths, addresses },
    })),
    slot:
      'basic' in slot
        ? { kind: 'basic', field: slot.basic }
        : { kind: 'header', name: slot.header, scheme: slot.scheme },
    shape: wire.shape ?? shapePresets.generic,
    env: wire.env,
    foreign: wire.foreign ?? 'refuse',
  }
}

/** A template with its defaults. */
export function canonicalTemplate(name: string, { wire }: Entry<TemplateWire>): TemplateConfig {
  return { name, tenant: wire.tenant ?? defaultTenant, ...block(wire), maxTtlMs: wire.max_ttl }
}

/** A sandbox with its template's tenant; what its identity needs to listen on is added to `listeners`. */
export function canonicalSandbox(
  name: string,
  { wire, place }: Entry<SandboxWire>,
  context: Canonicalising & { readonly tenantOf: (template: string) => string | undefined },
): SandboxConfig {
  const inherited = wire.template === undefined ? undefined : context.tenantOf(wire.template)
  if (wire.tenant !== undefined && inherited !== undefined && wire.tenant !== inherited) {
    const message = `the template \`${wire.template ?? ''}\` belongs to the tenant \`${inherited}\``
    context.problems.push(problemAt(below(place, 'tenant'), message))
  }
  const written = wire.identity ?? [{ token: 'generated' as const }]
  const identity = written.map((proofs, index) =>
    canonicalProofs(proofs, below(place, 'identity', index), context),
  )
  const tokens = written.flatMap(({ token }, index) => (token === undefined ? [] : [{ token, index }]))
  const [first] = tokens
  const other = tokens.find(({ token }) => JSON.stringify(token) !== JSON.stringify(first?.token))
  if (other !== undefined) {
    const at = below(place, 'identity', other.index, 'token')
    context.problems.push(problemAt(at, 'a sandbox has one token; its alternatives must name the same'))
  }
  const token = first?.token
  return {
    name,
    template: wire.template,
    agent: wire.agent,
    tenant: wire.tenant ?? inherited ?? defaultTenant,
    ...block(wire),
    identity,
    token: token === undefined || token === 'generated' ? token : resolveRef(token, context.root),
  }
}

/** A reference with its file path made absolute. */
function resolveRef(ref: ValueRef, root: string): ValueRef {
  return ref.kind === 'file' ? { kind: 'file', path: resolvePath(root, ref.path) } : ref
}

function block(wire: Pick<SandboxWire, 'allow' | 'deny' | 'access' | 'limits'>): PolicyBlock {
  return {
    allow: wire.allow ?? [],
    deny: wire.deny ?? [],
    access: wire.access ?? [],
    limits: canonicalLimits(wire.limits),
  }
}

function canonicalLimits(wire: LimitsWire = {}): LimitsConfig {
  return {
    tunnels: wire.tunnels,
    requests: wire.requests,
    requestsPerMinute: wire.requests_per_minute,
    bodyBytes: wire.body,
    responseBytes: wire.response,
  }
}
