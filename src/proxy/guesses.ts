import type { AuditEvent } from '../audit/event.ts'
import type { SandboxView } from '../identity/model.ts'
import type { Destination } from '../policy/model.ts'
import type { PartSeen } from '../redact/port.ts'

/** What is done about guesses. */
export interface GuessWatch {
  /** Distinct parts of one value that answers may show a sandbox before it is paused. */
  readonly most: number
  alert(event: Omit<AuditEvent, 'id' | 'ts' | 'kind'>, source: string): void
  /** Pauses the sandbox durably; an operator resumes it. */
  pause(sandbox: string): Promise<unknown>
  failed(error: unknown): void
}

/**
 * Counts the parts of values that were taken out of a sandbox's answers. Whoever has an upstream repeat guesses sees which
 * of them come back changed, and with eleven characters known one of some sixty guesses tells the next. An upstream that
 * cuts a value short shows the same part again and again; a guesser needs a new one for each step.
 */
export class Guesses {
  readonly #watch: GuessWatch
  /** Parts by budget key and value, so that a sandbox made again goes on where the old one stopped. */
  readonly #seen = new Map<string, Set<string>>()
  /** Sandboxes, by id, for which a pause is on its way. */
  readonly #held = new Set<string>()

  constructor(watch: GuessWatch) {
    this.#watch = watch
  }

  /** Must requests of this sandbox be refused although it is not paused yet? */
  isHeld(sandboxId: string): boolean {
    return this.#held.has(sandboxId)
  }

  /** What to call with each part found in the answers of `destination` to `sandbox`. */
  watching(sandbox: SandboxView, destination: Destination): PartSeen {
    return (entryId, run) => this.#saw({ sandbox, destination, key: `${sandbox.budgetKey} ${entryId}` }, run)
  }

  #saw(where: { sandbox: SandboxView; destination: Destination; key: string }, run: string): void {
    const { sandbox, destination, key } = where
    const seen = this.#seen.get(key) ?? new Set<string>()
    this.#seen.set(key, seen)
    if (seen.has(run) || seen.size >= this.#watch.most) return
    seen.add(run)
    const isLast = seen.size === this.#watch.most
    const { tenant, agent, name } = sandbox
    const { host, port } = destination
    this.#watch.alert(
      {
        ...{ tenant, agent, sandbox: name, host, port },
        reason: isLast ? 'credential_guessed' : 'credential_part',
        note: isLast
          ? `answers showed ${seen.size} different parts of one credential; the sandbox is paused`
          : `part ${seen.size} of a credential was taken out of an answer`,
      },
      key,
    )
    if (isLast) void this.#pause(sandbox, key)
  }

  async #pause(sandbox: SandboxView, key: string): Promise<void> {
    this.#held.add(sandbox.id)
    try {
      await this.#watch.pause(sandbox.name)
      this.#held.delete(sandbox.id)
      this.#seen.delete(key)
    } catch (error) {
      this.#watch.failed(error)
    }
  }
}
