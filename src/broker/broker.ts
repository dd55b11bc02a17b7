import { systemClock } from '../core/clock.ts'
import type { Clock } from '../core/clock.ts'
import { OperatorError, Refusal } from '../core/errors.ts'
import { Secret } from '../core/secret.ts'
import type { CredentialSource, Issuer, IssuerWorld } from '../issuers/port.ts'
import { createStaticIssuer } from '../issuers/static.ts'
import { revokedKey } from '../store/port.ts'
import type { Seal, Store } from '../store/port.ts'
import { LeaseCache } from './lease-cache.ts'
import type { Broker, Credential } from './port.ts'
import { RedactionBook } from './redaction.ts'

/** How often files, the sealed store and revocations are looked at, `ms`. */
const lookEveryMs = 1_000

/** What the broker works with; replaced whole on reload. */
export interface BrokerInput {
  /** The same map as before means that only the tenants have changed: no source is read again. */
  readonly credentials: ReadonlyMap<string, CredentialSource>
  /** Credential, to the tenants whose templates or sandboxes grant an access to it. */
  readonly tenants: ReadonlyMap<string, ReadonlySet<string>>
}

/** Where it reads and keeps; `env` is the broker's own environment. */
export interface BrokerDeps {
  readonly store: Store
  readonly seal: Seal
  readonly clock?: Clock
  readonly env?: Readonly<Record<string, string | undefined>>
}

/** A credential that cannot be used, and why; never with its value. */
export interface CredentialProblem {
  readonly credential: string
  readonly message: string
}

/** The broker with what the composition root and the admin API use. */
export interface CredentialBroker extends Broker {
  /** Takes a new configuration and reads every source again. */
  configure(input: BrokerInput): Promise<void>
  /** Looks at every source and every revocation now, instead of within a second. */
  refresh(): Promise<void>
  /** Credentials that are dead, to be shown loudly. */
  problems(): readonly CredentialProblem[]
  /** Refuses the credential from now on, also after a restart, until `reinstate`. */
  revokeCredential(name: string): Promise<void>
  reinstateCredential(name: string): Promise<void>
  /** Stops looking for the values of a credential that the configuration no longer has. */
  forgetCredential(name: string): Promise<void>
  close(): void
}

/** One credential as it is in force. */
interface Line {
  readonly source: CredentialSource
  readonly issuer: Issuer
  stamp: string
  problem: string | undefined
  isRevoked: boolean
  /** The lease in use; `undefined` while the credential is dead. */
  lease: Credential | undefined
}

/** Opens the broker: every source is read once, and the values of before are known. */
export async function createBroker(input: BrokerInput & BrokerDeps): Promise<CredentialBroker> {
  const { store, seal, clock = systemClock, env = process.env } = input
  const book = await RedactionBook.open({ store, seal, clock })
  const broker = new StaticBroker({ store, seal, clock, env, book })
  await broker.configure(input)
  broker.keepLooking()
  return broker
}

class StaticBroker implements CredentialBroker {
  readonly #store: Store
  readonly #clock: Clock
  readonly #world: IssuerWorld
  readonly #book: RedactionBook
  readonly #leases: LeaseCache
  #input: BrokerInput = { credentials: new Map(), tenants: new Map() }
  #lines = new Map<string, Line>()
  #revokedLeases = new Set<string>()
  /** Tenants in whose redaction set the value of a lease is. */
  readonly #covered = new WeakMap<Credential, Set<string>>()
  /** Looks and changes one after the other. */
  #turn: Promise<void> = Promise.resolve()
  #cancel: (() => void) | undefined
  #isLooking = false
  #isClosed = false

  constructor(deps: Required<BrokerDeps> & { book: RedactionBook }) {
    this.#store = deps.store
    this.#clock = deps.clock
    this.#book = deps.book
    this.#leases = new LeaseCache(deps.clock)
    this.#world = worldOf(deps)
  }

  async credential(access: { credential: string }, tenant: string, signal: AbortSignal): Promise<Credential> {
    const name = access.credential
    const line = this.#lines.get(name)
    if (line === undefined) throw unavailable(`there is no credential ${name}`)
    if (this.#input.tenants.get(name)?.has(tenant) !== true) {
      throw unavailable(`the credential ${name} is not one of tenant ${tenant}`)
    }
    if (line.isRevoked) throw new Refusal('revoked', { detail: `the credential ${name} is revoked` })
    const lease = await this.#leases.get(name, (stop) => this.#issue(line, stop), signal)
    if (this.#revokedLeases.has(lease.lease) || this.#lines.get(name)?.isRevoked === true) {
      throw new Refusal('revoked', { detail: `the lease ${lease.lease} is revoked` })
    }
    await this.#cover(name, lease, [tenant])
    return lease
  }

  isRevoked(name: string): boolean {
    const line = this.#lines.get(name)
    return line?.isRevoked === true || this.#revokedLeases.has(line?.lease?.lease ?? '')
  }

  redactionSet(tenant: string) {
    return this.#book.setOf(tenant)
  }

  problems(): readonly CredentialProblem[] {
    return [...this.#lines].flatMap(([credential, { problem }]) =>
      problem === undefined ? [] : [{ credential, message: problem }],
    )
  }

  configure(input: BrokerInput): Promise<void> {
    return this.#inTurn(async () => {
      if (input.credentials === this.#input.credentials) return this.#grant(input)
      const lines = new Map<string, Line>()
      for (const [name, source] of input.credentials) {
        const issuer = createStaticIssuer(source, this.#world)
        lines.set(name, {
          source,
          issuer,
          stamp: 'unread',
          problem: undefined,
          isRevoked: false,
          lease: undefined,
        })
      }
      await this.#readRevocations(lines)
      this.#lines = lines
      this.#input = input
      // A lease from the old source is not one from the new.
      for (const name of lines.keys()) this.#leases.drop(name)
      await this.#look()
    })
  }

