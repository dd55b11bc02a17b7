import type { Broker } from '../broker/port.ts'
import { compilePatterns, type Patterns } from '../redact/forms.ts'

/**
 * Compiled forms of a tenant's secrets, compiled again only when the set changes. `undefined` when it has none, so that
 * nothing is scanned for nothing.
 */
export function createPatternCache(broker: Broker): (tenant: string) => Patterns | undefined {
  const compiled = new Map<string, { version: number; patterns: Patterns | undefined }>()
  return (tenant) => {
    const set = broker.redactionSet(tenant)
    const known = compiled.get(tenant)
    if (known?.version === set.version) return known.patterns
    const patterns = set.entries.length === 0 ? undefined : compilePatterns(set.entries)
    compiled.set(tenant, { version: set.version, patterns })
    return patterns
  }
}
