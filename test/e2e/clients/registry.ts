import { lookup } from 'node:dns/promises'
import { connect } from 'node:net'
import { judge, parseAddress } from '../../../src/policy/address.ts'
import type { RegistryName } from '../../../src/policy/model.ts'
import { hostOf, registryHosts } from '../../../src/policy/registries/catalogue.ts'

/** A public registry as this machine reaches it. */
export interface Reached {
  /** Hosts of the registry, the main one first. */
  readonly hosts: readonly string[]
  /** A registry rule for a configuration, on one line. */
  readonly rule: string
  /** Why a test against it cannot run here. */
  readonly skip: string | undefined
}

const connectMs = 3_000

/**
 * Looks where a registry is. Some machines reach it through a mirror at an address that is not public, so the rule names
 * exactly the addresses that the guard would refuse.
 */
export async function reach(name: RegistryName): Promise<Reached> {
  const hosts = registryHosts(name).map(({ labels }) => hostOf(labels))
  const found = await Promise.all(hosts.map(addressesOf))
  const addresses = [...new Set(found.flat())]
  const special = addresses.filter((address) => !isPublic(address))
  const ranges = special.map((address) => `${address}/${address.includes(':') ? 128 : 32}`)
  const opened = ranges.length === 0 ? '' : `, addresses: [${ranges.map((range) => `"${range}"`).join(', ')}]`
  const [first] = found[0] ?? []
  const answers = first !== undefined && (await accepts(first, 443))
  return {
    hosts,
    rule: `{ id: ${name}, registry: ${name}, mode: install${opened} }`,
    skip: answers ? undefined : `nothing answers for the ${name} registry`,
  }
}

async function addressesOf(host: string): Promise<string[]> {
  try {
    return (await lookup(host, { all: true })).map(({ address }) => address)
  } catch {
    return []
  }
}

function isPublic(text: string): boolean {
  const address = parseAddress(text)
  return address !== undefined && judge(address, []).allowed
}

function accepts(host: string, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host, port, timeout: connectMs })
    const end = (result: boolean) => {
      socket.destroy()
      resolve(result)
    }
    socket.once('connect', () => end(true))
    socket.once('timeout', () => end(false))
    socket.once('error', () => end(false))
  })
}
