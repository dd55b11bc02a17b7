import { randomBytes } from 'node:crypto'
import { join } from 'node:path'
import { adminEvent } from './admin/event.ts'
import { startAdminServer } from './admin/server.ts'
import { Control, type NamedListener } from './app/control.ts'
import { brokerInput } from './app/credentials.ts'
import { openFoundation, readConfig, type Foundation } from './app/foundation.ts'
import { createPlane, type RunningPlane } from './app/plane.ts'
import { holderOf } from './app/port-holder.ts'
import { createReach, type Reach } from './app/reach.ts'
import { createSandboxSockets } from './app/sandbox-sockets.ts'
import { createBroker, type CredentialBroker } from './broker/broker.ts'
import { loadConfig } from './config/load.ts'
import type { ProxyListener } from './config/model.ts'
import { systemClock, type Clock } from './core/clock.ts'
import { OperatorError } from './core/errors.ts'
import { createHolder, type Holder } from './identity/holder.ts'
import { createLifecycle, type SweepingLifecycle } from './identity/lifecycle.ts'
import type { Logger } from './logger.ts'
import { environmentNotes, environmentProblems } from './net/environment.ts'
import type { Resolver } from './net/port.ts'
import { describePolicy } from './policy/rules.ts'
import type { PlaneLimits } from './proxy/limits.ts'
import { listen, type Listener } from './proxy/listener.ts'
import { writeTrustFiles, type TrustFiles } from './sandbox/bundle.ts'
import { createLeafCache } from './tls/leaf-cache.ts'
import { createMinter } from './tls/minter.ts'

/** How to start a broker. */
export interface AppOptions {
  readonly configFile: string
  readonly env: NodeJS.ProcessEnv
  readonly log: Logger
  readonly clock?: Clock | undefined
  readonly limits?: Partial<PlaneLimits> | undefined
  /** Takes the place of the configured resolver; for tests. */
  readonly resolver?: Resolver | undefined
  /** Serve only the sockets of sandboxes, not `listen`: the private broker of one `octroi run`. */
  readonly isPrivate?: boolean | undefined
}

/** A running broker. */
export interface App {
  /** One entry for each listener: what it is and where. */
  readonly listeners: readonly NamedListener[]
  readonly holder: Holder
  readonly foundation: Foundation
  readonly trust: TrustFiles
  /** Sentences for the operator about this start. */
  readonly notes: readonly string[]
  openSandboxSocket(sandbox: string): Promise<string>
  /** Reads the files anew, all or nothing; an `OperatorError` lists the problems and the old policy stays. */
  reload(): Promise<{ policy: string }>
  /** Drains what is in flight, then closes everything; a second call ends what still drains. */
  stop(): Promise<void>
}

type Closers = (() => Promise<void> | void)[]

/** Builds every part from the configuration and starts them in order; what was started is undone when one fails. */
export async function startApp(options: AppOptions): Promise<App> {
  const problems = environmentProblems(options.env, process.execArgv)
  if (problems.length > 0) throw new OperatorError(problems.join('\n'), { exitCode: 2 })
  const closers: Closers = []
  try {
    return await start(options, closers)
  } catch (error) {
    for (const close of closers.toReversed()) await close()
    throw error
  }
}

async function start(options: AppOptions, closers: Closers): Promise<App> {
  const { log, env, isPrivate = false, clock = systemClock } = options
  const foundation = await openFoundation(readConfig(options.configFile, { env, clock }), {
    clock,
    onProblem: (message) => log.error({}, message),
  })
  closers.push(() => foundation.close())
  const holder = await openHolder(options, foundation)
  const broker = await openBroker({ holder, foundation, env, clock }, closers)
  const listeners: Listener[] = []
  const named: NamedListener[] = []
  const reach = await openReach(options, { foundation, holder, listeners, named })
  const minter = createMinter({ clock })
  closers.push(() => minter.close())
  const leaves = createLeafCache({ authority: foundation.authority, minter, clock })
  const running = createPlane({ clock, log, foundation, holder, broker, leaves, reach: reach.current, limits: options.limits })
  closers.push(() => running.close())
  follow({ holder, foundation, broker, running, log }, closers)
  const trust = await publishTrust({ holder, foundation, reach: reach.current() })
  const sockets = createSandboxSockets({
    plane: running.plane,
    folder: join(holder.config().stateFolder, 'sockets'),
    snapshot: () => holder.current(),
  })
  closers.push(() => sockets.close())
  const lifecycle = lifecycleOf({ foundation, holder, broker, clock })
  const control = new Control({
    ...{ clock, log, foundation, holder, broker, running, lifecycle, sockets, listeners, named, closers },
    renewReach: reach.renew,
  })
  // Every part stands before the first listener opens, so that nothing is ever served by default rules.
  running.setReady(true)
  if (!isPrivate) await openListeners({ holder, running, listeners, named }, closers)
  if (!isPrivate) await openAdmin({ holder, control, named }, closers)
  if (!isPrivate) control.watch()
  closers.push(control.sweep())
  return {
    listeners: named,
    holder,
    foundation,
    trust,
    notes: [...environmentNotes(env), ...reach.current().upstreamTls.notes],
    openSandboxSocket: (sandbox) => sockets.open(sandbox),
    reload: () => control.reload(),
    stop: () => control.stop(),
  }
}

function openHolder({ configFile, env, log, clock = systemClock }: AppOptions, foundation: Foundation): Promise<Holder> {
  return createHolder({
    load: () => loadConfig(configFile, { env, now: clock.now() }),
    store: foundation.store,
    seal: foundation.seal,
    random: (bytes) => randomBytes(bytes),
    clock,
    env,
    warn: (lines) => {
      for (const line of lines) log.warn({}, line)
    },
  })
}

