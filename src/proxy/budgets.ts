import type { Clock } from '../core/clock.ts'
import { Refusal } from '../core/errors.ts'
import type { SandboxView } from '../identity/model.ts'

interface Usage {
  connections: number
  tunnels: number
  requests: number
  /** Token bucket of requests per minute: what is left, and when that was so (monotonic `ms`). */
  tokens: number
  at: number
}

/**
 * Counts per budget key (tenant, template and agent), so that a sandbox destroyed and made again starts where the old
 * one stopped.
 */
export class Budgets {
  readonly #clock: Clock
  readonly #usage = new Map<string, Usage>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Takes one of `most` places for a client connection; the returned function gives it back. */
  openConnection(sandbox: SandboxView, most: number): () => void {
    const usage = this.#of(sandbox)
    if (usage.connections >= most) {
      throw new Refusal('rate_limited', { detail: `${most} connections are open` })
    }
    usage.connections++
    return once(() => usage.connections--)
  }

  /** Takes a place for one tunnel; the returned function gives it back. */
  openTunnel(sandbox: SandboxView): () => void {
    const usage = this.#of(sandbox)
    if (usage.tunnels >= sandbox.limits.tunnels) {
      throw new Refusal('rate_limited', { detail: `${sandbox.limits.tunnels} tunnels are open` })
    }
    usage.tunnels++
    return once(() => usage.tunnels--)
  }

  /** Takes a place for one request in flight and one of the minute's requests. */
  startRequest(sandbox: SandboxView): () => void {
    const usage = this.#of(sandbox)
    const { requests, requestsPerMinute } = sandbox.limits
    if (usage.requests >= requests) {
      throw new Refusal('rate_limited', { detail: `${requests} requests are in flight` })
    }
    if (requestsPerMinute !== undefined) this.#take(usage, requestsPerMinute)
    usage.requests++
    return once(() => usage.requests--)
  }

  #take(usage: Usage, perMinute: number): void {
    const now = this.#clock.monotonic()
    const refilled = Number.isFinite(usage.tokens)
      ? usage.tokens + ((now - usage.at) * perMinute) / 60_000
      : perMinute
    usage.tokens = Math.min(perMinute, refilled)
    usage.at = now
    if (usage.tokens < 1) throw new Refusal('rate_limited', { detail: `${perMinute} requests a minute` })
    usage.tokens--
  }

  #of(sandbox: SandboxView): Usage {
    let usage = this.#usage.get(sandbox.budgetKey)
    if (usage === undefined) {
      usage = { connections: 0, tunnels: 0, requests: 0, tokens: Infinity, at: this.#clock.monotonic() }
      this.#usage.set(sandbox.budgetKey, usage)
    }
    return usage
  }
}

function once(fn: () => void): () => void {
  let done = false
  return () => {
    if (done) return
    done = true
    fn()
  }
}
