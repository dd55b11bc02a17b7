import type { AdminDeps, BrokerStatus, Part } from '../admin/deps.ts'
import type { CredentialBroker } from '../broker/broker.ts'
import type { Config } from '../config/model.ts'
import { formatProblem } from '../config/problem.ts'
import { watchConfig } from '../config/watch.ts'
import type { Clock } from '../core/clock.ts'
import { OperatorError } from '../core/errors.ts'
import type { Holder, Prepare, Prepared } from '../identity/holder.ts'
import type { SweepingLifecycle } from '../identity/lifecycle.ts'
import type { Logger } from '../logger.ts'
import type { Listener } from '../proxy/listener.ts'
import type { Attachments } from './attachments.ts'
import { brokerInput } from './credentials.ts'
import type { Foundation } from './foundation.ts'
import type { RunningPlane } from './plane.ts'
import type { SandboxSockets } from './sandbox-sockets.ts'

/** How often expired sandboxes and tokens are looked for, `ms`. */
const sweepMs = 1_000
const drainPollMs = 50

/** One open listener, as it is announced. */
export interface NamedListener {
  readonly name: string
  readonly address: string
}

/** What a running broker consists of. */
export interface ControlParts {
  readonly clock: Clock
  readonly log: Logger
  readonly foundation: Foundation
  readonly holder: Holder
  readonly broker: CredentialBroker
  readonly running: RunningPlane
  readonly lifecycle: SweepingLifecycle
  readonly sockets: SandboxSockets
  readonly attachments: Attachments
  /** Makes what a new configuration needs: resolver, trust, listeners. */
  readonly prepare: Prepare
  readonly listeners: readonly Listener[]
  readonly named: readonly NamedListener[]
  /** What undoes each step of the start, first step first. */
  readonly closers: (() => Promise<void> | void)[]
}

/** What can be done to a running broker: reload, sweep, tell how it is, stop. */
export class Control {
  readonly #parts: ControlParts
  readonly #startedAt: number
  #unwatch: (() => void) | undefined
  #stopping: Promise<void> | undefined
  #isHurried = false

  constructor(parts: ControlParts) {
    this.#parts = parts
    this.#startedAt = parts.clock.now()
  }

