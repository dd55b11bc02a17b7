import type { Config } from '../config/model.ts'
import type { DenyReason, HandleTruth } from '../core/errors.ts'
import type { Slot } from '../handles/model.ts'
import { slotHeader } from '../handles/slot.ts'
import { checkUsage } from '../handles/usage.ts'
import { neverRelayed } from '../http1/method.ts'
import type { Proof, SandboxView, Snapshot } from '../identity/model.ts'
import { createSelfGuard } from '../net/self-guard.ts'
import { isMetadataName, judge } from '../policy/address.ts'
import type { Allow, Decision, Destination, PolicyRequest } from '../policy/model.ts'

/** A question to `octroi explain`. */
export interface Question {
  readonly sandbox: string
  readonly method: string
  /** Absolute URL, or `HOST:PORT` for CONNECT. */
  readonly url: string
  /** Literal that the host would resolve to. */
  readonly address?: string | undefined
  readonly placeholder?: string | undefined
}

/** One check in the order of the data plane. */
export interface Step {
  readonly check: 'framing' | 'identity' | 'paused' | 'metadata' | 'self' | 'policy' | 'handle' | 'guard'
  readonly passed: boolean
  readonly text: string
}

/** The question, parsed. */
export interface Asked {
  readonly destination: Destination
  readonly request: PolicyRequest
  /** `path?query`; `/` for CONNECT. */
  readonly target: string
}

/** The first check that failed. */
export interface Denied {
  readonly reason: DenyReason
  readonly rule: string | undefined
  readonly hint: string | undefined
  readonly truth: HandleTruth | undefined
}

/** Everything that the checks look at. */
export interface Examined {
  readonly config: Config
  readonly snapshot: Snapshot
  readonly sandbox: SandboxView
  readonly question: Question
  readonly asked: Asked
  readonly decision: Decision
}

/** The checks up to and including the first that fails, in the order of the data plane. */
export function firstDenial(examined: Examined): { steps: Step[]; denied: Denied | undefined } {
  const steps: Step[] = []
  const checks = [
    ...[checkMethod, checkIdentity, checkPaused],
    ...[checkMetadata, checkSelf, checkPolicy, checkHandle, checkGuard],
  ]
  for (const check of checks) {
    const { step, denied } = check(examined)
    if (step !== undefined) steps.push(step)
    if (denied !== undefined) return { steps, denied }
  }
  return { steps, denied: undefined }
}

interface Checked {
  readonly step?: Step
  readonly denied?: Denied
}

function verdict(
  check: Step['check'],
  text: string,
  denied?: Partial<Denied> & Pick<Denied, 'reason'>,
): Checked {
  const step: Step = { check, passed: denied === undefined, text }
  if (denied === undefined) return { step }
  return { step, denied: { rule: undefined, hint: undefined, truth: undefined, ...denied } }
}

function checkMethod({ asked: { request } }: Examined): Checked {
  if (request.kind === 'connect' || !neverRelayed.has(request.method)) return {}
  return verdict('framing', `${request.method} is never relayed`, { reason: 'method_unsupported' })
}

function checkIdentity({ sandbox: { identity } }: Examined): Checked {
  const text = identity.map((proofs) => proofs.map(proofText).join(' and ')).join(', or ')
  return verdict('identity', `assumed; proved by ${text}`)
}

function proofText(proof: Proof): string {
  if (proof.kind === 'token') return 'token'
  if (proof.kind === 'socket') return `socket ${proof.path}`
  if (proof.kind === 'port') return `port ${proof.port}`
  return proof.kind === 'source'
    ? `source ${proof.range.text}`
    : `client certificate ${proof.sha256.slice(0, 16)}…`
}

function checkPaused({ sandbox }: Examined): Checked {
  return sandbox.paused ? verdict('paused', 'the sandbox is paused', { reason: 'sandbox_paused' }) : {}
}

function checkMetadata({ asked: { destination }, decision }: Examined): Checked {
  const isMetadata = isMetadataName(destination.host) || decision.reason === 'metadata_denied'
  if (!isMetadata) return verdict('metadata', 'not a metadata service')
  return verdict('metadata', 'a metadata service, which no setting opens', { reason: 'metadata_denied' })
}

function checkSelf({ config, asked: { destination } }: Examined): Checked {
  const guard = selfGuard(config)
  const isSelf = guard.isSelf(destination.host, destination.port)
  return isSelf ? verdict('self', 'the broker itself', { reason: 'self' }) : verdict('self', 'not the broker')
}

