import type { DenyReason } from '../core/errors.ts'
import type { Cidr } from './address.ts'

/** Canonical host and port. The only maker is `destination.ts`. */
export interface Destination {
  /**
   * Lower-case A-label name without trailing dot, or the canonical text of an IP literal without brackets.
   */
  readonly host: string
  readonly port: number
  /** `4` or `6` for an IP literal, `0` for a name. */
  readonly ip: 0 | 4 | 6
}

/** `https`: TLS only. `http`: cleartext only. */
export type Scheme = 'https' | 'http'
/** A public package registry of the catalogue. */
export type RegistryName = 'npm' | 'pypi' | 'crates' | 'go' | 'maven' | 'apt'

interface RuleBase {
  /** Operator's id, else derived from the content by `compilePolicy`, never from the position. */
  readonly id?: string | undefined
  readonly owner?: string | undefined
  readonly note?: string | undefined
  /** `ms` since the epoch, after which the rule denies with `rule_expired`. */
  readonly expires?: number | undefined
}

/** A rule on a name, on what is below a name, on one IP literal, or on anything public. */
export interface HostRule extends RuleBase {
  readonly kind: 'host'
  /**
   * Exact name or literal, `*.` + name, or the word `any` (every public name and every literal); canonical.
   */
  readonly host: string
  /** In an allow rule an empty list matches nothing; in a deny rule it stands for every port. */
  readonly ports: readonly number[]
  /** Deny rules hold for both schemes. */
  readonly scheme: Scheme
  /** Upper-case; absent means every method. */
  readonly methods?: readonly string[] | undefined
  /** Path patterns; absent means every path. */
  readonly paths?: readonly string[] | undefined
  /** Ranges that the address guard opens for destinations of this rule. */
  readonly addresses: readonly Cidr[]
  readonly tls: 'terminate' | 'splice'
  readonly ownCredentials: 'pass' | 'refuse'
}

/** Rules on IP literals inside a range; an allow rule opens that range in the address guard too. */
export interface AddressRule extends RuleBase {
  readonly kind: 'address'
  readonly address: Cidr
  /** As in `HostRule`. */
  readonly ports: readonly number[]
  readonly scheme: Scheme
  readonly methods?: readonly string[] | undefined
  readonly paths?: readonly string[] | undefined
  readonly tls: 'terminate' | 'splice'
  readonly ownCredentials: 'pass' | 'refuse'
}

/** Allows what installing from a public registry needs; the catalogue says which hosts and methods. */
export interface RegistryRule extends RuleBase {
  readonly kind: 'registry'
  readonly registry: RegistryName
  readonly mode: 'install'
  /** Ranges that the address guard opens for the hosts of this registry. */
  readonly addresses: readonly Cidr[]
}

/** A rule of an allow or deny list. */
export type Rule = HostRule | AddressRule | RegistryRule

/** A destination of an access, as `decide` sees it: an implied allow rule with the id `access:NAME`. */
export interface AccessDestination {
  readonly access: string
  readonly host: string
  readonly port: number
  readonly methods?: readonly string[] | undefined
  readonly paths?: readonly string[] | undefined
  readonly addresses: readonly Cidr[]
}

/** What one sandbox's policy is compiled from. */
export interface PolicyInput {
  readonly allow: readonly Rule[]
  readonly deny: readonly Rule[]
  readonly access: readonly AccessDestination[]
  /**
   * Destinations of every access of the tenant. They are never spliced: what one sandbox stored there with a credential,
   * another must not read back unread.
   */
  readonly bound?: { has(host: string, port: number): boolean } | undefined
}

/**
 * What is asked. `connect` opens a tunnel: method and path are not known yet, and the answer is allow when
 * some request through it could be allowed. `http` is one request.
 */
export type PolicyRequest =
  | { readonly kind: 'connect'; readonly destination: Destination; readonly now: number }
  | {
      readonly kind: 'http'
      readonly destination: Destination
      readonly scheme: Scheme
      readonly method: string
      /** Raw path before `?`, beginning with `/`. */
      readonly path: string
      readonly now: number
    }

/** The request may go on; how, and past which address ranges. */
export interface Allow {
  readonly verdict: 'allow'
  readonly reason: 'rule' | 'access'
  /** Id of the rule that allowed; an access's beats a host rule's. */
  readonly rule: string
  /** Name of the access whose destination this request is in, if any. */
  readonly access: string | undefined
  /** `splice` only when every matching allow rule says so and no access has this host and port. */
  readonly tls: 'terminate' | 'splice'
  /** For `connect`: the schemes that requests inside the tunnel may have. */
  readonly schemes: readonly Scheme[]
  /** Union of the ranges of all matching rules and access destinations. */
  readonly addresses: readonly Cidr[]
  /** `refuse` when any matching rule says so. */
  readonly ownCredentials: 'pass' | 'refuse'
}

/** The request is refused; why, and what the client may be told. */
export interface Deny {
  readonly verdict: 'deny'
  readonly reason: DenyReason
  /** The deny rule, the expired rule, or the rule that came nearest. */
  readonly rule: string | undefined
  /**
   * Client-safe sentence about rules for this same host only, such as the methods or the port that would do.
   */
  readonly hint: string | undefined
}

/** What `decide` answers. */
export type Decision = Allow | Deny

/**
 * What kept a rule of this host from matching. A rule is looked at in this order, so `expired` means all else
 * fits.
 */
export type Miss = 'port' | 'scheme' | 'method' | 'path' | 'expired'

/** One line of `octroi explain`: a rule that was looked at and what became of it. */
export interface TraceLine {
  readonly effect: 'allow' | 'deny' | 'access'
  readonly rule: string
  /** The rule as the operator would write it, in one line. */
  readonly text: string
  readonly matched: boolean
  /** Why not; `host` for a rule of another host that is spelled much the same. */
  readonly missed: Miss | 'host' | undefined
}
