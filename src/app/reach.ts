import { readFile } from 'node:fs/promises'
import type { Config } from '../config/model.ts'
import type { Clock } from '../core/clock.ts'
import { OperatorError } from '../core/errors.ts'
import type { Holder, Prepare } from '../identity/holder.ts'
import { createConnector } from '../net/connector.ts'
import type { Connector, Resolver } from '../net/port.ts'
import { createResolver } from '../net/resolver.ts'
import { createSelfGuard, type ListenerAddress, type SelfGuard } from '../net/self-guard.ts'
import { createUpstreamTls, type UpstreamTls } from '../net/upstream-tls.ts'
import type { Listener } from '../proxy/listener.ts'
import type { Authority } from '../tls/authority.ts'
import type { NamedListener } from './control.ts'
import type { Foundation } from './foundation.ts'

/** How upstreams are found, judged, dialled and verified; made anew at each reload. */
export interface Reach {
  readonly connector: Connector
  readonly upstreamTls: UpstreamTls
  readonly self: SelfGuard
  /** PEM of `trust.ca`. */
  readonly extraRoots: readonly string[]
}

/** What the reach is built from. */
interface ReachOptions {
  readonly config: Config
  readonly clock: Clock
  readonly authority: Authority
  /** The broker's own TCP listeners, as bound. */
  readonly listeners: () => readonly ListenerAddress[]
  /** Names and literals from `self:`. */
  readonly selfNames: () => readonly string[]
  /** Takes the place of the configured resolver; for tests that need answers to change. */
  readonly resolver?: Resolver | undefined
}

/** Where the reach looks for what it is built from; `listeners` and `named` are asked each time. */
export interface ReachSources {
  readonly clock: Clock
  readonly foundation: Foundation
  readonly holder: Holder
  readonly listeners: readonly Listener[]
  readonly named: readonly NamedListener[]
  readonly resolver: Resolver | undefined
}

/**
 * The reach of the configuration in force, and what makes another at a reload. Rejects with an `OperatorError` for a PEM
 * file that cannot be read.
 */
export async function keepReach(sources: ReachSources): Promise<{ current: () => Reach; prepare: Prepare }> {
  const { clock, foundation, holder, listeners, named, resolver } = sources
  const make = (config: Config): Promise<Reach> =>
    createReach({
      config,
      clock,
      authority: foundation.authority,
      listeners: () => [...listeners.flatMap(tcpAddress), adminAddress(holder, named)],
      selfNames: () => holder.current().selfNames,
      resolver,
    })
  let current = await make(holder.config())
  return {
    current: () => current,
    prepare: async (next) => {
      const made = await make(next)
      return { commit: () => void (current = made), abort: () => undefined }
    },
  }
}

const tcpAddress = ({ at }: Listener): ListenerAddress[] =>
  'host' in at ? [{ address: at.host, port: at.port }] : []

/** As bound: a configured port 0 is any free one. */
const adminAddress = (holder: Holder, named: readonly NamedListener[]): ListenerAddress => {
  const { host, port } = holder.config().listen.admin
  const bound = named.find(({ name, address }) => name === 'admin' && address.startsWith('http'))?.address
  return { address: host, port: bound === undefined ? port : Number(bound.slice(bound.lastIndexOf(':') + 1)) }
}

async function createReach(options: ReachOptions): Promise<Reach> {
  const { config, clock, authority } = options
  const resolver =
    options.resolver ??
    createResolver({ servers: config.resolver.servers, hosts: config.resolver.hosts, clock })
  const self = createSelfGuard({ listeners: options.listeners, names: options.selfNames })
  const extraRoots = await Promise.all(config.trust.ca.map(readPem))
  const own = authority.previous === undefined ? [] : [authority.previous.fingerprint]
  const upstreamTls = createUpstreamTls({
    clock,
    systemRoots: config.trust.system,
    ca: extraRoots,
    ownFingerprints: [authority.fingerprint, ...own],
  })
  return {
    connector: createConnector({ resolver, ownAddresses: self, clock }),
    upstreamTls,
    self,
    extraRoots,
  }
}

async function readPem(path: string): Promise<string> {
  try {
    return await readFile(path, 'utf8')
  } catch (cause) {
    throw new OperatorError(`trust.ca: ${path} cannot be read`, { cause, exitCode: 2 })
  }
}
