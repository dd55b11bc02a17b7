import { parseAddress } from './address.ts'
import { canonicalRule } from './compiled-rule.ts'
import type { CompiledRule, RuleBody } from './compiled-rule.ts'
import { parseHost } from './destination.ts'
import { sha256Hex, shortHash } from './digest.ts'
import type { AccessDestination, AddressRule, HostRule, PolicyInput, Rule } from './model.ts'
import { compileFoldedPath, compilePath } from './path-pattern.ts'
import { registryRules } from './registries/catalogue.ts'
import { indexRules } from './rule-index.ts'
import type { Policy } from './rule-index.ts'

export type { CompiledRule } from './compiled-rule.ts'
export type { Policy } from './rule-index.ts'

/**
 * Compiles rules for `decide`. A host that is not canonical is a TypeError: the configuration makes hosts
 * canonical.
 */
export function compilePolicy(input: PolicyInput): Policy {
  const rules = [
    ...input.allow.flatMap((rule) => expand(rule, 'allow')),
    ...input.deny.flatMap((rule) => expand(rule, 'deny')),
    ...input.access.map(compileAccess),
  ]
  // The order of the configuration must mean nothing, not even for which of two matching rules is named.
  const keyed = rules.map((rule) => ({ rule, key: lineOf(rule) }))
  keyed.sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0))
  return indexRules(
    keyed.map(({ rule }) => rule),
    input.bound,
  )
}

/** Canonical text of a policy: one line per rule, the same for every order of the same rules. */
export function describePolicy(policy: Policy): string {
  return policy.rules.map((rule) => `${lineOf(rule)}\n`).join('')
}

/** Short hash of what a policy decides and how its rules are called; 16 hex digits. */
export function policyFingerprint(policy: Policy): string {
  return sha256Hex(describePolicy(policy)).slice(0, 16)
}

const lineOf = (rule: CompiledRule): string => `${rule.id} ${rule.canonical}`

function expand(rule: Rule, effect: 'allow' | 'deny'): CompiledRule[] {
  if (rule.kind !== 'registry') return [compileOne(rule, effect, rule.kind)]
  const hosts = registryRules(rule)
  if (effect === 'allow') return hosts.map((host) => compileOne(host, effect, rule.registry))
  // Denying a registry denies its hosts whole, not only the requests that installing would send.
  return hosts.map((host) => compileOne({ ...host, methods: undefined, ports: [] }, effect, rule.registry))
}

function compileOne(rule: HostRule | AddressRule, effect: 'allow' | 'deny', source: string): CompiledRule {
  const isDeny = effect === 'deny'
  // An empty list denies: in an allow rule it matches nothing, in a deny rule everything.
  const given = (list: readonly string[] | undefined): readonly string[] | undefined =>
    isDeny && list?.length === 0 ? undefined : list
  const methods = given(rule.methods)
  const pathTexts = given(rule.paths)
  const needsReading = methods !== undefined || pathTexts !== undefined || rule.ownCredentials === 'refuse'
  return finish(rule.id, {
    effect,
    source,
    access: undefined,
    host: rule.kind === 'address' ? rule.address.text : canonicalPattern(rule.host),
    range: rule.kind === 'address' ? rule.address : undefined,
    ports: rule.ports,
    scheme: rule.scheme,
    methods: isDeny ? methods?.map((method) => method.toUpperCase()) : methods,
    pathTexts,
    expires: rule.expires,
    addresses: rule.kind === 'address' ? [rule.address] : rule.addresses,
    tls: rule.tls === 'splice' && rule.scheme === 'https' && !needsReading ? 'splice' : 'terminate',
    ownCredentials: rule.ownCredentials,
  })
}

function compileAccess(destination: AccessDestination): CompiledRule {
  return finish(`access:${destination.access}`, {
    effect: 'access',
    source: 'access',
    access: destination.access,
    host: canonicalPattern(destination.host),
    range: undefined,
    ports: [destination.port],
    scheme: 'https',
    methods: destination.methods,
    pathTexts: destination.paths,
    expires: undefined,
    addresses: destination.addresses,
    tls: 'terminate',
    ownCredentials: 'pass',
  })
}

function finish(givenId: string | undefined, body: RuleBody): CompiledRule {
  const named = ['host', 'address'].includes(body.source) ? body.host : body.source
  const canonical = canonicalRule(body)
  const id = givenId ?? `${named}#${shortHash(canonical)}`
  return {
    ...body,
    id,
    canonical,
    paths: body.pathTexts?.map(body.effect === 'deny' ? compileFoldedPath : compilePath),
    alone: {
      verdict: 'allow',
      reason: body.effect === 'access' ? 'access' : 'rule',
      rule: id,
      access: body.access,
      tls: body.tls,
      schemes: [body.scheme],
      addresses: body.addresses,
      ownCredentials: body.ownCredentials,
    },
  }
}

/** Passes a canonical host pattern on. A rule under any other spelling would never match, or never deny. */
function canonicalPattern(pattern: string): string {
  if (pattern === 'any') return pattern
  const isWildcard = pattern.startsWith('*.')
  const host = isWildcard ? pattern.slice(2) : pattern
  const parsed = parseHost(host)
  const isName = parsed.ok && parsed.ip === 0 && parsed.host === host
  if (!isName && (isWildcard || parseAddress(host)?.text !== host)) {
    throw new TypeError(`not a canonical host pattern: ${pattern}`)
  }
  return pattern
}
