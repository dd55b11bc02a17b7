import { readFile } from 'node:fs/promises'
import type { Config } from '../config/model.ts'
import type { Clock } from '../core/clock.ts'
import { OperatorError } from '../core/errors.ts'
import { createConnector } from '../net/connector.ts'
import type { Connector, Resolver } from '../net/port.ts'
import { createResolver } from '../net/resolver.ts'
import { createSelfGuard, type ListenerAddress, type SelfGuard } from '../net/self-guard.ts'
import { createUpstreamTls, type UpstreamTls } from '../net/upstream-tls.ts'
import type { Authority } from '../tls/authority.ts'

/** How upstreams are found, judged, dialled and verified; made anew at each reload. */
export interface Reach {
  readonly connector: Connector
  readonly upstreamTls: UpstreamTls
  readonly self: SelfGuard
  /** PEM of `trust.ca`. */
  readonly extraRoots: readonly string[]
}

/** What `createReach` builds from. */
export interface ReachOptions {
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

/** Builds resolver, connector and trust from the configuration; an `OperatorError` for a PEM file that cannot be read. */
export async function createReach(options: ReachOptions): Promise<Reach> {
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
