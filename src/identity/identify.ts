import { createHash, timingSafeEqual } from 'node:crypto'
import { contains, parseAddress } from '../policy/address.ts'
import type { ConnectionFacts, Identified, Proof, SandboxView, Snapshot } from './model.ts'
import { proofIndex } from './proof-index.ts'
import { readProxyCredentials } from './proxy-credentials.ts'

type Sandboxes = ReadonlySet<SandboxView>

/** What a request brings to prove its sandbox. */
export interface Presented {
  readonly facts: ConnectionFacts
  /** Value of its one `Proxy-Authorization` line. */
  readonly proxyAuthorization: string | undefined
  /** `ms` since the epoch. */
  readonly now: number
}

/** What one connection proves, once its password is checked. */
interface Proved {
  readonly facts: ConnectionFacts
  /** The sandbox whose token was presented. */
  readonly token: SandboxView | undefined
}

/**
 * Who asks. Every proof that is presented must point at the same sandbox, and one of that sandbox's alternatives must
 * hold whole; a wrong password is never made good by another proof. `now` in `ms` since the epoch ends tokens and
 * sandboxes. The refusals of a wrong user, password, token age or sandbox age are the same.
 */
export function identify(snapshot: Snapshot, presented: Presented): Identified {
  const { facts, proxyAuthorization, now } = presented
  const token = checkPassword(snapshot, proxyAuthorization, now)
  if (token === 'wrong') {
    const names = namesOf(pointedAt(snapshot, { facts, token: undefined }))
    return {
      ok: false,
      reason: 'auth_invalid',
      sandboxes: [...new Set([...names, ...claimed(snapshot, proxyAuthorization)])],
    }
  }
  const proved: Proved = { facts, token }
  const pointed = pointedAt(snapshot, proved)
  const [first, ...others] = pointed
  if (first === undefined) return { ok: false, reason: 'auth_missing', sandboxes: [] }
  const common = [...first].filter((sandbox) => others.every((set) => set.has(sandbox)))
  if (common.length === 0) return { ok: false, reason: 'identity_mismatch', sandboxes: namesOf(pointed) }
  return choose(common, proved, now)
}

function choose(candidates: readonly SandboxView[], proved: Proved, now: number): Identified {
  const proven = candidates.flatMap((sandbox) => {
    const held = heldAlternatives(sandbox, proved)
    return held.length === 0 ? [] : [{ sandbox, held }]
  })
  const names = candidates.map((sandbox) => sandbox.name)
  const [only, second] = proven
  if (only === undefined) {
    // With a right token what is missing is another proof, which no password can add.
    const reason = proved.token === undefined ? 'auth_missing' : 'auth_invalid'
    return { ok: false, reason, sandboxes: names }
  }
  if (second !== undefined) return { ok: false, reason: 'identity_mismatch', sandboxes: names }
  const { sandbox, held } = only
  if (isOver(sandbox.expiresAt, now)) return { ok: false, reason: 'auth_invalid', sandboxes: [sandbox.name] }
  // A source address can be forged or shared: it may open what a rule allows, never earn a credential.
  const mayUseHandles = held.some(
    (proofs) => proofs === openedFor || proofs.some(({ kind }) => kind !== 'source'),
  )
  return { ok: true, sandbox, mayUseHandles }
}

const openedFor: readonly Proof[] = []

/** The alternatives of a sandbox that hold whole. */
function heldAlternatives(sandbox: SandboxView, proved: Proved): (readonly Proof[])[] {
  const own = proved.facts.openedFor === sandbox.id ? [openedFor] : []
  return [
    ...own,
    ...sandbox.identity.filter(
      (proofs) => proofs.length > 0 && proofs.every((proof) => holds(proof, sandbox, proved)),
    ),
  ]
}

function holds(proof: Proof, sandbox: SandboxView, { facts, token }: Proved): boolean {
  switch (proof.kind) {
    case 'token':
      return token === sandbox
    case 'socket':
      return facts.socketPath === proof.path
    case 'port':
      return facts.port === proof.port
    case 'client_certificate':
      return facts.clientCertificate === proof.sha256
    case 'source': {
      const address = sourceOf(facts)
      return address !== undefined && contains(proof.range, address)
    }
  }
}

/** For each proof that points at anyone: at whom. */
function pointedAt(snapshot: Snapshot, { facts, token }: Proved): Sandboxes[] {
  const index = proofIndex(snapshot)
  const address = sourceOf(facts)
  const opened = facts.openedFor === undefined ? undefined : index.ids.get(facts.openedFor)
  const sources = index.sources.filter(({ range }) => address !== undefined && contains(range, address))
  return [
    token === undefined ? undefined : new Set([token]),
    opened === undefined ? undefined : new Set([opened]),
    facts.socketPath === undefined ? undefined : index.sockets.get(facts.socketPath),
    facts.port === undefined ? undefined : index.ports.get(facts.port),
    facts.clientCertificate === undefined ? undefined : index.certificates.get(facts.clientCertificate),
    sources.length === 0 ? undefined : new Set(sources.map(({ sandbox }) => sandbox)),
  ].filter((set) => set !== undefined)
}

// A dual-stack listener shows IPv4 peers in their mapped form; ranges hold for both, so the zone is all to remove.
function sourceOf({ remoteAddress }: ConnectionFacts) {
  return remoteAddress === undefined ? undefined : parseAddress(remoteAddress.replace(/%.*$/, ''))
}

const namesOf = (pointed: readonly Sandboxes[]): string[] => [
  ...new Set(pointed.flatMap((set) => Array.from(set, (sandbox) => sandbox.name))),
]

const isOver = (expiresAt: number | undefined, now: number): boolean =>
  expiresAt !== undefined && expiresAt <= now

/** The sandbox whose user name was given, for the event only; nothing of an unknown name is repeated. */
function claimed(snapshot: Snapshot, proxyAuthorization: string | undefined): string[] {
  const user = readProxyCredentials(proxyAuthorization ?? '')?.user
  return user !== undefined && snapshot.sandboxes.has(user) ? [user] : []
}

/** A sandbox has rarely more tokens than this; fewer are made up to it, so that their number does not show. */
const comparedTokens = 4

/** Matches nothing: no text is known that hashes to it. */
const nobody = Buffer.alloc(32)

/**
 * The sandbox whose live token the password is. Unknown users, users without a token and wrong passwords take the same
 * hashing and comparing, each in constant time.
 */
function checkPassword(
  snapshot: Snapshot,
  proxyAuthorization: string | undefined,
  now: number,
): SandboxView | undefined | 'wrong' {
  if (proxyAuthorization === undefined) return undefined
  const given = readProxyCredentials(proxyAuthorization)
  const presented = createHash('sha256')
    .update(given?.password ?? '')
    .digest()
  const sandbox = given === undefined ? undefined : snapshot.sandboxes.get(given.user)
  const takesToken = sandbox?.identity.some((proofs) => proofs.some(({ kind }) => kind === 'token')) ?? false
  let matched = 0
  const tokens = sandbox?.tokens ?? []
  for (let i = 0; i < Math.max(comparedTokens, tokens.length); i++) {
    const token = tokens[i]
    const stored = token === undefined ? nobody : Buffer.from(token.sha256, 'hex')
    const isEqual = stored.length === presented.length && timingSafeEqual(stored, presented)
    if (isEqual && token !== undefined && !isOver(token.expiresAt, now)) matched++
  }
  return matched > 0 && takesToken && sandbox !== undefined ? sandbox : 'wrong'
}
