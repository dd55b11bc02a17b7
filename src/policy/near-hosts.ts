import type { CompiledRule } from './compiled-rule.ts'

/** How many edits apart two names may be and still look like a slip of the keys. */
const maxDistance = 2
const maxShown = 5

/**
 * Rules that would allow hosts spelled much like this one, nearest first; for explaining, never for deciding.
 */
export function nearestHosts(rules: readonly CompiledRule[], host: string): CompiledRule[] {
  const scored = rules
    .filter((rule) => rule.effect !== 'deny' && rule.range === undefined && rule.host !== 'any')
    .map((rule) => ({ rule, distance: hostDistance(rule.host, host) }))
    .filter(({ distance }) => distance <= maxDistance)
  scored.sort((a, b) => a.distance - b.distance)
  return scored.slice(0, maxShown).map(({ rule }) => rule)
}

function hostDistance(pattern: string, host: string): number {
  if (!pattern.startsWith('*.')) return editDistance(pattern, host)
  const labels = pattern.slice(2).split('.').length
  return editDistance(pattern.slice(2), host.split('.').slice(-labels).join('.'))
}

/** Levenshtein distance, or more than `maxDistance` once it is known to be. */
function editDistance(a: string, b: string): number {
  if (Math.abs(a.length - b.length) > maxDistance) return maxDistance + 1
  let above = Array.from({ length: b.length + 1 }, (_, column) => column)
  for (let row = 1; row <= a.length; row++) {
    const current = [row]
    for (let column = 1; column <= b.length; column++) {
      const replaced = (above[column - 1] ?? 0) + (a.charAt(row - 1) === b.charAt(column - 1) ? 0 : 1)
      current.push(Math.min(replaced, (above[column] ?? 0) + 1, (current[column - 1] ?? 0) + 1))
    }
    if (Math.min(...current) > maxDistance) return maxDistance + 1
    above = current
  }
  return above[b.length] ?? 0
}
