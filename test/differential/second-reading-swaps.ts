import type { Access, Grant, Slot } from '../../src/handles/model.ts'
import type { UsageInput } from '../../src/handles/usage.ts'
import { readDecision } from './second-reading.ts'

/** Second reading of what a placeholder may do in a request, from `design.md` alone; `src/` shares only the types. */

const undoPercent = (text: string): string =>
  text.replace(/%([0-9a-f]{2})/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)))

const basicOf = (value: string): string | undefined => {
  const [scheme = '', ...rest] = value.trim().split(/\s+/)
  return scheme.toLowerCase() === 'basic'
    ? Buffer.from(rest.join(''), 'base64').toString('latin1')
    : undefined
}

/** The text as servers may come to read it. */
function meanings(text: string): string[] {
  const once = undoPercent(text)
  return [text, once, undoPercent(once), basicOf(text) ?? '']
}

/** Anything that looks like a placeholder, issued or not; names lose their case on the way. */
const isHeld = (text: string): boolean => meanings(text).some((each) => /octroi[0-9A-Za-z]{22}/.test(each))
const isHeldByName = (name: string): boolean => /octroi[0-9a-z]{22}/i.test(name)

/** A place of the head that holds a placeholder, or what looks like one: a header line, or anything else. */
export function placesWithPlaceholder({
  destination,
  target,
  headers,
}: UsageInput): (number | 'elsewhere')[] {
  const isElsewhere =
    isHeldByName(destination.host) || isHeld(target) || headers.some(([name]) => isHeldByName(name))
  const lines = headers.flatMap(([, value], index) => (isHeld(value) ? [index] : []))
  return isElsewhere ? ['elsewhere', ...lines] : lines
}

const slotField = (slot: Slot): string => (slot.kind === 'basic' ? 'authorization' : slot.name.toLowerCase())

/** Is the value of the slot's field the placeholder alone? */
function isAlone(slot: Slot, value: string, placeholder: string): boolean {
  if (slot.kind === 'header') {
    if (slot.scheme === undefined) return value === placeholder
    const space = value.indexOf(' ')
    return (
      value.slice(0, space).toLowerCase() === slot.scheme.toLowerCase() &&
      value.slice(space + 1) === placeholder
    )
  }
  const basic = basicOf(value)
  if (basic === undefined) return false
  const colon = basic.indexOf(':')
  const [held, other] =
    slot.field === 'user'
      ? [basic.slice(0, colon), basic.slice(colon + 1)]
      : [basic.slice(colon + 1), basic.slice(0, colon)]
  return colon >= 0 && held === placeholder && !other.includes(placeholder)
}

const isAt = (access: Access, { destination, now }: UsageInput): boolean =>
  readDecision({ allow: [], deny: [], access: access.destinations }, { kind: 'connect', destination, now })
    .verdict === 'allow'

/** May the placeholder of this grant become a credential in this header line? Every condition of `design.md`, one by one. */
export function maySwap(input: UsageInput, { access, handle }: Grant, line: number): boolean {
  const { destination, method, now, scheme, headers } = input
  const path = input.target.split('?')[0] ?? ''
  const [name = '', value = ''] = headers[line] ?? []
  const conditions = [
    handle.sandboxId === input.sandboxId,
    input.mayUseHandles,
    handle.revokedAt === undefined,
    handle.expiresAt === undefined || handle.expiresAt > now,
    handle.access === access.name,
    scheme === 'https',
    readDecision(
      { allow: [], deny: [], access: access.destinations },
      { kind: 'http', destination, scheme, method, path, now },
    ).verdict === 'allow',
    name.toLowerCase() === slotField(access.slot),
    headers.filter(([each]) => each.toLowerCase() === slotField(access.slot)).length === 1,
    isAlone(access.slot, value, handle.placeholder),
  ]
  return conditions.every(Boolean)
}

const credentialFields = ['authorization', 'cookie', 'x-api-key', 'private-token', 'x-auth-token', 'api-key']
const credentialParameters = ['key', 'api_key', 'access_token', 'token', 'password']

/** Does the client send a credential of its own where only the placeholder may be one? */
export function sendsItsOwn(input: UsageInput, swapped: readonly number[]): boolean {
  const here = input.grants.filter(({ access }) => isAt(access, input))
  const isRefused =
    input.decision.ownCredentials === 'refuse' || here.some(({ access }) => access.foreign === 'refuse')
  if (!isRefused) return false
  const fields = [...credentialFields, ...here.map(({ access }) => slotField(access.slot))]
  const query = input.target.split('?').slice(1).join('?')
  return (
    input.headers.some(
      ([name, value], line) =>
        fields.includes(name.toLowerCase()) && value.trim() !== '' && !swapped.includes(line),
    ) ||
    query.split('&').some((pair) => {
      const [name = '', value = ''] = pair.split('=')
      return credentialParameters.includes(undoPercent(name).toLowerCase()) && value !== ''
    })
  )
}
