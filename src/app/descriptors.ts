import { readFileSync } from 'node:fs'
import { defaultLimits, type PlaneLimits } from '../proxy/limits.ts'

/** Descriptors that the broker needs for itself: stores, threads, listeners, the log. */
const own = 64

/**
 * Limits of connections that leave descriptors to everybody: a connection and its upstream take two, and one sandbox may
 * have half of what there is. `table` is `/proc/self/limits`, absent where there is none.
 */
export function connectionLimits(
  table = readLimits(),
): Pick<PlaneLimits, 'connections' | 'sandboxConnections'> {
  const most = Number(/^Max open files\s+(\d+)/m.exec(table ?? '')?.[1] ?? Infinity)
  const connections = Math.min(defaultLimits.connections, Math.max(4, Math.floor((most - own) / 2)))
  return { connections, sandboxConnections: Math.floor(connections / 2) }
}

function readLimits(): string | undefined {
  try {
    return readFileSync('/proc/self/limits', 'utf8')
  } catch {
    return undefined
  }
}
