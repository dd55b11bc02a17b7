import type { CompiledRule } from './compiled-rule.ts'
import { isExpired, missOf } from './matching.ts'
import type { Reading } from './matching.ts'
import type { DenyReason } from '../core/errors.ts'
import type { Deny, Miss, PolicyRequest } from './model.ts'
import { isPublicName } from './host-pattern.ts'
import { rulesBelow } from './rule-index.ts'
import type { Bucket, Policy } from './rule-index.ts'

/** How many values a hint lists at most. */
const maxListed = 6
const ranks: readonly Miss[] = ['port', 'scheme', 'method', 'path', 'expired']

/** The answer to a metadata service, whatever the rules say. */
export const metadataDenial = deny('metadata_denied')

/** The answer to a path that two servers could read differently, on a host with path rules. */
export const ambiguousDenial = deny(
  'malformed',
  undefined,
  'This host has path rules; send the path in canonical form.',
)

/** The answer where a deny rule matches; the reason is the narrowest thing that the rule names. */
export function ruleDenial(rule: CompiledRule, request: PolicyRequest): Deny {
  if (isExpired(rule, request)) return deny('rule_expired', rule.id, 'The rule for this host has expired.')
  if (rule.paths !== undefined) return deny('path_denied', rule.id, 'A rule denies this path on this host.')
  if (rule.methods !== undefined) {
    return deny('method_denied', rule.id, `${phrase(rule.methods)} denied on this host.`)
  }
  if (rule.ports.length > 0) return deny('port_denied', rule.id, 'A rule denies this port on this host.')
  return deny('host_denied', rule.id, 'A rule denies this host.')
}

/** The answer where no allow rule matches: the reason of the rule that came nearest. */
export function missDenial(policy: Policy, buckets: readonly Bucket[], reading: Reading): Deny {
  const { request } = reading
  const rules = buckets.toReversed().flatMap((bucket) => bucket.allow)
  let nearest: { rule: CompiledRule; rank: number } | undefined
  for (const rule of rules) {
    const rank = ranks.indexOf(missOf(rule, reading) ?? 'expired')
    if (nearest === undefined || rank > nearest.rank) nearest = { rule, rank }
  }
  if (nearest === undefined) return hostDenial(policy, request)
  const { rule } = nearest
  const fitting = rules.filter((other) => ranks.indexOf(missOf(other, reading) ?? 'expired') === nearest.rank)
  const live = fitting.filter((other) => !isExpired(other, request))
  switch (ranks[nearest.rank]) {
    case 'scheme':
      return rule.scheme === 'https'
        ? deny('non_tls', rule.id)
        : deny('port_denied', rule.id, 'This port of this host is allowed for plain HTTP only.')
    case 'method':
      return deny('method_denied', rule.id, allowedHint(live.flatMap(({ methods }) => methods ?? [])))
    case 'path':
      return deny('path_denied', rule.id, allowedHint(live.flatMap(({ pathTexts }) => pathTexts ?? [])))
    case 'expired':
      return deny('rule_expired', rule.id)
    default:
      return deny('port_denied', rule.id, portHint(live.flatMap(portTexts)))
  }
}

function hostDenial(policy: Policy, { destination }: PolicyRequest): Deny {
  if (destination.ip !== 0) return deny('host_denied')
  const [below] = rulesBelow(policy, destination.host)
  if (below !== undefined) {
    const hint = `The rule ${below.host} does not cover ${destination.host} itself; it needs its own rule.`
    return deny('host_denied', below.id, hint)
  }
  const isLeftOut = (policy.any?.allow.length ?? 0) > 0 && !isPublicName(destination.host)
  return isLeftOut
    ? deny('host_denied', undefined, 'Only public names are allowed; a private name needs a rule of its own.')
    : deny('host_denied')
}

const portTexts = ({ ports, scheme }: CompiledRule): string[] =>
  ports.map((port) => (scheme === 'http' ? `port ${port} (plain HTTP)` : `port ${port}`))

function portHint(ports: readonly string[]): string | undefined {
  return ports.length === 0 ? undefined : `This host is allowed on ${listed(ports).text} only.`
}

function allowedHint(values: readonly string[]): string | undefined {
  return values.length === 0 ? undefined : `Only ${phrase(values)} allowed on this host.`
}

/** `GET is`, or `GET, HEAD are`. */
function phrase(values: readonly string[]): string {
  const { text, count } = listed(values)
  return `${text} ${count === 1 ? 'is' : 'are'}`
}

/** The first few values, and how many more there are. */
function listed(values: readonly string[]): { text: string; count: number } {
  const distinct = [...new Set(values)]
  const more = distinct.length > maxListed ? ` and ${distinct.length - maxListed} more` : ''
  return { text: distinct.slice(0, maxListed).join(', ') + more, count: distinct.length }
}

function deny(reason: DenyReason, rule?: string, hint?: string): Deny {
  return { verdict: 'deny', reason, rule, hint }
}