  async refresh(): Promise<void> {
    await this.#readRevocations(this.#lines)
    await this.#inTurn(() => this.#look())
  }

  async revokeCredential(name: string): Promise<void> {
    if (!this.#lines.has(name)) throw new OperatorError(`there is no credential ${name}`)
    await this.#store.putMeta(revokedKey('credential', name), new Date(this.#clock.now()).toISOString())
    await this.#readRevocations(this.#lines)
  }

  async reinstateCredential(name: string): Promise<void> {
    await this.#store.putMeta(revokedKey('credential', name), undefined)
    await this.#readRevocations(this.#lines)
  }

  async forgetCredential(name: string): Promise<void> {
    if (this.#lines.has(name)) {
      throw new OperatorError(`the credential ${name} is in use; take it out of the configuration first`)
    }
    await this.#book.forget(name)
  }

  /** Looks every second from now on; a look that fails is reported by the credentials it concerns. */
  keepLooking(): void {
    if (this.#isClosed) return
    this.#cancel = this.#clock.after(lookEveryMs, () => {
      // A slow command must not keep a revocation waiting.
      void this.#readRevocations(this.#lines).catch(() => undefined)
      if (!this.#isLooking) void this.#inTurn(() => this.#look()).catch(() => undefined)
      this.keepLooking()
    })
  }

  close(): void {
    this.#isClosed = true
    this.#cancel?.()
  }

  async #grant(input: BrokerInput): Promise<void> {
    this.#input = input
    for (const [name, { lease }] of this.#lines) {
      if (lease !== undefined) await this.#cover(name, lease, input.tenants.get(name) ?? [])
    }
  }

  /** Has the value looked for in the tenants, durably, before anybody there can send it. */
  async #cover(name: string, lease: Credential, tenants: Iterable<string>): Promise<void> {
    const covered = this.#covered.get(lease) ?? new Set<string>()
    const missing = [...tenants].filter((tenant) => !covered.has(tenant))
    if (missing.length === 0) return
    try {
      await this.#book.record(name, lease.value, missing)
    } catch (error) {
      throw unavailable(`the value of ${name} cannot be recorded for redaction`, error)
    }
    this.#covered.set(lease, new Set([...(this.#covered.get(lease) ?? []), ...missing]))
  }

  #inTurn(work: () => Promise<void>): Promise<void> {
    const done = this.#turn.then(work)
    this.#turn = done.catch(() => undefined)
    return done
  }

  async #readRevocations(lines: ReadonlyMap<string, Line>): Promise<void> {
    const revoked = new Set<string>()
    for (const [name, line] of lines) {
      line.isRevoked = (await this.#store.meta(revokedKey('credential', name))) !== undefined
      const lease = `static:${name}:${await this.#versionOf(name)}`
      if ((await this.#store.meta(revokedKey('lease', lease))) !== undefined) revoked.add(lease)
    }
    this.#revokedLeases = revoked
  }

  /** Issues again what may have changed, so that a dead source is loud before somebody needs it. */
  async #look(): Promise<void> {
    this.#isLooking = true
    await Promise.all(
      [...this.#lines].map(async ([name, line]) => {
        const stamp = await line.issuer.stamp().catch((error: unknown) => `failed ${String(error)}`)
        if (stamp === line.stamp && line.problem === undefined) return
        if (stamp !== line.stamp) this.#leases.drop(name)
        line.stamp = stamp
        await this.#leases
          .get(name, (stop) => this.#issue(line, stop), new AbortController().signal)
          .catch(() => undefined)
      }),
    )
    this.#isLooking = false
  }

  async #issue(line: Line, signal: AbortSignal): Promise<Credential> {
    const { name } = line.source
    try {
      const issued = await line.issuer.issue(signal)
      const isNew = !this.#book.isLatest(name, issued.value)
      const version = (await this.#versionOf(name)) + (isNew ? 1 : 0)
      // Counted before it is recorded: a crash in between skips a number, and none is given to two values.
      if (isNew) await this.#store.putMeta(versionKey(name), String(version))
      const lease = { value: issued.value, lease: `static:${name}:${version}`, expiresAt: issued.expiresAt }
      await this.#cover(name, lease, this.#input.tenants.get(name) ?? [])
      line.problem = undefined
      line.lease = lease
      return lease
    } catch (error) {
      line.lease = undefined
      line.problem = error instanceof Refusal ? (error.detail ?? error.message) : String(error)
      throw error instanceof Refusal ? error : unavailable(`the credential ${name} cannot be issued`, error)
    }
  }

  async #versionOf(name: string): Promise<number> {
    return Number((await this.#store.meta(versionKey(name))) ?? 0)
  }
}

function worldOf(deps: Required<BrokerDeps>): IssuerWorld {
  const find = async (name: string) => (await deps.store.secrets()).find((record) => record.name === name)
  return {
    env: deps.env,
    async secret(name) {
      const record = await find(name)
      if (record === undefined) return undefined
      return new Secret(await deps.seal.open(record.sealed))
    },
    async secretStamp(name) {
      const record = await find(name)
      return record === undefined ? undefined : `${record.version}.${record.updatedAt}`
    },
  }
}

function versionKey(credential: string): string {
  return `credential_version:${credential}`
}

function unavailable(detail: string, cause?: unknown): Refusal {
  return new Refusal('issuer_unavailable', { detail, cause })
}
