import type { Clock } from '../core/clock.ts'

/** Something that ends when its time is over. */
export interface Timed {
  /** Monotonic `ms`; `Infinity` for none. May be moved at any time without telling anybody. */
  deadline: number
  expire(): void
}

/** How often deadlines are looked at, `ms`; a deadline is met late by at most this. */
const period = 250

/**
 * One sweep over everything that can time out, in place of a timer per phase: setting a deadline is an assignment, so
 * the common request, which never times out, pays nothing.
 */
export class Deadlines {
  readonly #clock: Clock
  readonly #timed = new Set<Timed>()
  #cancel: (() => void) | undefined

  constructor(clock: Clock) {
    this.#clock = clock
  }

  add(timed: Timed): void {
    this.#timed.add(timed)
    this.#cancel ??= this.#clock.after(period, () => this.#sweep())
  }

  delete(timed: Timed): void {
    this.#timed.delete(timed)
  }

  stop(): void {
    this.#cancel?.()
    this.#cancel = undefined
    this.#timed.clear()
  }

  #sweep(): void {
    const now = this.#clock.monotonic()
    for (const timed of this.#timed) {
      if (timed.deadline > now) continue
      timed.deadline = Infinity
      timed.expire()
    }
    this.#cancel = this.#timed.size > 0 ? this.#clock.after(period, () => this.#sweep()) : undefined
  }
}
