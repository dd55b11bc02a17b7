import { sameSlot } from '../handles/slot.ts'
import type { Access } from '../handles/model.ts'
import { isMetadataName } from '../policy/address.ts'
import type { AccessDestination, Rule } from '../policy/model.ts'
import { hostOf, registryHosts } from '../policy/registries/catalogue.ts'
import type { PolicyBlock } from './model.ts'
import { below, describePlace, problemAt } from './problem.ts'
import type { Place, Problem } from './problem.ts'

/** A template or sandbox, with the place where it is written. */
export interface Written {
  readonly block: PolicyBlock
  readonly place: Place
}

interface Placed<T> {
  readonly item: T
  readonly place: Place
}

/** An access and where its entry stands. */
export interface PlacedAccess {
  readonly access: Access
  readonly place: Place
}

/**
 * What must hold among the rules and accesses that meet in one sandbox: `own` alone, and `own` with its template. Pairs
 * inside the template are that template's problem.
 */
export function checkTogether(
  own: Written,
  template: Written | undefined,
  accesses: ReadonlyMap<string, PlacedAccess>,
): Problem[] {
  const { allow, deny, access } = own.block
  if (allow.length + deny.length + access.length === 0) return []
  return [
    ...checkRules(own, template),
    ...checkRegistries(own, template),
    ...checkAccesses(own, template, accesses),
  ]
}

const placed = <T>(items: readonly T[], place: Place, key: string): Placed<T>[] =>
  items.map((item, index) => ({ item, place: below(place, key, index) }))

const rulesOf = (written: Written | undefined, key: 'allow' | 'deny'): Placed<Rule>[] =>
  written === undefined ? [] : placed(written.block[key], written.place, key)

/** Ids name one rule of a sandbox, or events could not say which one decided. */
function checkRules(own: Written, template: Written | undefined): Problem[] {
  const seen = new Map<string, Placed<Rule>>()
  for (const rule of [...rulesOf(template, 'allow'), ...rulesOf(template, 'deny')]) {
    if (rule.item.id !== undefined) seen.set(rule.item.id, rule)
  }
  return [...rulesOf(own, 'allow'), ...rulesOf(own, 'deny')].flatMap((rule) => {
    const { id } = rule.item
    const metadata = deadRule(rule)
    if (id === undefined) return metadata
    const first = seen.get(id)
    seen.set(id, rule)
    if (first === undefined) return metadata
    const message = `the id \`${id}\` is already at ${describePlace(first.place)}`
    return [...metadata, problemAt(below(rule.place, 'id'), message)]
  })
}

function deadRule({ item, place }: Placed<Rule>): Problem[] {
  if (item.kind !== 'host' || place.path.at(-2) !== 'allow' || !isMetadataName(item.host)) return []
  return [problemAt(below(place, 'host'), 'metadata services are never reachable; no rule opens them')]
}

/** A host rule would widen what `mode: install` promises for the hosts of its registry. */
function checkRegistries(own: Written, template: Written | undefined): Problem[] {
  const here = rulesOf(own, 'allow')
  const inherited = rulesOf(template, 'allow')
  const claims = claimsOf(here)
  return [
    ...hostsOf(here).flatMap((host) => claimed(host, [...claims, ...claimsOf(inherited)], host.place)),
    ...hostsOf(inherited).flatMap((host) => claimed(host, claims, undefined)),
  ]
}

interface Named {
  readonly host: string
  readonly place: Place
}

/** The problem that a registry rule claims a host; reported at `place`, or else at the registry rule. */
function claimed(host: Named, claims: readonly Named[], place: Place | undefined): Problem[] {
  const claim = claims.find((candidate) => covers(host.host, candidate.host))
  if (claim === undefined) return []
  const second = place === undefined ? host.place : claim.place
  const message = `a host rule for \`${host.host}\` and a registry rule for the same host: ${describePlace(second)}`
  return [problemAt(place ?? claim.place, message)]
}

const hostsOf = (rules: readonly Placed<Rule>[]): Named[] =>
  rules.flatMap(({ item, place }) =>
    item.kind === 'host' ? [{ host: item.host, place: below(place, 'host') }] : [],
  )

const claimsOf = (rules: readonly Placed<Rule>[]): Named[] =>
  rules.flatMap(({ item, place }) =>
    item.kind === 'registry'
      ? registryHosts(item.registry).map(({ labels }) => ({ host: hostOf(labels), place }))
      : [],
  )

/** Does a pattern (not `any`, which says that it means everything) cover a host or the hosts of another pattern? */
function covers(pattern: string, host: string): boolean {
  return pattern === host || (pattern.startsWith('*.') && host.endsWith(pattern.slice(1)))
}

function checkAccesses(
  own: Written,
  template: Written | undefined,
  accesses: ReadonlyMap<string, PlacedAccess>,
): Problem[] {
  const named = (written: Written | undefined): Placed<PlacedAccess>[] =>
    written === undefined
      ? []
      : placed(written.block.access, written.place, 'access').flatMap(({ item, place }) => {
          const access = accesses.get(item)
          return access === undefined ? [] : [{ item: access, place }]
        })
  const inherited = named(template)
  return named(own).flatMap((one, index, all) =>
    [...inherited, ...all.slice(0, index)].flatMap((other) => conflicts(one, other)),
  )
}

function conflicts(
  { item: one, place }: Placed<PlacedAccess>,
  { item: other }: Placed<PlacedAccess>,
): Problem[] {
  const [a, b] = [one.access, other.access]
  if (a.name === b.name) return []
  const problems: Problem[] = []
  const places = (key: string): string =>
    `${describePlace(below(one.place, key))} and ${describePlace(below(other.place, key))}`
  if (a.env !== undefined && a.env === b.env) {
    problems.push(problemAt(place, `\`${a.name}\` and \`${b.name}\` both set \`${a.env}\`: ${places('env')}`))
  }
  const shared = sharedDestination(a, b)
  if (shared !== undefined && sameSlot(a.slot, b.slot)) {
    const where = `${shared.host}:${shared.port}`
    const message = `\`${a.name}\` and \`${b.name}\` use the same slot on ${where}: ${places('slot')}`
    problems.push(problemAt(place, message))
  }
  return problems
}

function sharedDestination(a: Access, b: Access): AccessDestination | undefined {
  return a.destinations.find((one) =>
    b.destinations.some(
      (other) => one.port === other.port && (covers(one.host, other.host) || covers(other.host, one.host)),
    ),
  )
}
