import { decide } from '../policy/decide.ts'
import type { Destination, Scheme } from '../policy/model.ts'
import { compilePolicy } from '../policy/rules.ts'
import type { Policy } from '../policy/rules.ts'
import type { Access } from './model.ts'

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

/** Is the whole request, with method and path, within the access's destinations? */
export function coversRequest(access: Access, request: CoveredRequest): boolean {
  const { destination, scheme, method, now } = request
  const mark = request.target.indexOf('?')
  const path = mark < 0 ? request.target : request.target.slice(0, mark)
  return (
    decide(policyOf(access), { kind: 'http', destination, scheme, method, path, now }).verdict === 'allow'
  )
}
