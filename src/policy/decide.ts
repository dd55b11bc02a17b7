import { ruleText } from './compiled-rule.ts'
import type { CompiledRule } from './compiled-rule.ts'
import { ambiguousDenial, metadataDenial, missDenial, ruleDenial } from './denial.ts'
import { denyingRule, denyMissOf, matchingRules, missOf, needsReading, readingOf } from './matching.ts'
import type { Reading } from './matching.ts'
import type { Allow, Decision, PolicyRequest, Scheme, TraceLine } from './model.ts'
import { nearestHosts } from './near-hosts.ts'
import { isAmbiguousPath } from './path-pattern.ts'
import { coverage, rulesBelow } from './rule-index.ts'
import type { Bucket, Policy } from './rule-index.ts'

/** A decision with every rule that was looked at for it. */
export interface Explanation {
  readonly decision: Decision
  /** Deny rules first, then accesses, then allow rules. */
  readonly trace: readonly TraceLine[]
}

/**
 * The one decision over what a sandbox may reach. Default deny; a deny rule beats every allow rule and
 * access; of what matches, the most specific host is named. Nothing is looked up, and the order of the rules
 * means nothing.
 */
export function decide(policy: Policy, request: PolicyRequest): Decision {
  const { metadata, buckets } = coverage(policy, request.destination)
  if (metadata) return metadataDenial
  if (request.kind === 'http' && buckets.some(withPaths) && isAmbiguousPath(request.path))
    return ambiguousDenial
  const reading = readingOf(request)
  const denying = denyingRule(buckets, reading)
  if (denying !== undefined) return ruleDenial(denying, request)
  const matched = matchingRules(buckets, reading)
  const [first] = matched
  if (first === undefined) return missDenial(policy, buckets, reading)
  const isSimple = matched.length === 1 && first.tls === 'terminate'
  return isSimple ? first.alone : allowance(matched, first, { policy, buckets, reading })
}

/** The same decision, with the rules that touch the host, or of the hosts spelled nearest where none does. */
export function explain(policy: Policy, request: PolicyRequest): Explanation {
  const { buckets } = coverage(policy, request.destination)
  const reading = readingOf(request)
  const denies = distinct(buckets.flatMap((bucket) => bucket.deny))
  const allows = distinct(buckets.flatMap((bucket) => bucket.allow))
  const trace = [
    ...denies.map((rule) => lineOf(rule, denyMissOf(rule, reading))),
    ...allows.filter(isAccess).map((rule) => lineOf(rule, missOf(rule, reading))),
    ...allows.filter((rule) => !isAccess(rule)).map((rule) => lineOf(rule, missOf(rule, reading))),
  ]
  const elsewhere = allows.length > 0 ? [] : otherHosts(policy, request)
  return {
    decision: decide(policy, request),
    trace: [...trace, ...elsewhere.map((rule) => lineOf(rule, 'host'))],
  }
}

const withPaths = (bucket: Bucket): boolean => bucket.hasPaths
const isAccess = (rule: CompiledRule): boolean => rule.effect === 'access'
const distinct = <T>(items: readonly T[]): T[] => [...new Set(items)]

function allowance(
  matched: readonly CompiledRule[],
  first: CompiledRule,
  facts: { policy: Policy; buckets: readonly Bucket[]; reading: Reading },
): Allow {
  const { alone } = matched.find(isAccess) ?? first
  const { policy, buckets, reading } = facts
  const { request } = reading
  const { host, port } = request.destination
  const isSpliced =
    matched.every((rule) => rule.tls === 'splice') &&
    !needsReading(buckets, port) &&
    policy.bound?.has(host, port) !== true
  const schemes: readonly Scheme[] =
    request.kind === 'http' ? [request.scheme] : distinct(matched.map((rule) => rule.scheme))
  return {
    ...alone,
    tls: isSpliced ? 'splice' : 'terminate',
    schemes,
    addresses: distinct(matched.flatMap((rule) => rule.addresses)),
    ownCredentials: matched.some((rule) => rule.ownCredentials === 'refuse') ? 'refuse' : 'pass',
  }
}

function otherHosts(policy: Policy, { destination }: PolicyRequest): readonly CompiledRule[] {
  const below = destination.ip === 0 ? rulesBelow(policy, destination.host) : []
  return below.length > 0 ? below : nearestHosts(policy.rules, destination.host)
}

function lineOf(rule: CompiledRule, missed: TraceLine['missed']): TraceLine {
  return { effect: rule.effect, rule: rule.id, text: ruleText(rule), matched: missed === undefined, missed }
}
