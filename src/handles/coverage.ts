import { decide } from '../policy/decide.ts'
import type { Destination, Scheme } from '../policy/model.ts'
import { compilePolicy } from '../policy/rules.ts'
import type { Policy } from '../policy/rules.ts'
import type { Access, Grant } from './model.ts'

/** One request as the destinations of an access are asked about it. */
export interface CoveredRequest {
  readonly destination: Destination
  readonly scheme: Scheme
  readonly method: string
  /** `path?query`. */
  readonly target: string
  readonly now: number
}

// The destinations alone, as a policy: what an access covers is judged by the very code that judges rules.
const alone = new WeakMap<Access, Policy>()

function policyOf(access: Access): Policy {
  const known = alone.get(access)
  if (known !== undefined) return known
  const policy = compilePolicy({ allow: [], deny: [], access: access.destinations })
  alone.set(access, policy)
  return policy
}

/** Is host:port one of the access's, whatever the method and path? */
export function coversDestination(access: Access, destination: Destination, now: number): boolean {
  return decide(policyOf(access), { kind: 'connect', destination, now }).verdict === 'allow'
}

const covering = new WeakMap<readonly Grant[], Map<string, readonly Grant[]>>()

/** Destinations remembered for each list of grants; a sandbox that may reach any host must not grow it for ever. */
const maxRemembered = 1_000

/**
 * The grants whose access has this host:port. Remembered for each list, which is a snapshot's and never changes: a
 * sandbox with hundreds of grants asks for each request, and no access destination expires.
 */
export function grantsCovering(
  grants: readonly Grant[],
  destination: Destination,
  now: number,
): readonly Grant[] {
  if (grants.length === 0) return grants
  let known = covering.get(grants)
  if (known === undefined || known.size >= maxRemembered) {
    known = new Map()
    covering.set(grants, known)
  }
  const key = `${destination.host} ${destination.port}`
  let found = known.get(key)
  if (found === undefined) {
    found = grants.filter(({ access }) => coversDestination(access, destination, now))
    known.set(key, found)
  }
  return found
}

/** Is the whole request, with method and path, within the access's destinations? */
export function coversRequest(access: Access, request: CoveredRequest): boolean {
  const { destination, scheme, method, now } = request
  const mark = request.target.indexOf('?')
  const path = mark < 0 ? request.target : request.target.slice(0, mark)
  return (
    decide(policyOf(access), { kind: 'http', destination, scheme, method, path, now }).verdict === 'allow'
  )
}