function selfGuard({ listen, selfNames }: Config) {
  const listeners = [...listen.proxy, { kind: 'tcp' as const, ...listen.admin }].flatMap((listener) =>
    listener.kind === 'tcp' ? [{ address: listener.host, port: listener.port }] : [],
  )
  return createSelfGuard({ listeners: () => listeners, names: () => selfNames })
}

function checkPolicy({ decision }: Examined): Checked {
  if (decision.verdict === 'deny') {
    const unruled = decision.reason === 'malformed' ? 'the path has two readings' : 'no rule allows this'
    const by = decision.rule === undefined ? unruled : `decided by ${decision.rule}`
    return verdict('policy', `${decision.reason}: ${by}`, decision)
  }
  return verdict(
    'policy',
    `allowed by ${decision.rule}, ${decision.tls === 'splice' ? 'spliced' : 'terminated'}`,
  )
}

function checkHandle(examined: Examined): Checked {
  const { snapshot, sandbox, question, asked, decision } = examined
  const { placeholder } = question
  if (placeholder === undefined || decision.verdict !== 'allow') return {}
  if (asked.request.kind === 'connect') return verdict('handle', 'placeholders are judged inside the tunnel')
  const { scheme, method } = asked.request
  const slot = slotOf(snapshot, sandbox, placeholder)
  const usage = checkUsage({
    ...{ grants: sandbox.grants, handles: snapshot.handles, sandboxId: sandbox.id, decision, scheme, method },
    mayUseHandles: sandbox.identity.some((proofs) => proofs.some(({ kind }) => kind !== 'source')),
    destination: asked.destination,
    target: asked.target,
    headers: [[slotHeader(slot), slotValue(slot, placeholder)]],
    now: asked.request.now,
  })
  if (usage.kind === 'swap') {
    const names = usage.swaps.map(({ grant }) => grant.access.name).join(', ')
    return verdict('handle', `swapped in ${slotText(slot)} for the access ${names}`)
  }
  if (usage.kind === 'none') return verdict('handle', 'not a placeholder; passed on as it is')
  const truth = usage.truth === undefined ? '' : ` (${usage.truth})`
  return verdict('handle', `${usage.reason}${truth}`, { reason: usage.reason, truth: usage.truth })
}

const bearer: Slot = { kind: 'header', name: 'authorization', scheme: 'Bearer' }

/** Where a client would put the placeholder: the slot of its access, so that what is explained is the best case. */
function slotOf(snapshot: Snapshot, sandbox: SandboxView, placeholder: string): Slot {
  const handle = snapshot.handles.get(placeholder)
  return sandbox.grants.find((grant) => grant.handle.id === handle?.id)?.access.slot ?? bearer
}

function slotValue(slot: Slot, placeholder: string): string {
  if (slot.kind === 'header') return slot.scheme === undefined ? placeholder : `${slot.scheme} ${placeholder}`
  const pair = slot.field === 'user' ? `${placeholder}:` : `x:${placeholder}`
  return `Basic ${Buffer.from(pair).toString('base64')}`
}

const slotText = (slot: Slot): string =>
  slot.kind === 'basic' ? `the ${slot.field} of Basic authorization` : `the field ${slot.name}`

function checkGuard({ config, question, asked, decision }: Examined): Checked {
  const literal = question.address ?? (asked.destination.ip === 0 ? undefined : asked.destination.host)
  if (literal === undefined || decision.verdict !== 'allow') return {}
  if (selfGuard(config).isSelfAddress(literal, asked.destination.port)) {
    return verdict('guard', `${literal} leads to the broker itself`, { reason: 'self' })
  }
  return guardVerdict(literal, decision)
}

function guardVerdict(literal: string, { addresses }: Allow): Checked {
  const judged = judge(literal, addresses)
  const opened = addresses.map(({ text }) => text).join(', ')
  if (!judged.allowed) {
    const text = `${literal} is ${judged.class}${opened === '' ? ', and no rule names its range' : `; opened: ${opened}`}`
    return verdict('guard', text, { reason: judged.reason })
  }
  const because = judged.class === 'public' ? '' : `, opened by a rule: ${opened}`
  return verdict('guard', `${literal} is ${judged.class}${because}`)
}
