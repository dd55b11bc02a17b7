import { LRUCache } from 'lru-cache'
import type { Clock } from '../core/clock.ts'
import { Refusal } from '../core/errors.ts'
import type { Credential } from './port.ts'

const maxLeases = 10_000
/** Longest time an issuer may take, `ms`. */
const issueWithinMs = 15_000
/** A lease is replaced this long before its end, or at nine tenths of its life if that is later, `ms`. */
const renewBeforeMs = 60_000
const firstRetryMs = 1_000
const lastRetryMs = 30_000

interface Entry {
  readonly lease: Credential
  readonly renewAt: number
}

interface Failure {
  readonly error: unknown
  readonly retryAt: number
  readonly waitMs: number
}

/** Leases by key: one issue at a time for all who wait, renewed before they end, failures remembered for a while. */
export class LeaseCache {
  readonly #clock: Clock
  readonly #leases = new LRUCache<string, Entry>({ max: maxLeases })
  readonly #failures = new LRUCache<string, Failure>({ max: maxLeases })
  readonly #running = new Map<string, Promise<Credential>>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** The lease, from `issue` when there is none to use. `signal` ends the wait, not the issue others wait for. */
  async get(
    key: string,
    issue: (signal: AbortSignal) => Promise<Credential>,
    signal: AbortSignal,
  ): Promise<Credential> {
    const entry = this.#leases.get(key)
    if (entry !== undefined && this.#clock.now() < entry.renewAt) return entry.lease
    const failure = this.#failures.get(key)
    if (failure !== undefined && this.#clock.monotonic() < failure.retryAt) throw failure.error
    signal.throwIfAborted()
    return waitFor(this.#running.get(key) ?? this.#issue(key, issue), signal)
  }

  /** Forgets the lease and its failures; an issue that runs is not kept when it ends. */
  drop(key: string): void {
    this.#leases.delete(key)
    this.#failures.delete(key)
    this.#running.delete(key)
  }

  #issue(key: string, issue: (signal: AbortSignal) => Promise<Credential>): Promise<Credential> {
    const run = this.#bounded(issue).then(
      (lease) => {
        if (this.#running.get(key) === run) this.#keep(key, lease)
        return lease
      },
      (error: unknown) => {
        if (this.#running.get(key) === run) this.#fail(key, error)
        throw error
      },
    )
    this.#running.set(key, run)
    return run
  }

  #keep(key: string, lease: Credential): void {
    const now = this.#clock.now()
    const life = lease.expiresAt === undefined ? Infinity : lease.expiresAt - now
    const renewAt =
      lease.expiresAt === undefined ? Infinity : now + Math.max(life - renewBeforeMs, life * 0.9)
    this.#running.delete(key)
    this.#failures.delete(key)
    this.#leases.set(key, { lease, renewAt })
  }

  #fail(key: string, error: unknown): void {
    const waitMs = Math.min(lastRetryMs, (this.#failures.get(key)?.waitMs ?? firstRetryMs / 2) * 2)
    this.#running.delete(key)
    this.#failures.set(key, { error, waitMs, retryAt: this.#clock.monotonic() + waitMs })
  }

  async #bounded(issue: (signal: AbortSignal) => Promise<Credential>): Promise<Credential> {
    const stop = new AbortController()
    const late = new Refusal('issuer_unavailable', { detail: 'the issuer does not answer' })
    const cancel = this.#clock.after(issueWithinMs, () => stop.abort(late))
    try {
      return await waitFor(issue(stop.signal), stop.signal)
    } finally {
      cancel()
    }
  }
}

function waitFor<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(signal.reason)
    signal.addEventListener('abort', abort, { once: true })
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort))
  })
}
