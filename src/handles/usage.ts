import type { DenyReason, HandleTruth } from '../core/errors.ts'
import type { HandleRecord } from '../core/model.ts'
import type { Allow, Destination, Scheme } from '../policy/model.ts'
import { coversRequest, grantsCovering } from './coverage.ts'
import { foldedName, hasCredentialParameter, isCredentialHeader } from './credential-fields.ts'
import type { Grant, Slot } from './model.ts'
import { indexHandles, locate } from './occurrences.ts'
import type { Occurrence } from './occurrences.ts'
import { holdsExactly, slotHeader } from './slot.ts'

/** One request, allowed by policy, as far as handles are concerned. */
export interface UsageInput {
  /** Grants of the sandbox that asks. */
  readonly grants: readonly Grant[]
  /** Every placeholder ever issued; one map per snapshot, since its index is built once. */
  readonly handles: ReadonlyMap<string, HandleRecord>
  readonly sandboxId: string
  /** `false` for an identity that earns no swap (`source` alone). */
  readonly mayUseHandles: boolean
  readonly destination: Destination
  readonly scheme: Scheme
  readonly decision: Allow
  readonly method: string
  /** `path?query` as it will be sent. */
  readonly target: string
  /** Header lines as they will be sent, in order; hop-by-hop fields removed. */
  readonly headers: readonly (readonly [name: string, value: string])[]
  readonly now: number
}

/** One placeholder to replace by the credential of its access. */
export interface Swap {
  readonly grant: Grant
  /** Index into `headers`. */
  readonly header: number
  readonly slot: Slot
}

/** Why nothing of the request may be sent. */
export interface UsageDeny {
  readonly kind: 'deny'
  readonly reason: Extract<
    DenyReason,
    'handle_unknown' | 'handle_wrong_destination' | 'handle_placement' | 'handle_scope' | 'foreign_credential'
  >
  /** For events only: what `handle_unknown` stands for. */
  readonly truth?: HandleTruth
  /** For events only: the handle that was presented, perhaps another sandbox's, whose owner is to be told. */
  readonly handle?: HandleRecord
  /** For events only. */
  readonly access?: string
}

/** What is to become of a request: sent as it is, sent with swaps, or refused. */
export type UsageResult =
  { readonly kind: 'none' } | { readonly kind: 'swap'; readonly swaps: readonly Swap[] } | UsageDeny

/**
 * Judges every placeholder and every credential of the client's own in a request head. Any placeholder outside its
 * slot, destination, scope or sandbox denies the whole request; there is no partial swap.
 */
export function checkUsage(input: UsageInput): UsageResult {
  const { destination } = input
  const head = { host: destination.host, target: input.target, headers: input.headers }
  const seen = locate(head, indexHandles(input.handles))
  if (seen.length > 0) {
    const stranger = worstStranger(input, seen)
    if (stranger !== undefined) return stranger
  }
  const swaps: Swap[] = []
  for (const handle of new Set(seen.map((occurrence) => occurrence.handle))) {
    const grant = input.grants.find((candidate) => candidate.handle.id === handle?.id)
    if (grant === undefined) throw new TypeError('a stranger got past worstStranger')
    const judged = judgeOwn(input, grant, seen)
    if ('reason' in judged) return judged
    swaps.push(judged)
  }
  if (holdsForeign(input, swaps)) return { kind: 'deny', reason: 'foreign_credential', ...accessAt(input) }
  return swaps.length === 0 ? { kind: 'none' } : { kind: 'swap', swaps }
}

// Most telling first: a handle stolen from another sandbox must not hide behind one that was never issued.
const truths: readonly HandleTruth[] = [
  'handle_wrong_sandbox',
  'handle_revoked',
  'handle_expired',
  'handle_deleted',
  'handle_never_issued',
]

function worstStranger(input: UsageInput, seen: readonly Occurrence[]): UsageDeny | undefined {
  const strangers = seen.flatMap(({ handle }) => {
    const truth = truthOf(input, handle)
    return truth === undefined ? [] : [{ truth, handle }]
  })
  strangers.sort((a, b) => truths.indexOf(a.truth) - truths.indexOf(b.truth))
  const worst = strangers[0]
  if (worst === undefined) return undefined
  const { truth, handle } = worst
  const about = handle === undefined ? {} : { handle, access: handle.access }
  return { kind: 'deny', reason: 'handle_unknown', truth, ...about }
}

function truthOf(input: UsageInput, handle: HandleRecord | undefined): HandleTruth | undefined {
  if (handle === undefined) return 'handle_never_issued'
  // An address alone does not prove which sandbox sent it, so its handles are not this client's to use.
  if (handle.sandboxId !== input.sandboxId || !input.mayUseHandles) return 'handle_wrong_sandbox'
  if (handle.revokedAt !== undefined) return 'handle_revoked'
  if (handle.expiresAt !== undefined && handle.expiresAt <= input.now) return 'handle_expired'
  if (!input.grants.some((grant) => grant.handle.id === handle.id)) return 'handle_deleted'
  return undefined
}

function judgeOwn(input: UsageInput, grant: Grant, seen: readonly Occurrence[]): Swap | UsageDeny {
  const { access, handle } = grant
  const deny = (reason: UsageDeny['reason']): UsageDeny => ({
    kind: 'deny',
    reason,
    handle,
    access: access.name,
  })
  if (input.scheme !== 'https' || !grantsAt(input).includes(grant)) {
    return deny('handle_wrong_destination')
  }
  const header = slotLine(input, grant, seen)
  if (header === undefined) return deny('handle_placement')
  if (!coversRequest(access, input)) return deny('handle_scope')
  return { grant, header, slot: access.slot }
}

/** Index of the one header line that holds the placeholder in its slot, if it stands nowhere else in the head. */
function slotLine(input: UsageInput, grant: Grant, seen: readonly Occurrence[]): number | undefined {
  const { slot } = grant.access
  const lines = input.headers.flatMap(([name], index) =>
    name.toLowerCase() === slotHeader(slot) ? [index] : [],
  )
  const [line] = lines
  // With two lines of a field the upstream may read the other one, so neither is swapped.
  if (line === undefined || lines.length > 1) return undefined
  const value = input.headers[line]?.[1] ?? ''
  if (!holdsExactly(slot, value, grant.handle.placeholder)) return undefined
  const elsewhere = seen.some(({ handle, header }) => handle?.id === grant.handle.id && header !== line)
  return elsewhere ? undefined : line
}

function holdsForeign(input: UsageInput, swaps: readonly Swap[]): boolean {
  const here = grantsAt(input)
  const refuse =
    input.decision.ownCredentials === 'refuse' || here.some((grant) => grant.access.foreign === 'refuse')
  if (!refuse) return false
  const slots = new Set(here.map((grant) => foldedName(slotHeader(grant.access.slot))))
  const inHeader = input.headers.some(([name, value], index) => {
    if (value.trim() === '' || swaps.some((swap) => swap.header === index)) return false
    return isCredentialHeader(name) || slots.has(foldedName(name))
  })
  return inHeader || hasCredentialParameter(input.target)
}

function grantsAt(input: UsageInput): readonly Grant[] {
  return grantsCovering(input.grants, input.destination, input.now)
}

function accessAt(input: UsageInput): { access?: string } {
  const access = input.decision.access ?? grantsAt(input)[0]?.access.name
  return access === undefined ? {} : { access }
}
