/** The only source of time. Tests pass a manual one. */
export interface Clock {
  /** Wall time, `ms` since the epoch. */
  now(): number
  /** Monotonic time, `ms` since an arbitrary start; unaffected by clock steps. */
  monotonic(): number
  /** Calls `fn` once after `ms`; the returned function cancels. Never keeps the process alive. */
  after(ms: number, fn: () => void): () => void
}

/** The process's own time. */
export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  after(ms, fn) {
    const timer = setTimeout(fn, ms)
    timer.unref()
    return () => clearTimeout(timer)
  },
}
