import type { Clock } from '../../src/core/clock.ts'

/** A clock that moves only when told; timers fire in order of their due time, inside `advance`. */
export interface ManualClock extends Clock {
  /** Moves wall and monotonic time on by `ms`, firing what falls due on the way. */
  advance(ms: number): void
  /** Moves wall time alone, as an NTP step does; no timer fires. */
  step(ms: number): void
  /** Timers that are set and have not fired. */
  readonly pending: number
}

/** Starts at 2030-01-01T00:00:00Z unless told otherwise. */
export function manualClock(start = Date.UTC(2030, 0, 1)): ManualClock {
  let wall = start
  let monotonic = 0
  let order = 0
  const timers = new Map<number, { due: number; fn: () => void }>()

  function nextDue(limit: number): [number, { due: number; fn: () => void }] | undefined {
    let best: [number, { due: number; fn: () => void }] | undefined
    for (const entry of timers)
      if (entry[1].due <= limit && (!best || entry[1].due < best[1].due)) best = entry
    return best
  }

  return {
    now: () => wall,
    monotonic: () => monotonic,
    after(ms, fn) {
      const id = order++
      timers.set(id, { due: monotonic + Math.max(0, ms), fn })
      return () => void timers.delete(id)
    },
    advance(ms) {
      const end = monotonic + ms
      for (let found = nextDue(end); found; found = nextDue(end)) {
        const [id, timer] = found
        timers.delete(id)
        wall += timer.due - monotonic
        monotonic = timer.due
        timer.fn()
      }
      wall += end - monotonic
      monotonic = end
    },
    step(ms) {
      wall += ms
    },
    get pending() {
      return timers.size
    },
  }
}
