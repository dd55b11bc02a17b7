import type { Patterns } from '../redact/forms.ts'
import { containsSecret } from '../redact/redactor.ts'

const mark = '[credential]'

/** A path as it may stand in an event: segments in which a secret of the tenant is readable are replaced (I3). */
export function loggablePath(patterns: Patterns | undefined, path: string): string {
  if (patterns === undefined || !holdsSecret(patterns, path)) return path
  const segments = path.split('/').map((segment) => (holdsSecret(patterns, segment) ? mark : segment))
  const clean = segments.join('/')
  // A secret that has slashes of its own spans segments.
  return holdsSecret(patterns, clean) ? `/${mark}` : clean
}

const holdsSecret = (patterns: Patterns, text: string): boolean =>
  containsSecret(patterns, Buffer.from(text, 'latin1'))
