import { Secret } from '../core/secret.ts'
import { isShortSecret, valueId } from '../issuers/value-checks.ts'
import type { Clock } from '../core/clock.ts'
import type { Seal, Store } from '../store/port.ts'
import type { RedactionEntry, RedactionSet } from './port.ts'

/** Past values of one credential that are looked for; a source that changes more often than that is not a static one. */
const maxPastValues = 64

interface Known extends RedactionEntry {
  readonly at: number
  readonly tenants: Set<string>
}

/**
 * Every value that credentials have or had, by tenant. A value is in the store before it is used, so that a restart
 * between its use and its reflection loses nothing.
 */
export class RedactionBook {
  readonly #store: Store
  readonly #seal: Seal
  readonly #clock: Clock
  /** Credential, then id of the value, oldest value first. */
  readonly #known = new Map<string, Map<string, Known>>()
  readonly #sets = new Map<string, RedactionSet>()
  #version = 0

  private constructor(deps: { store: Store; seal: Seal; clock: Clock }) {
    this.#store = deps.store
    this.#seal = deps.seal
    this.#clock = deps.clock
  }

  /** Reads the past values of the store; `OperatorError` when one cannot be opened. */
  static async open(deps: { store: Store; seal: Seal; clock: Clock }): Promise<RedactionBook> {
    const book = new RedactionBook(deps)
    for (const { credential, tenant, sealed, at } of await deps.store.pastValues()) {
      const value = new Secret(await deps.seal.open(sealed))
      book.#learn({ credential, tenant, value, at })
    }
    return book
  }

  /** The tenant's values; the same object until the set changes. */
  setOf(tenant: string): RedactionSet {
    const found = this.#sets.get(tenant)
    if (found !== undefined) return found
    const entries = [...this.#known.values()]
      .flatMap((values) => [...values.values()])
      .filter((known) => known.tenants.has(tenant))
      .map(({ id, credential, value, short }) => ({ id, credential, value, short }))
    const set = { version: this.#version, entries }
    this.#sets.set(tenant, set)
    return set
  }

  /** Is this the value that the credential had last? */
  isLatest(credential: string, value: Secret): boolean {
    return [...(this.#known.get(credential)?.values() ?? [])].at(-1)?.id === valueId(value)
  }

  /** Makes sure that the value is looked for in each of the tenants, durably. */
  async record(credential: string, value: Secret, tenants: Iterable<string>): Promise<void> {
    const id = valueId(value)
    const isNew = !this.isLatest(credential, value)
    const known = this.#known.get(credential)?.get(id)
    const at = this.#clock.now()
    for (const tenant of tenants) {
      // A value that came back counts as its latest again, or a restart would take another for the present one.
      if (!isNew && known?.tenants.has(tenant) === true) continue
      await this.#store.putPastValue({ credential, tenant, sealed: await this.#seal.seal(value), at })
      this.#learn({ credential, tenant, value, at })
    }
    await this.#prune(credential)
  }

  /** Stops looking for the values of a credential. */
  async forget(credential: string): Promise<void> {
    await this.#store.deletePastValues(credential)
    if (this.#known.delete(credential)) this.#changed()
  }

  #learn(past: { credential: string; tenant: string; value: Secret; at: number }): void {
    const { credential, tenant, value, at } = past
    const values = this.#known.get(credential) ?? new Map<string, Known>()
    const id = valueId(value)
    const tenants = new Set([...(values.get(id)?.tenants ?? []), tenant])
    values.delete(id)
    values.set(id, { id, credential, value, short: isShortSecret(value), at, tenants })
    this.#known.set(credential, values)
    this.#changed()
  }

  async #prune(credential: string): Promise<void> {
    const values = this.#known.get(credential)
    if (values === undefined || values.size <= maxPastValues) return
    const [oldest, next] = values.values()
    if (oldest === undefined || next === undefined) return
    values.delete(oldest.id)
    await this.#store.deletePastValues(credential, next.at)
    this.#changed()
  }

  #changed(): void {
    this.#version += 1
    this.#sets.clear()
  }
}
