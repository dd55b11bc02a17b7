import { Refusal } from '../core/errors.ts'
import { slotHeadersOf } from '../handles/slot.ts'
import { checkUsage, type Swap, type UsageDeny } from '../handles/usage.ts'
import type { Field } from '../http1/fields.ts'
import type { SandboxView, Snapshot } from '../identity/model.ts'
import { judge, parseAddress } from '../policy/address.ts'
import { decide } from '../policy/decide.ts'
import { isMetadataName } from '../policy/metadata.ts'
import type { Allow, Destination, PolicyRequest } from '../policy/model.ts'
import { forwardedFields } from './head.ts'
import type { DataPlane } from './plane.ts'
import type { Record } from './record.ts'
import type { ClientRequest } from './request.ts'
import type { Who } from './who.ts'

declare const brand: unique symbol

/** A request that every check up to the handle has passed. Only this file makes one; `forward` and `swap` take no less. */
export interface Cleared {
  readonly [brand]: true
  readonly sandbox: SandboxView
  readonly request: ClientRequest
  readonly decision: Allow
  /** Fields to forward, hop-by-hop fields removed, placeholders still in place. */
  readonly fields: readonly Field[]
  readonly swaps: readonly Swap[]
}

/** What the checks of one request look at, and where they note what they find. */
export interface AdmitContext {
  readonly plane: DataPlane
  readonly snapshot: Snapshot
  readonly who: Who
  readonly record: Record
}

/** Paused, metadata, self, policy: the checks that need no more than the destination and the policy's question. */
export function admitDestination(context: AdmitContext, destination: Destination, ask: PolicyRequest): Allow {
  const { plane, who, record } = context
  if (who.sandbox.paused || plane.guesses.isHeld(who.sandbox.id)) throw new Refusal('sandbox_paused')
  if (isMetadata(destination)) throw new Refusal('metadata_denied')
  if (plane.isSelf(destination.host, destination.port)) throw new Refusal('self')
  const decision = decide(who.sandbox.policy, ask)
  record.rule = decision.rule
  if (decision.verdict === 'deny') {
    throw new Refusal(decision.reason, decision.hint === undefined ? {} : { hint: decision.hint })
  }
  record.decision = decision
  record.access = decision.access
  return decision
}

/** Every check of one request before its name is resolved. `onBudget` is called with what gives the budget back. */
export function admitRequest(
  context: AdmitContext,
  request: ClientRequest,
  onBudget: (release: () => void) => void,
): Cleared {
  const { plane, snapshot, who } = context
  const { destination, scheme, head, path } = request
  const now = plane.clock.now()
  const decision = admitDestination(context, destination, {
    kind: 'http',
    destination,
    scheme,
    method: head.method,
    path,
    now,
  })
  onBudget(plane.budgets.startRequest(who.sandbox))
  refuseLargeBody(who.sandbox, request)
  const fields = forwardedFields(head.fields, slotHeadersOf(who.sandbox.grants))
  const usage = checkUsage({
    grants: who.sandbox.grants,
    handles: snapshot.handles,
    sandboxId: who.sandbox.id,
    mayUseHandles: who.mayUseHandles,
    destination,
    scheme,
    decision,
    method: head.method,
    target: request.target,
    headers: fields,
    now,
  })
  if (usage.kind === 'deny') throw usageRefusal(context, usage)
  const swaps = usage.kind === 'swap' ? usage.swaps : []
  const [swap] = swaps
  if (swap !== undefined) {
    context.record.access = swap.grant.access.name
    context.record.handle = swap.grant.handle.id
  }
  // The brand exists in types only: nothing but this return can make a `Cleared`.
  return { sandbox: who.sandbox, request, decision, fields, swaps } as unknown as Cleared
}

function isMetadata({ host, ip }: Destination): boolean {
  if (ip === 0) return isMetadataName(host)
  const address = parseAddress(host)
  if (address === undefined) return false
  const judged = judge(address, [])
  return !judged.allowed && judged.reason === 'metadata_denied'
}

function refuseLargeBody(sandbox: SandboxView, request: ClientRequest): void {
  const { bodyBytes } = sandbox.limits
  if (bodyBytes === undefined || request.framing.kind !== 'length') return
  if (request.framing.length > bodyBytes) throw new Refusal('too_large', { status: 413 })
}

function usageRefusal({ plane, record }: AdmitContext, usage: UsageDeny): Refusal {
  record.handle = usage.handle?.id
  record.access = usage.access ?? record.access
  record.note = usage.truth
  // Misuse of a handle is told to its owner, who may not be the one who asked.
  if (usage.reason !== 'foreign_credential') {
    plane.auditRefusal(
      {
        id: plane.newId(),
        ts: plane.clock.now(),
        kind: 'alert',
        tenant: record.sandbox?.tenant,
        sandbox: usage.handle?.sandbox ?? record.sandbox?.name,
        host: record.destination?.host,
        port: record.destination?.port,
        reason: usage.truth ?? usage.reason,
        access: usage.access,
        handle: usage.handle?.id,
        note: `presented by ${record.sandbox?.name ?? 'unknown'} in exchange ${record.id}`,
      },
      record.source,
    )
  }
  return new Refusal(usage.reason)
}
