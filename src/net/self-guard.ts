import { networkInterfaces } from 'node:os'
import { classify, innerIpv4, parseAddress } from '../policy/address.ts'
import type { Address } from '../policy/address.ts'

/** A TCP listener of the broker, as bound. */
export interface ListenerAddress {
  readonly address: string
  readonly port: number
}

/** Keeps the broker from being a destination of its own proxy (I10). */
export interface SelfGuard {
  /**
   * Is this destination the broker: a name or IP literal of the `self:` list, on any port since the broker may be
   * published under another, or a literal that leads to one of its listeners?
   */
  isSelf(host: string, port: number): boolean
  /** Does this address lead to this machine, and the port to a listener of the broker? Text that is no address does. */
  isSelfAddress(address: string, port: number): boolean
}

/** What the broker knows of itself; asked at each question. */
export interface SelfGuardOptions {
  /** Asked each time, so that a reload is seen. */
  readonly listeners: () => readonly ListenerAddress[]
  /** `self:` of the configuration: canonical names and IP literals under which the broker is reached from elsewhere. */
  readonly names: () => readonly string[]
  /** Addresses of this machine; default those of its interfaces at the time of the question. */
  readonly localAddresses?: () => readonly string[]
}

function interfaceAddresses(): string[] {
  return Object.values(networkInterfaces()).flatMap((entries) =>
    (entries ?? []).map(({ address }) => address),
  )
}

/** IPv4 and its mapped form have the same words. */
const key = (address: Address): string => address.words.join('.')

/** The address and every IPv4 address that it may be translated or tunnelled to. */
const forms = (address: Address): Address[] => [address, ...innerIpv4(address)]

const isThisMachine = (address: Address): boolean => {
  const found = classify(address)
  // Linux connects `0.0.0.0` and `::` to itself.
  return found === 'loopback' || found === 'unspecified' || found === 'this_network'
}

/** Interfaces are read at each question about a port of ours, so that an address added later counts at once. */
export function createSelfGuard(options: SelfGuardOptions): SelfGuard {
  const { listeners, names, localAddresses = interfaceAddresses } = options

  const keysOf = (texts: readonly string[]): Set<string> => {
    const addresses = texts.map((text) => parseAddress(text)).filter((address) => address !== undefined)
    return new Set(addresses.map(key))
  }

  function isNamedAddress(address: Address): boolean {
    const named = keysOf(names())
    return named.size > 0 && forms(address).some((form) => named.has(key(form)))
  }

  function leadsToListener(address: Address, port: number): boolean {
    const ours = listeners().filter((listener) => listener.port === port)
    if (ours.length === 0) return false
    const local = keysOf([...localAddresses(), ...ours.map((listener) => listener.address)])
    return forms(address).some((form) => isThisMachine(form) || local.has(key(form)))
  }

  const isOurs = (address: Address, port: number): boolean =>
    isNamedAddress(address) || leadsToListener(address, port)

  return {
    isSelf(host, port) {
      const literal = parseAddress(host)
      return literal === undefined ? names().includes(host) : isOurs(literal, port)
    },
    isSelfAddress(text, port) {
      const address = parseAddress(text)
      return address === undefined || isOurs(address, port)
    },
  }
}
