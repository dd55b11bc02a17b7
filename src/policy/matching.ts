import type { CompiledRule } from './compiled-rule.ts'
import type { Miss, PolicyRequest } from './model.ts'
import { decodeUnreserved, foldedPaths, matchesPath } from './path-pattern.ts'
import type { PathPattern } from './path-pattern.ts'
import type { Bucket } from './rule-index.ts'

/** A request with the forms of its path, made when a rule first needs them. */
export interface Reading {
  readonly request: PolicyRequest
  exact: string | undefined
  folded: readonly string[] | undefined
}

/** Starts reading a request. */
export function readingOf(request: PolicyRequest): Reading {
  return { request, exact: undefined, folded: undefined }
}

/** What keeps an allow rule or access of this host from matching; `undefined` when it matches. */
export function missOf(rule: CompiledRule, reading: Reading): Miss | undefined {
  const { request } = reading
  if (!rule.ports.includes(request.destination.port)) return 'port'
  if (request.kind === 'http') {
    if (rule.scheme !== request.scheme) return 'scheme'
    if (rule.methods !== undefined && !rule.methods.includes(request.method)) return 'method'
    if (rule.paths !== undefined && !matchesExactly(rule.paths, reading, request.path)) return 'path'
  }
  return isExpired(rule, request) ? 'expired' : undefined
}

/**
 * What keeps a deny rule of this host from denying; `undefined` when it denies. A deny rule that has expired
 * goes on denying. One for certain methods or paths says nothing of a tunnel yet, one for neither denies the
 * tunnel too.
 */
export function denyMissOf(rule: CompiledRule, reading: Reading): Miss | undefined {
  const { request } = reading
  if (!coversPort(rule, request.destination.port)) return 'port'
  if (request.kind === 'connect')
    return rule.methods !== undefined ? 'method' : rule.paths !== undefined ? 'path' : undefined
  // Some servers take `delete` for DELETE.
  if (rule.methods !== undefined && !rule.methods.includes(request.method.toUpperCase())) return 'method'
  return rule.paths !== undefined && !matchesFolded(rule.paths, reading, request.path) ? 'path' : undefined
}

/** The first rule that denies, most specific host first. */
export function denyingRule(buckets: readonly Bucket[], reading: Reading): CompiledRule | undefined {
  for (let i = buckets.length - 1; i >= 0; i--) {
    for (const rule of buckets[i]?.deny ?? []) {
      if (denyMissOf(rule, reading) === undefined) return rule
    }
  }
  return undefined
}

/** Every allow rule and access that matches, most specific host first. */
export function matchingRules(buckets: readonly Bucket[], reading: Reading): CompiledRule[] {
  const matched: CompiledRule[] = []
  for (let i = buckets.length - 1; i >= 0; i--) {
    for (const rule of buckets[i]?.allow ?? []) {
      if (missOf(rule, reading) === undefined) matched.push(rule)
    }
  }
  return matched
}

/**
 * Must a tunnel to this port be read, for an access or a deny rule whose methods or paths only reading can
 * tell?
 */
export function needsReading(buckets: readonly Bucket[], port: number): boolean {
  return buckets.some(
    ({ allow, deny }) =>
      allow.some((rule) => rule.effect === 'access' && rule.ports.includes(port)) ||
      deny.some((rule) => coversPort(rule, port) && (rule.methods !== undefined || rule.paths !== undefined)),
  )
}

/** Has a rule's time run out? */
export function isExpired(rule: CompiledRule, request: PolicyRequest): boolean {
  return rule.expires !== undefined && request.now >= rule.expires
}

const coversPort = (rule: CompiledRule, port: number): boolean =>
  rule.ports.length === 0 || rule.ports.includes(port)

function matchesExactly(patterns: readonly PathPattern[], reading: Reading, path: string): boolean {
  const exact = (reading.exact ??= decodeUnreserved(path))
  return patterns.some((pattern) => matchesPath(pattern, exact))
}

function matchesFolded(patterns: readonly PathPattern[], reading: Reading, path: string): boolean {
  const folded = (reading.folded ??= foldedPaths(path))
  return patterns.some((pattern) => folded.some((form) => matchesPath(pattern, form)))
}
