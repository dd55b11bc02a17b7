import { isIP } from 'node:net'
import { parseCidr } from '../../src/policy/address.ts'
import type { Cidr } from '../../src/policy/address.ts'
import type {
  AccessDestination,
  AddressRule,
  Destination,
  HostRule,
  PolicyInput,
  PolicyRequest,
  Rule,
} from '../../src/policy/model.ts'

/** A rule as a test writes it: everything but the host or range has the configuration's default. */
export type Written = Partial<Omit<HostRule, 'kind' | 'addresses'>> & {
  address?: string
  addresses?: string[]
}

export function cidr(text: string): Cidr {
  const result = parseCidr(text)
  if (!result.ok) throw new TypeError(`${text} ${result.problem}`)
  return result.cidr
}

export function allowRule({ address, addresses = [], ...written }: Written): Rule {
  const shared = {
    ports: [443],
    scheme: 'https',
    tls: 'terminate',
    ownCredentials: 'pass',
    ...written,
  } as const
  if (address === undefined) {
    return { host: '', ...shared, kind: 'host', addresses: addresses.map(cidr) } satisfies HostRule
  }
  return { ...shared, kind: 'address', address: cidr(address) } satisfies AddressRule
}

export function denyRule(written: Written): Rule {
  return allowRule({ ports: [], ...written })
}

export function input(written: {
  allow?: Written[]
  deny?: Written[]
  access?: (Omit<AccessDestination, 'addresses'> & { addresses?: string[] })[]
}): PolicyInput {
  return {
    allow: (written.allow ?? []).map(allowRule),
    deny: (written.deny ?? []).map(denyRule),
    access: (written.access ?? []).map(({ addresses = [], ...rest }) => ({
      ...rest,
      addresses: addresses.map(cidr),
    })),
  }
}

export function destination(host: string, port = 443): Destination {
  const family = isIP(host)
  return { host, port, ip: family === 4 ? 4 : family === 6 ? 6 : 0 }
}

export function get(
  host: string,
  changes: Partial<Extract<PolicyRequest, { kind: 'http' }>> = {},
): PolicyRequest {
  return {
    kind: 'http',
    destination: destination(host),
    scheme: 'https',
    method: 'GET',
    path: '/',
    now: 0,
    ...changes,
  }
}
