import { connect, isIP } from 'node:net'
import type { Socket } from 'node:net'
import type { Clock } from '../core/clock.ts'
import { Refusal } from '../core/errors.ts'
import { isMetadataName, judge } from '../policy/address.ts'
import type { Cidr } from '../policy/address.ts'
import type { Destination } from '../policy/model.ts'
import type { Approved, Connector, Resolver } from './port.ts'
import type { SelfGuard } from './self-guard.ts'

/** Collaborators and bounds of the connector. */
export interface ConnectorOptions {
  readonly resolver: Resolver
  readonly ownAddresses: SelfGuard
  readonly clock: Clock
  /** Bound on one dial over all addresses, `ms`. Default 10,000. */
  readonly connectTimeoutMs?: number
}

/** RFC 8305 section 5: the next address is tried beside one that has not answered for this long, `ms`. */
const attemptDelayMs = 250

/** Addresses tried in one dial. */
const maxAttempts = 8

type Problem = 'metadata_denied' | 'self' | 'ip_denied'
const problems: readonly Problem[] = ['metadata_denied', 'self', 'ip_denied']

const showDestination = ({ host, port }: Destination): string => `${host}:${port}`

/** RFC 8305 section 4: families take turns, beginning with the resolver's first. */
function interleave(addresses: readonly string[]): string[] {
  const first = isIP(addresses[0] ?? '')
  const same = addresses.filter((address) => isIP(address) === first)
  const other = addresses.filter((address) => isIP(address) !== first)
  const ordered: string[] = []
  for (let index = 0; index < Math.max(same.length, other.length); index += 1) {
    ordered.push(...same.slice(index, index + 1), ...other.slice(index, index + 1))
  }
  return ordered.slice(0, maxAttempts)
}

interface DialOptions {
  readonly approved: Approved
  readonly signal: AbortSignal
  readonly clock: Clock
  readonly timeoutMs: number
}

interface Dialled {
  readonly socket: Socket
  readonly address: string
}

/** Dials in turn, overlapping; the first to connect wins and the others are destroyed. */
class Dial {
  readonly #options: DialOptions
  readonly #waiting: string[]
  readonly #open = new Set<Socket>()
  readonly #failures: string[] = []
  readonly #outcome = Promise.withResolvers<Dialled>()
  readonly #onAbort = (): void => {
    this.#settle()
    this.#outcome.reject(this.#options.signal.reason)
  }
  #cancelNext = (): void => undefined
  #cancelTimeout = (): void => undefined

  constructor(options: DialOptions) {
    this.#options = options
    this.#waiting = interleave(options.approved.addresses)
  }

  run(): Promise<Dialled> {
    const { signal, clock, timeoutMs } = this.#options
    this.#cancelTimeout = clock.after(timeoutMs, () => {
      this.#refuse('upstream_timeout', `no connection in ${timeoutMs} ms`)
    })
    signal.addEventListener('abort', this.#onAbort, { once: true })
    this.#tryNext()
    return this.#outcome.promise
  }

  #tryNext(): void {
    this.#cancelNext()
    const address = this.#waiting.shift()
    if (address === undefined) return
    const { approved, clock } = this.#options
    // A literal is never looked up again: what is dialled is what was judged (I5).
    // Half-open: a relay passes the end of one direction on while the other still flows.
    const { port } = approved.destination
    const socket = connect({ host: address, port, noDelay: true, allowHalfOpen: true })
    this.#open.add(socket)
    const onError = (error: NodeJS.ErrnoException): void => {
      this.#onFailure(socket, `${address} ${error.code ?? 'failed'}`)
    }
    socket.on('error', onError)
    socket.once('connect', () => {
      if (!this.#open.has(socket)) return
      this.#settle(socket)
      socket.off('error', onError)
      // Its owner may do something else first, and a reset that nobody listens for ends the process.
      socket.on('error', () => undefined)
      this.#outcome.resolve({ socket, address })
    })
    if (this.#waiting.length > 0) this.#cancelNext = clock.after(attemptDelayMs, () => this.#tryNext())
  }

  #onFailure(socket: Socket, failure: string): void {
    if (!this.#open.delete(socket)) return
    this.#failures.push(failure)
    if (this.#waiting.length > 0) return this.#tryNext()
    if (this.#open.size > 0) return
    const hasTimedOut = this.#failures.every((text) => text.endsWith('ETIMEDOUT'))
    this.#refuse(hasTimedOut ? 'upstream_timeout' : 'upstream_unreachable', this.#failures.join(', '))
  }

  #refuse(reason: 'upstream_unreachable' | 'upstream_timeout', what: string): void {
    this.#settle()
    const detail = `${showDestination(this.#options.approved.destination)}: ${what}`
    this.#outcome.reject(new Refusal(reason, { detail }))
  }

  #settle(winner?: Socket): void {
    this.#cancelNext()
    this.#cancelTimeout()
    this.#options.signal.removeEventListener('abort', this.#onAbort)
    for (const socket of this.#open) if (socket !== winner) socket.destroy()
    this.#open.clear()
    this.#waiting.length = 0
  }
}

/**
 * The only way out. `approve` resolves once and judges every address of the answer: one that is not allowed refuses the
 * whole, since a name that mixes public and internal addresses is either an attack or needs a rule that says so. `dial`
 * takes only what `approve` of this connector returned.
 */
export function createConnector(options: ConnectorOptions): Connector {
  const { resolver, ownAddresses, clock, connectTimeoutMs = 10_000 } = options
  const approvals = new WeakSet<Approved>()

  function problemOf(address: string, port: number, opened: readonly Cidr[]): Problem | undefined {
    const judgement = judge(address, opened)
    if (!judgement.allowed && judgement.reason === 'metadata_denied') return 'metadata_denied'
    if (ownAddresses.isSelfAddress(address, port)) return 'self'
    return judgement.allowed ? undefined : 'ip_denied'
  }

  function checkName({ host, port }: Destination): void {
    if (isMetadataName(host)) throw new Refusal('metadata_denied', { detail: host })
    if (ownAddresses.isSelf(host, port)) throw new Refusal('self', { detail: `${host}:${port}` })
  }

  return {
    async approve(destination, opened, signal) {
      signal.throwIfAborted()
      checkName(destination)
      const { host, port, ip } = destination
      const addresses = ip === 0 ? await resolver.resolve(host, signal) : [host]
      if (addresses.length === 0) throw new Refusal('dns_failed', { detail: `${host}: no address` })
      const found = addresses.map((address) => ({ address, problem: problemOf(address, port, opened) }))
      for (const problem of problems) {
        const culprit = found.find((entry) => entry.problem === problem)
        if (culprit) {
          throw new Refusal(problem, { detail: `${showDestination(destination)} is at ${culprit.address}` })
        }
      }
      const approved: Approved = Object.freeze({ destination, addresses: Object.freeze([...addresses]) })
      approvals.add(approved)
      return approved
    },
    async dial(approved, signal) {
      if (!approvals.has(approved))
        throw new TypeError('dial takes what approve of the same connector returned')
      signal.throwIfAborted()
      return new Dial({ approved, signal, clock, timeoutMs: connectTimeoutMs }).run()
    },
  }
}
