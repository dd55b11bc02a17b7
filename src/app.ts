import { randomBytes } from 'node:crypto'
import { join } from 'node:path'
import { adminEvent } from './admin/event.ts'
import { createAttachments } from './app/attachments.ts'
import { Control, prepareAll, type NamedListener } from './app/control.ts'
import { brokerInput } from './app/credentials.ts'
import { createDoors, openAdmin } from './app/doors.ts'
import { openFoundation, readConfig, type Foundation } from './app/foundation.ts'
import { createPlane, type RunningPlane } from './app/plane.ts'
import { keepReach, type Reach } from './app/reach.ts'
import { createSandboxSockets, type SandboxSockets } from './app/sandbox-sockets.ts'
import { createBroker, type CredentialBroker } from './broker/broker.ts'
import { loadConfig } from './config/load.ts'
import { systemClock, type Clock } from './core/clock.ts'
import { OperatorError } from './core/errors.ts'
import { createHolder, type Holder } from './identity/holder.ts'
import { createLifecycle, type SweepingLifecycle } from './identity/lifecycle.ts'
import { policyRecord } from './identity/policy-record.ts'
import type { Logger } from './logger.ts'
import { environmentNotes, environmentProblems } from './net/environment.ts'
import type { Resolver } from './net/port.ts'
import type { PlaneLimits } from './proxy/limits.ts'
import type { Listener } from './proxy/listener.ts'
import { trustFolder, writeTrustFiles, type TrustFiles } from './sandbox/bundle.ts'
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
  /** Serve only the sockets of sandboxes and of the owner, not `listen`: the private broker of `octroi run`. */
  readonly private?: { readonly idleExitMs: number } | undefined
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
  /** Resolves when a private broker has nothing left to do or was asked to hand over; never for others. */
  readonly idle: Promise<void>
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
  const { log, env, clock = systemClock } = options
  const isPrivate = options.private !== undefined
  const foundation = await openFoundation(readConfig(options.configFile, { env, clock }), {
    clock,
    onProblem: (message) => log.error({}, message),
  })
  closers.push(() => foundation.close())
  const holder = await openHolder(options, foundation)
  const broker = await openBroker({ holder, foundation, env, clock }, closers)
  const listeners: Listener[] = []
  const named: NamedListener[] = []
  const reach = await keepReach({ resolver: options.resolver, clock, foundation, holder, listeners, named })
  const minter = createMinter({ clock })
  closers.push(() => minter.close())
  const leaves = createLeafCache({ authority: foundation.authority, minter, clock })
  const running = createPlane({
    ...{ clock, log, foundation, holder, broker, leaves },
    reach: reach.current,
    limits: options.limits,
    pause: (sandbox) => lifecycle.pause(sandbox),
  })
  closers.push(() => running.close())
  follow({ holder, foundation, broker, running, log }, closers)
  const trust = await publishTrust({ holder, foundation, reach: reach.current() })
  const sockets = openSockets({ holder, running }, closers)
  const lifecycle = lifecycleOf({ foundation, holder, broker, running, clock })
  const attachments = createAttachments({
    clock,
    idleExitMs: options.private?.idleExitMs,
    isBusy: () => running.plane.live.busy > 0,
  })
  closers.push(() => attachments.close())
  const doors = createDoors({ running, listeners, named, isPrivate }, closers)
  const control = new Control({
    ...{ clock, log, foundation, holder, broker, running, lifecycle, sockets, listeners, named, closers },
    attachments,
    prepare: prepareAll(reach.prepare, doors.prepare),
  })
  // Every part stands before the first listener opens, so that nothing is ever served by default rules.
  running.setReady(true)
  const opened = await doors.prepare(holder.config())
  opened.commit()
  await openAdmin({ holder, control, named, isPrivate }, closers)
  control.watch()
  closers.push(control.sweep())
  return {
    listeners: named,
    holder,
    foundation,
    trust,
    notes: [...environmentNotes(env), ...reach.current().upstreamTls.notes],
    openSandboxSocket: (sandbox) => sockets.open(sandbox),
    idle: attachments.idle,
    reload: () => control.reload(),
    stop: () => control.stop(),
  }
}

function openHolder(
  { configFile, env, log, clock = systemClock }: AppOptions,
  foundation: Foundation,
): Promise<Holder> {
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

async function openBroker(
  { holder, foundation, env, clock }: BrokerParts,
  closers: Closers,
): Promise<CredentialBroker> {
  const { store, seal } = foundation
  const broker = await createBroker({
    ...brokerInput(holder.config(), holder.current()),
    store,
    seal,
    clock,
    env,
  })
  closers.push(() => broker.close())
  return broker
}

interface FollowParts {
  readonly holder: Holder
  readonly foundation: Foundation
  readonly broker: CredentialBroker
  readonly running: RunningPlane
  readonly log: Logger
}

/** What every new snapshot means: its rules are kept for `why`, and what it denies ends. */
function follow({ holder, foundation, broker, running, log }: FollowParts, closers: Closers): void {
  let recorded: string | undefined
  const record = (): void => {
    const { hash } = holder.current()
    // A snapshot that only the store changed has the same rules.
    if (hash !== recorded) foundation.events.recordPolicy(hash, policyRecord(holder.config()))
    recorded = hash
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
    folder: trustFolder(parts.holder.config().root),
    caPem: authority.certificatePem,
    extra: [
      ...(authority.previous === undefined ? [] : [authority.previous.certificatePem]),
      ...parts.reach.extraRoots,
    ],
  })
}

function openSockets(
  { holder, running }: { holder: Holder; running: RunningPlane },
  closers: Closers,
): SandboxSockets {
  const sockets = createSandboxSockets({
    plane: running.plane,
    folder: join(holder.config().stateFolder, 'sockets'),
    snapshot: () => holder.current(),
  })
  closers.push(
    holder.onChange(() => sockets.prune()),
    () => sockets.close(),
  )
  return sockets
}

function lifecycleOf(parts: {
  foundation: Foundation
  holder: Holder
  broker: CredentialBroker
  running: RunningPlane
  clock: Clock
}): SweepingLifecycle {
  const { foundation, holder, broker, running, clock } = parts
  const { store, seal, events, newId } = foundation
  return createLifecycle({
    store,
    seal,
    clock,
    random: (bytes) => randomBytes(bytes),
    config: () => holder.config(),
    // No answer before the snapshot is in force, a revoked credential is refused and what was swapped with it has ended.
    changed: async () => {
      const snapshot = await holder.refresh()
      await broker.configure(brokerInput(holder.config(), snapshot))
      await broker.refresh()
      running.plane.live.recheck(snapshot)
    },
    audit: (event) => events.appendDurable(adminEvent(event, { id: newId(), ts: clock.now() })),
  })
}
