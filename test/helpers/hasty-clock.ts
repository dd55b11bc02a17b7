import { systemClock, type Clock } from '../../src/core/clock.ts'

/** A clock on which waiting takes a `factor`th of the time; the date stays the real one. */
export function hastyClock(factor: number): Clock {
  return {
    now: () => systemClock.now(),
    monotonic: () => systemClock.monotonic() * factor,
    after: (ms, fn) => systemClock.after(ms / factor, fn),
  }
}
