import type { AccessDestination } from '../policy/model.ts'
import type { BoundDestinations } from './model.ts'

/** The bound destinations of one tenant; a lookup costs one step per label, whatever the number of accesses. */
export function boundDestinations(destinations: readonly AccessDestination[]): BoundDestinations {
  const exact = new Set<string>()
  const below = new Set<string>()
  for (const { host, port } of destinations) {
    if (host.startsWith('*.')) below.add(`${host.slice(2)}:${port}`)
    else exact.add(`${host}:${port}`)
  }
  return {
    has(host, port) {
      if (exact.has(`${host}:${port}`)) return true
      if (below.size === 0) return false
      for (let dot = host.indexOf('.'); dot !== -1; dot = host.indexOf('.', dot + 1)) {
        if (below.has(`${host.slice(dot + 1)}:${port}`)) return true
      }
      return false
    },
  }
}
