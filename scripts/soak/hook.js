// Loaded into the broker by `node --import`: once a second it tells the soak how late its event loop ran and what its heap
// holds. Nothing of the broker knows of it.
import { isMainThread } from 'node:worker_threads'
import { monitorEventLoopDelay } from 'node:perf_hooks'

if (isMainThread && process.send !== undefined) {
  const resolution = 10
  const delay = monitorEventLoopDelay({ resolution })
  delay.enable()
  // The channel must not keep a broker alive that has stopped.
  process.channel?.unref()
  setInterval(() => {
    // The time between two looks, of which the resolution is no delay.
    const ms = (/** @type {number} */ ns) => Math.max(0, Math.round(ns / 100_000) / 10 - resolution)
    const { heapUsed, external } = process.memoryUsage()
    process.send?.({
      lag: { p50: ms(delay.percentile(50)), p99: ms(delay.percentile(99)), max: ms(delay.max) },
      heap: heapUsed + external,
    })
    delay.reset()
  }, 1_000).unref()
}
