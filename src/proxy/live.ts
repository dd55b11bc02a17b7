import type { Snapshot } from '../identity/model.ts'
import { judge } from '../policy/address.ts'
import type { Allow } from '../policy/model.ts'

/** A tunnel or an exchange in flight. */
export interface Live {
  /** Would it still be allowed under this snapshot? Throws nothing. */
  isStillAllowed(snapshot: Snapshot): boolean
  /** Ends it at once; it was revoked. */
  revoke(): void
  /** Something is being carried that a graceful stop should wait for; a terminated tunnel leaves that to its exchanges. */
  readonly isBusy: boolean
}

/**
 * Is what was dialled, or is being dialled, open under the new decision too? An address not known yet counts as one of the
 * ranges that the old decision opened.
 */
export function isStillReached(before: Allow, again: Allow, address: string | undefined): boolean {
  const isKept = before.addresses.every(({ text }) => again.addresses.some((range) => range.text === text))
  return isKept || (address !== undefined && judge(address, again.addresses).allowed)
}

/** Everything in flight, judged again whenever the policy changes. */
export class LiveSet {
  readonly #live = new Set<Live>()

  /** How many a graceful stop waits for. */
  get busy(): number {
    let count = 0
    for (const entry of this.#live) if (entry.isBusy) count++
    return count
  }

  add(entry: Live): void {
    this.#live.add(entry)
  }

  delete(entry: Live): void {
    this.#live.delete(entry)
  }

  /** Ends what the new snapshot denies; returns how many. */
  recheck(snapshot: Snapshot): number {
    let revoked = 0
    for (const entry of [...this.#live]) {
      if (entry.isStillAllowed(snapshot)) continue
      revoked++
      this.#live.delete(entry)
      entry.revoke()
    }
    return revoked
  }

  revokeAll(): void {
    for (const entry of [...this.#live]) entry.revoke()
    this.#live.clear()
  }
}
