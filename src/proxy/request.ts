import { Refusal } from '../core/errors.ts'
import { listOf, valuesOf, type Problem } from '../http1/fields.ts'
import { requestFraming, type Framing } from '../http1/framing.ts'
import type { RequestHead } from '../http1/head.ts'
import { neverRelayed } from '../http1/method.ts'
import { hostFieldOf, parseAbsoluteTarget, parseAuthority, sameDestination } from '../policy/destination.ts'
import type { Destination, Scheme } from '../policy/model.ts'

/** One request, judged to have exactly one reading. */
export interface ClientRequest {
  readonly head: RequestHead
  readonly scheme: Scheme
  readonly destination: Destination
  /** Raw path before `?`. */
  readonly path: string
  /** Path and query as they are forwarded, byte for byte. */
  readonly target: string
  readonly framing: Framing
  /** `Expect: 100-continue` with a body. */
  readonly expectsContinue: boolean
}

/** The tunnel a request came through: its destination and scheme are fixed. */
export interface Inside {
  readonly destination: Destination
  readonly scheme: Scheme
}

/** A `Refusal` for a head that has no single reading. */
export function problemRefusal(problem: Problem): Refusal {
  if (problem.tooLarge === 'target') return new Refusal('too_large', { status: 414, detail: problem.problem })
  if (problem.tooLarge === 'fields') return new Refusal('too_large', { detail: problem.problem })
  if (problem.unsupported === 'coding') {
    return new Refusal('malformed', {
      status: 501,
      detail: problem.problem,
      hint: 'Only the chunked transfer coding is understood.',
    })
  }
  if (problem.unsupported === 'version') {
    return new Refusal('malformed', {
      status: 505,
      detail: problem.problem,
      hint: 'Use HTTP/1.1; HTTP/2 is not offered here.',
    })
  }
  return new Refusal('malformed', { detail: problem.problem })
}

/** Reads target, Host and framing of a request that is not CONNECT; throws a `Refusal`. */
export function readRequest(head: RequestHead, inside: Inside | undefined): ClientRequest {
  const framing = requestFraming(head)
  if ('problem' in framing) throw problemRefusal(framing)
  const expectsContinue = readExpect(head, framing)
  const target = readTarget(head, inside)
  checkHost(head, target.destination, target.scheme)
  if (neverRelayed.has(head.method)) throw new Refusal('method_unsupported')
  if (!/^[A-Z][A-Z0-9_-]*$/.test(head.method)) {
    throw new Refusal('method_unsupported', { status: 501, hint: 'Methods are written in upper case.' })
  }
  refuseUpgrade(head)
  return { head, framing, expectsContinue, ...target }
}

/** The destination that a request names which could not be read otherwise; for its event and its refusal. */
export function destinationNamed(head: RequestHead): Destination | undefined {
  const named = head.method === 'CONNECT' ? parseAuthority(head.target) : parseAbsoluteTarget(head.target)
  return named.ok ? named.destination : undefined
}

/** Authority of a CONNECT; the Host field, if any, must name the same destination. */
export function readConnect(head: RequestHead): Destination {
  const framing = requestFraming(head)
  if ('problem' in framing) throw problemRefusal(framing)
  if (framing.kind !== 'none') throw new Refusal('malformed', { detail: 'CONNECT with a body' })
  const authority = parseAuthority(head.target)
  if (!authority.ok) throw new Refusal('malformed', { detail: authority.problem })
  const hosts = valuesOf(head.fields, 'host')
  if (hosts.length > 1) throw new Refusal('malformed', { detail: 'more than one Host' })
  const [host] = hosts
  if (host !== undefined) checkConnectHost(host, authority.destination)
  return authority.destination
}

function checkConnectHost(host: string, destination: Destination): void {
  // Some clients leave the port out of Host although the authority has it; both spellings name one destination.
  const named = parseAuthority(host, destination.port)
  if (!named.ok) throw new Refusal('malformed', { detail: named.problem })
  if (!sameDestination(named.destination, destination)) throw new Refusal('authority_mismatch')
}

type Target = Pick<ClientRequest, 'scheme' | 'destination' | 'path' | 'target'>

function readTarget(head: RequestHead, inside: Inside | undefined): Target {
  if (head.target.startsWith('/')) {
    if (inside === undefined) {
      throw new Refusal('malformed', {
        detail: 'origin-form',
        hint: 'This is a forward proxy: send the absolute URL.',
      })
    }
    return withPath(inside.scheme, inside.destination, head.target)
  }
  if (head.target === '*') throw new Refusal('malformed', { detail: 'asterisk-form' })
  const absolute = parseAbsoluteTarget(head.target)
  if (!absolute.ok) throw new Refusal('malformed', { detail: absolute.problem })
  if (inside !== undefined) {
    const same =
      absolute.scheme === inside.scheme && sameDestination(absolute.destination, inside.destination)
    if (!same) throw new Refusal('authority_mismatch')
  }
  return withPath(absolute.scheme, absolute.destination, absolute.pathAndQuery)
}

function withPath(scheme: Scheme, destination: Destination, target: string): Target {
  if (target.includes('#')) throw new Refusal('malformed', { detail: 'fragment in the target' })
  const question = target.indexOf('?')
  return { scheme, destination, target, path: question < 0 ? target : target.slice(0, question) }
}

function checkHost(head: RequestHead, destination: Destination, scheme: Scheme): void {
  const hosts = valuesOf(head.fields, 'host')
  if (hosts.length > 1) throw new Refusal('malformed', { detail: 'more than one Host' })
  const [host] = hosts
  if (host === undefined) {
    if (head.minor === 1) throw new Refusal('malformed', { detail: 'no Host' })
    return
  }
  // Byte-equal is the common case and needs no parser.
  if (host === hostFieldOf(destination, scheme)) return
  const named = parseAuthority(host, scheme === 'https' ? 443 : 80)
  if (!named.ok) throw new Refusal('malformed', { detail: named.problem })
  if (!sameDestination(named.destination, destination)) throw new Refusal('authority_mismatch')
}

function readExpect(head: RequestHead, framing: Framing): boolean {
  const values = valuesOf(head.fields, 'expect')
  if (values.length === 0) return false
  if (values.length > 1 || values[0]?.toLowerCase() !== '100-continue') {
    throw new Refusal('malformed', { detail: 'Expect', hint: 'Only `Expect: 100-continue` is understood.' })
  }
  return framing.kind !== 'none' && head.minor === 1
}

function refuseUpgrade(head: RequestHead): void {
  // `h2c` is left unanswered, as RFC 9110 section 7.8 permits: Java's HttpClient offers it on every plain request.
  const asked = listOf(head.fields, 'upgrade').filter((protocol) => protocol !== 'h2c')
  if (asked.length === 0) return
  throw new Refusal('method_unsupported', {
    status: 501,
    hint: 'Upgrades such as WebSocket are not relayed by this version; use plain HTTP/1.1 requests.',
  })
}
