import { classify, innerIpv4, isMetadataName, networkKey, parseAddress } from './address.ts'
import type { Address, Cidr } from './address.ts'
import type { CompiledRule } from './compiled-rule.ts'
import { isPublicName } from './host-pattern.ts'
import { collect, findNode, hostTrie, nodeFor } from './host-trie.ts'
import type { HostTrie } from './host-trie.ts'
import type { Destination, PolicyInput } from './model.ts'

/** The rules of one host pattern or range, in canonical order. */
export interface Bucket {
  /** Allow rules and accesses. */
  readonly allow: readonly CompiledRule[]
  readonly deny: readonly CompiledRule[]
  readonly hasPaths: boolean
}

/** A sandbox's rules, compiled; immutable. */
export interface Policy {
  readonly names: HostTrie<Bucket>
  readonly literals: ReadonlyMap<string, Bucket>
  /** Address rules by prefix length, shortest first, then network: one step per length in use. */
  readonly ranges: ReadonlyMap<number, ReadonlyMap<string, Bucket>>
  readonly any: Bucket | undefined
  /** What is never spliced. */
  readonly bound: PolicyInput['bound']
  /** Every rule, in canonical order: the order of the configuration is gone. */
  readonly rules: readonly CompiledRule[]
}

/** The rules that cover a destination. */
export interface Coverage {
  /** A metadata service, which no rule opens. */
  readonly metadata: boolean
  /** Most general first. */
  readonly buckets: readonly Bucket[]
  /** Nodes and ranges looked at: grows with the labels of the host, not with the number of rules. */
  readonly steps: number
}

interface Draft {
  allow: CompiledRule[]
  deny: CompiledRule[]
  hasPaths: boolean
}

const emptyDraft = (): Draft => ({ allow: [], deny: [], hasPaths: false })

/** Builds the index over rules that are in canonical order already. */
export function indexRules(rules: readonly CompiledRule[], bound?: PolicyInput['bound']): Policy {
  const names = hostTrie<Draft>()
  const literals = new Map<string, Draft>()
  const ranges = new Map<number, Map<string, Draft>>()
  const any = emptyDraft()
  for (const rule of rules) {
    const draft = slotFor(rule)
    draft[rule.effect === 'deny' ? 'deny' : 'allow'].push(rule)
    draft.hasPaths ||= rule.paths !== undefined
  }
  return {
    names,
    literals,
    ranges: new Map([...ranges].sort(([a], [b]) => a - b)),
    any: any.allow.length + any.deny.length === 0 ? undefined : any,
    bound,
    rules,
  }

  function slotFor({ range, host, effect }: CompiledRule): Draft {
    if (range !== undefined) return rangeSlot(range)
    if (host === 'any') return any
    if (host.startsWith('*.')) return (nodeFor(names, host.slice(2)).below ??= emptyDraft())
    const address = parseAddress(host)
    if (address === undefined) return (nodeFor(names, host).exact ??= emptyDraft())
    // A deny is of the address, whichever of its spellings the rule has; an allow is of the literal alone.
    return effect === 'deny'
      ? rangeSlot({ words: address.words, bits: 128 })
      : getOrMake(literals, host, emptyDraft)
  }

  function rangeSlot({ words, bits }: Pick<Cidr, 'words' | 'bits'>): Draft {
    const byNetwork = getOrMake(ranges, bits, () => new Map<string, Draft>())
    return getOrMake(byNetwork, networkKey(words, bits), emptyDraft)
  }
}

/** Finds the rules that cover a canonical destination. */
export function coverage(policy: Policy, destination: Destination): Coverage {
  const { any } = policy
  const { host } = destination
  const buckets: Bucket[] = []
  if (destination.ip !== 0) return literalCoverage(policy, host, buckets)
  if (any !== undefined) buckets.push(isPublicName(host) ? any : deniesOf(any))
  const steps = collect(policy.names, host, buckets)
  return { metadata: isMetadataName(host), buckets, steps }
}

/** The allow rules on names below a host, for the hint that a wildcard leaves its apex out. */
export function rulesBelow(policy: Policy, host: string): readonly CompiledRule[] {
  return findNode(policy.names, host)?.below?.allow ?? []
}

function literalCoverage(policy: Policy, host: string, buckets: Bucket[]): Coverage {
  const address = parseAddress(host)
  if (address === undefined) throw new TypeError('the destination is marked as a literal but is no address')
  if (policy.any !== undefined) buckets.push(policy.any)
  addLiteral(policy, address, buckets)
  // A deny of an IPv4 address holds for every IPv6 spelling that leads to it.
  const inner: Bucket[] = []
  for (const ipv4 of innerIpv4(address)) addLiteral(policy, ipv4, inner)
  buckets.push(...inner.map(deniesOf))
  return { metadata: classify(address) === 'metadata', buckets, steps: policy.ranges.size + 1 }
}

function addLiteral(policy: Policy, address: Address, buckets: Bucket[]): void {
  for (const [bits, byNetwork] of policy.ranges) {
    const bucket = byNetwork.get(networkKey(address.words, bits))
    if (bucket !== undefined) buckets.push(bucket)
  }
  const exact = policy.literals.get(address.text)
  if (exact !== undefined) buckets.push(exact)
}

/** A bucket whose allow rules do not cover the host: their paths say nothing about it either. */
const deniesOf = ({ deny }: Bucket): Bucket => ({
  allow: [],
  deny,
  hasPaths: deny.some(({ paths }) => paths !== undefined),
})

function getOrMake<K, V>(map: Map<K, V>, key: K, make: () => V): V {
  let value = map.get(key)
  if (value === undefined) {
    value = make()
    map.set(key, value)
  }
  return value
}
