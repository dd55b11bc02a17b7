import type { Rule } from '../policy/model.ts'
import type { LimitsConfig, PolicyBlock } from './model.ts'

/** Limits with every default filled in. */
export interface EffectiveLimits extends LimitsConfig {
  readonly tunnels: number
  readonly requests: number
}

/** Limits where neither template nor sandbox says anything. */
export const defaultLimits: EffectiveLimits = {
  tunnels: 256,
  requests: 256,
  requestsPerMinute: undefined,
  bodyBytes: undefined,
  responseBytes: undefined,
}

/** The policy of one sandbox: its template's and its own. */
export interface EffectivePolicy {
  readonly allow: readonly Rule[]
  readonly deny: readonly Rule[]
  /** Names of accesses, each once. */
  readonly access: readonly string[]
  readonly limits: EffectiveLimits
}

/**
 * `allow`, `deny` and `access` are unions, so that a sandbox never removes a deny of its template; of two limits the
 * smaller one holds.
 */
export function effectivePolicy(
  template: PolicyBlock | undefined,
  own: PolicyBlock | undefined,
): EffectivePolicy {
  return {
    allow: union(template?.allow, own?.allow),
    deny: union(template?.deny, own?.deny),
    access: [...new Set([...(template?.access ?? []), ...(own?.access ?? [])])],
    limits: {
      tunnels: least(template?.limits.tunnels, own?.limits.tunnels) ?? defaultLimits.tunnels,
      requests: least(template?.limits.requests, own?.limits.requests) ?? defaultLimits.requests,
      requestsPerMinute: least(template?.limits.requestsPerMinute, own?.limits.requestsPerMinute),
      bodyBytes: least(template?.limits.bodyBytes, own?.limits.bodyBytes),
      responseBytes: least(template?.limits.responseBytes, own?.limits.responseBytes),
    },
  }
}

// The same array where only one side has rules: a policy compiled for the template serves its sandboxes too.
function union(a: readonly Rule[] = [], b: readonly Rule[] = []): readonly Rule[] {
  if (a.length === 0) return b
  return b.length === 0 ? a : [...a, ...b]
}

function least(a: number | undefined, b: number | undefined): number | undefined {
  if (a === undefined) return b
  return b === undefined ? a : Math.min(a, b)
}
