import { Refusal } from '../core/errors.ts'
import { credentialFits, swapValue } from '../handles/slot.ts'
import type { Field } from '../http1/fields.ts'
import type { Cleared } from './admit.ts'
import type { DataPlane } from './plane.ts'
import { decisionEvent, type Record } from './record.ts'

/** What a swap needs beside the request. */
export interface SwapContext {
  readonly plane: DataPlane
  readonly record: Record
  readonly signal: AbortSignal
}

/**
 * Puts credentials in the place of placeholders, last of all, on the finished field list. Before the first swapped byte
 * can leave, the decision is durable (I4); when it cannot be made durable, nothing is issued and nothing leaves.
 */
export async function swapFields(cleared: Cleared, context: SwapContext): Promise<readonly Field[]> {
  if (cleared.swaps.length === 0) return cleared.fields
  const { plane, record, signal } = context
  if (plane.audit.state !== 'ok') throw new Refusal('audit_unavailable')
  const fields: Field[] = [...cleared.fields]
  for (const { grant, header, slot } of cleared.swaps) {
    const credential = await plane.broker.credential(grant.access, cleared.sandbox.tenant, signal)
    const text = credential.value.reveal()
    const field = fields[header]
    if (field === undefined || !credentialFits(slot, text)) {
      throw new Refusal('credential_invalid', { detail: `credential of access ${grant.access.name}` })
    }
    fields[header] = [field[0], swapValue(slot, field[1], text)]
    record.lease = credential.lease
  }
  await plane.audit.appendDurable(decisionEvent(record))
  record.isDecided = true
  return fields
}