interface BrokerParts {
  readonly holder: Holder
  readonly foundation: Foundation
  readonly env: NodeJS.ProcessEnv
  readonly clock: Clock
}

async function openBroker({ holder, foundation, env, clock }: BrokerParts, closers: Closers): Promise<CredentialBroker> {
  const { store, seal } = foundation
  const broker = await createBroker({ ...brokerInput(holder.config(), holder.current()), store, seal, clock, env })
  closers.push(() => broker.close())
  return broker
}

async function openReach(
  options: AppOptions,
  parts: {
    readonly foundation: Foundation
    readonly holder: Holder
    readonly listeners: readonly Listener[]
    readonly named: readonly NamedListener[]
  },
): Promise<{ current: () => Reach; renew: () => Promise<void> }> {
  const { foundation, holder, listeners, named } = parts
  const make = (): Promise<Reach> =>
    createReach({
      config: holder.config(),
      clock: options.clock ?? systemClock,
      authority: foundation.authority,
      listeners: () => [...listeners.flatMap(tcpAddress), adminAddress(holder, named)],
      selfNames: () => holder.current().selfNames,
      resolver: options.resolver,
    })
  let current = await make()
  return {
    current: () => current,
    renew: async () => {
      current = await make()
    },
  }
}

const tcpAddress = ({ at }: Listener): { address: string; port: number }[] =>
  'host' in at ? [{ address: at.host, port: at.port }] : []

/** As bound: a configured port 0 is any free one. */
const adminAddress = (holder: Holder, named: readonly NamedListener[]): { address: string; port: number } => {
  const { host, port } = holder.config().listen.admin
  const bound = named.find(({ name, address }) => name === 'admin' && address.startsWith('http'))?.address
  return { address: host, port: bound === undefined ? port : Number(bound.slice(bound.lastIndexOf(':') + 1)) }
}

interface FollowParts {
  readonly holder: Holder
  readonly foundation: Foundation
  readonly broker: CredentialBroker
  readonly running: RunningPlane
  readonly log: Logger
}

/** What every new snapshot means: its text is kept for `why`, and what it denies ends. */
function follow({ holder, foundation, broker, running, log }: FollowParts, closers: Closers): void {
  const record = (): void => {
    const { hash, sandboxes } = holder.current()
    const policies = [...sandboxes.values()].map(({ name, policy }) => ({ sandbox: name, policy: describePolicy(policy) }))
    foundation.events.recordPolicy(hash, JSON.stringify(policies))
  }
  record()
  closers.push(
    holder.onChange((snapshot) => {
      record()
      const ended = running.plane.live.recheck(snapshot)
      if (ended > 0) log.info({ ended, policy: snapshot.hash }, 'ended what is no longer allowed')
    }),
  )
  for (const { credential, message } of broker.problems()) log.error({ credential }, message)
}

/** Trust files for sandboxes, in a public folder beside the configuration: never in the state folder. */
function publishTrust(parts: { holder: Holder; foundation: Foundation; reach: Reach }): Promise<TrustFiles> {
  const { authority } = parts.foundation
  return writeTrustFiles({
    // Of their own: `certs` may hold keys of the operator's, and this folder is mounted into sandboxes.
    folder: join(parts.holder.config().root, 'certs', 'sandbox'),
    caPem: authority.certificatePem,
    extra: [...(authority.previous === undefined ? [] : [authority.previous.certificatePem]), ...parts.reach.extraRoots],
  })
}

function lifecycleOf(parts: {
  foundation: Foundation
  holder: Holder
  broker: CredentialBroker
  clock: Clock
}): SweepingLifecycle {
  const { foundation, holder, broker, clock } = parts
  const { store, seal, events, newId } = foundation
  return createLifecycle({
    store,
    seal,
    clock,
    random: (bytes) => randomBytes(bytes),
    config: () => holder.config(),
    // No answer before the snapshot is in force and a revoked credential is refused.
    changed: async () => {
      const snapshot = await holder.refresh()
      await broker.configure(brokerInput(holder.config(), snapshot))
      await broker.refresh()
    },
    audit: (event) => events.appendDurable(adminEvent(event, { id: newId(), ts: clock.now() })),
  })
}

async function openListeners(
  parts: { holder: Holder; running: RunningPlane; listeners: Listener[]; named: NamedListener[] },
  closers: Closers,
): Promise<void> {
  const { holder, running, listeners, named } = parts
  closers.push(() => {
    for (const listener of listeners) {
      void listener.close()
      listener.destroy()
    }
  })
  for (const at of holder.config().listen.proxy) {
    const listener = await listen(running.plane, at, holderOf)
    listeners.push(listener)
    named.push({ name: 'proxy', address: addressOf(listener, at) })
  }
}

function addressOf({ at }: Listener, configured: ProxyListener): string {
  if ('path' in at) return `unix:${at.path}`
  const host = at.host.includes(':') ? `[${at.host}]` : at.host
  return `${configured.kind === 'tcp' && configured.tls ? 'https' : 'http'}://${host}:${at.port}`
}

async function openAdmin(
  { holder, control, named }: { holder: Holder; control: Control; named: NamedListener[] },
  closers: Closers,
): Promise<void> {
  const { stateFolder, listen: listenAt } = holder.config()
  const server = await startAdminServer(control.adminDeps((bytes) => randomBytes(bytes)), {
    stateFolder,
    listen: listenAt.admin,
    holderOf,
  })
  closers.push(() => server.stop())
  const host = server.host.includes(':') ? `[${server.host}]` : server.host
  named.push({ name: 'admin', address: `http://${host}:${server.port}` }, { name: 'admin', address: `unix:${server.socketPath}` })
}
