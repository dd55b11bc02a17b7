import type { Cidr } from './address.ts'
import type { Allow, Scheme } from './model.ts'
import type { PathPattern } from './path-pattern.ts'

/** What a rule says, apart from its id. */
export interface RuleBody {
  readonly effect: 'allow' | 'deny' | 'access'
  /** `host`, `address`, `access`, or the name of a registry. */
  readonly source: string
  readonly access: string | undefined
  /** Host pattern, or the text of the range of an address rule. */
  readonly host: string
  /** Of an address rule. */
  readonly range: Cidr | undefined
  /** Empty in a deny rule: every port. */
  readonly ports: readonly number[]
  readonly scheme: Scheme
  readonly methods: readonly string[] | undefined
  readonly pathTexts: readonly string[] | undefined
  readonly expires: number | undefined
  readonly addresses: readonly Cidr[]
  /** `splice` only where unread bytes leave nothing of the rule unchecked. */
  readonly tls: 'terminate' | 'splice'
  readonly ownCredentials: 'pass' | 'refuse'
}

/** One rule made ready for matching; a registry rule has become one of these per host and scheme. */
export interface CompiledRule extends RuleBody {
  readonly id: string
  /** The result of `canonicalRule`. */
  readonly canonical: string
  readonly paths: readonly PathPattern[] | undefined
  /** The answer where this rule alone matches. */
  readonly alone: Allow
}

/**
 * One line per rule that is equal exactly when two rules decide alike. Ids, owners and notes are left out, so
 * that an id made from this line stays when only they change.
 */
export function canonicalRule(rule: RuleBody): string {
  return JSON.stringify([
    rule.effect,
    rule.access ?? null,
    rule.range === undefined ? 'host' : 'range',
    rule.host,
    rule.ports.toSorted((a, b) => a - b),
    rule.effect === 'deny' ? null : rule.scheme,
    rule.methods?.toSorted() ?? null,
    rule.pathTexts?.toSorted() ?? null,
    rule.addresses.map((cidr) => cidr.text).sort(),
    rule.tls,
    rule.ownCredentials,
    rule.expires ?? null,
  ])
}

/** A rule in the one-line YAML an operator would write; defaults are left out. */
export function ruleText(rule: RuleBody): string {
  const isHost = rule.range === undefined
  const isPlain = rule.scheme === 'http' && rule.effect !== 'deny'
  const parts = [
    ...(['host', 'address', 'access'].includes(rule.source) ? [] : [`registry: ${rule.source}`]),
    `${isHost ? 'host' : 'address'}: ${/^\*|:/.test(rule.host) ? JSON.stringify(rule.host) : rule.host}`,
    ...(hasDefaultPorts(rule, isPlain) ? [] : [`ports: [${rule.ports.join(', ')}]`]),
    ...(isPlain ? ['scheme: http'] : []),
    ...(rule.methods === undefined ? [] : [`methods: [${rule.methods.join(', ')}]`]),
    ...(rule.pathTexts === undefined ? [] : [`paths: ${JSON.stringify(rule.pathTexts)}`]),
    ...(isHost && rule.addresses.length > 0
      ? [`addresses: [${rule.addresses.map((cidr) => cidr.text).join(', ')}]`]
      : []),
    ...(rule.tls === 'splice' ? ['tls: splice'] : []),
    ...(rule.ownCredentials === 'refuse' ? ['own_credentials: refuse'] : []),
    ...(rule.expires === undefined ? [] : [`expires: ${utcDay(rule.expires)}`]),
  ]
  return `{ ${parts.join(', ')} }`
}

function hasDefaultPorts(rule: RuleBody, isPlain: boolean): boolean {
  if (rule.effect === 'deny') return rule.ports.length === 0
  return rule.ports.length === 1 && rule.ports[0] === (isPlain ? 80 : 443)
}

/** The UTC day of a time in `ms`, by the proleptic Gregorian calendar; this folder has no Date. */
function utcDay(ms: number): string {
  // Days are counted from 0000-03-01, so that a leap day ends its year; 146,097 days are 400 years.
  const days = Math.floor(ms / 86_400_000) + 719_468
  const era = Math.floor(days / 146_097)
  const dayOfEra = days - era * 146_097
  const leapDays =
    Math.floor(dayOfEra / 1_460) - Math.floor(dayOfEra / 36_524) + Math.floor(dayOfEra / 146_096)
  const yearOfEra = Math.floor((dayOfEra - leapDays) / 365)
  const dayOfYear = dayOfEra - (365 * yearOfEra + Math.floor(yearOfEra / 4) - Math.floor(yearOfEra / 100))
  const fromMarch = Math.floor((5 * dayOfYear + 2) / 153)
  const day = dayOfYear - Math.floor((153 * fromMarch + 2) / 5) + 1
  const month = fromMarch < 10 ? fromMarch + 3 : fromMarch - 9
  const year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0)
  return `${year}-${String(month).padStart(2, '0')}-${String(day).padStart(2, '0')}`
}