  /** Reads the files anew, all or nothing; an `OperatorError` lists the problems and the old policy stays. */
  async reload(): Promise<{ policy: string }> {
    const { holder, broker, prepare, running, log } = this.#parts
    const before = holder.config()
    const reloaded = await holder.reload((next) => {
      requireSameState(before, next)
      return prepare(next)
    })
    if (!reloaded.ok) {
      const lines = reloaded.problems.map(formatProblem)
      throw new OperatorError(
        ['the configuration has problems; the old one stays in force', ...lines].join('\n'),
      )
    }
    // Idle connections were verified by the trust of before.
    running.plane.pool.renew()
    await broker.configure(brokerInput(holder.config(), holder.current()))
    for (const { credential, message } of broker.problems()) log.error({ credential }, message)
    for (const key of onlyAtStart(before, holder.config())) {
      log.warn({}, `a changed \`${key}\` takes effect at the next start`)
    }
    if (this.#unwatch !== undefined) this.watch()
    log.info({ policy: reloaded.hash }, 'the configuration was reloaded')
    return { policy: reloaded.hash }
  }

  /** Reloads when a file changes; what is wrong with it is said, and the old policy stays. */
  watch(): void {
    const { holder, log, clock } = this.#parts
    this.#unwatch?.()
    this.#unwatch = watchConfig({
      config: holder.config(),
      clock,
      onChange: () => {
        this.reload().catch((error: unknown) => {
          log.error({}, error instanceof OperatorError ? error.message : `reload failed: ${String(error)}`)
        })
      },
      onError: (folder) => log.warn({ folder }, 'this folder cannot be watched; send SIGHUP after a change'),
    })
  }

  /** Ends what has expired, every second; the returned function stops it. */
  sweep(): () => void {
    const { lifecycle, clock, log } = this.#parts
    let cancel = (): void => undefined
    const again = (): void => {
      cancel = clock.after(sweepMs, () => {
        lifecycle
          .expire()
          .catch((error: unknown) =>
            log.error({ err: error }, 'expired sandboxes could not be ended; tried again'),
          )
          .finally(again)
      })
    }
    again()
    return () => cancel()
  }

  /** Parts that do not work now; empty means ready. */
  async notReady(): Promise<readonly Part[]> {
    const { foundation, holder, listeners, running, attachments } = this.#parts
    const parts: Part[] = []
    const isStoreUp = await foundation.store.meta('ready').then(
      () => true,
      () => false,
    )
    if (!isStoreUp) parts.push('store')
    if (this.#parts.clock.now() >= foundation.authority.notAfter) parts.push('ca')
    if (holder.current().hash === '') parts.push('policy')
    const hasDoor = listeners.length > 0 || attachments.isPrivate
    if (!hasDoor || !running.plane.isReady()) parts.push('listeners')
    if (foundation.events.state !== 'ok') parts.push('audit')
    return parts
  }

  status(): BrokerStatus {
    const { holder, foundation, named, attachments } = this.#parts
    return {
      policy: holder.current().hash,
      sandboxes: holder.current().sandboxes.size,
      listeners: named,
      audit: foundation.events.state,
      started_at: new Date(this.#startedAt).toISOString(),
      pid: process.pid,
      private: attachments.isPrivate,
      runs: attachments.count,
    }
  }

  /** What the admin API asks of the broker. */
  adminDeps(random: (bytes: number) => Uint8Array): AdminDeps {
    const { clock, log, lifecycle, broker, sockets, attachments } = this.#parts
    return {
      clock,
      random,
      log,
      lifecycle,
      status: () => this.status(),
      notReady: () => this.notReady(),
      reload: () => this.reload(),
      secretsChanged: () => broker.refresh(),
      openSandboxSocket: (sandbox, run) => sockets.open(sandbox, run),
      attach: () => this.#attach(),
      handOver: () => attachments.handOver(),
    }
  }

  #attach(): { run: string; detach: () => void } | undefined {
    const { attachments, foundation, sockets } = this.#parts
    const detach = attachments.attach()
    if (detach === undefined) return undefined
    const run = foundation.newId()
    sockets.enter(run)
    return {
      run,
      detach: () => {
        sockets.leave(run)
        detach()
      },
    }
  }

  /** Drains what is in flight, then closes everything; a second call ends what still drains. */
  stop(): Promise<void> {
    if (this.#stopping !== undefined) this.#isHurried = true
    this.#stopping ??= this.#stop()
    return this.#stopping
  }

  async #stop(): Promise<void> {
    const { running, listeners, sockets, closers, clock } = this.#parts
    this.#unwatch?.()
    running.setReady(false)
    const all = [...listeners, ...sockets.listeners]
    const closed = all.map((listener) => listener.close())
    const end = clock.monotonic() + running.plane.limits.drainMs
    while (running.plane.live.busy > 0 && clock.monotonic() < end && !this.#isHurried) {
      await new Promise<void>((resolve) => setTimeout(resolve, drainPollMs))
    }
    for (const listener of all) listener.destroy()
    await Promise.all(closed)
    for (const close of closers.toReversed()) await close()
  }
}

/** Prepares one part after the other; what was prepared before one that fails is given up. */
export function prepareAll(...parts: readonly Prepare[]): Prepare {
  return async (next) => {
    const prepared: Prepared[] = []
    const abort = (): void => {
      for (const one of prepared) one.abort()
    }
    try {
      for (const prepare of parts) prepared.push(await prepare(next))
    } catch (error) {
      abort()
      throw error
    }
    return {
      commit: () => {
        for (const one of prepared) one.commit()
      },
      abort,
    }
  }
}

/** Store, keys and the socket of commands are in the state folder: the broker cannot move while it runs. */
function requireSameState(before: Config, next: Config): void {
  if (next.stateFolder === before.stateFolder) return
  throw new OperatorError(
    'the key `state` cannot change while the broker runs, so the old configuration stays in force: restart it',
  )
}

function onlyAtStart(before: Config, now: Config): string[] {
  const differs = (one: unknown, other: unknown): boolean => JSON.stringify(one) !== JSON.stringify(other)
  return [
    ...(differs(before.listen.admin, now.listen.admin) ? ['listen.admin'] : []),
    ...(differs(before.audit, now.audit) ? ['audit'] : []),
  ]
}
