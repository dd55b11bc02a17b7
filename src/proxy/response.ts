import { Refusal } from '../core/errors.ts'
import { declaredLength } from '../http1/framing.ts'
import { valuesOf, type Field } from '../http1/fields.ts'
import type { ResponseHead } from '../http1/head.ts'
import type { SandboxView, Snapshot } from '../identity/model.ts'
import type { Patterns } from '../redact/forms.ts'
import type { PartSeen } from '../redact/port.ts'
import { containsSecret, createRedactor, createScanner, isWithinSecret } from '../redact/redactor.ts'
import type { Body } from './body.ts'
import { RedactedBody, ScannedBody } from './body-scan.ts'
import { createDecoder, limitAcceptEncoding, type Decoder } from './codings.ts'
import type { Incoming } from './forward.ts'
import { hold } from './held-body.ts'
import { redactHead } from './redact-head.ts'
import { returnedFields, withField, withoutFields } from './head.ts'
import type { DataPlane } from './plane.ts'
import type { ClientRequest } from './request.ts'

/** What becomes of one upstream's answers. */
export type Treatment =
  /** A destination of an access of the tenant: values are replaced. */
  | {
      readonly kind: 'redact'
      readonly patterns: Patterns
      readonly partSeen: PartSeen
      replacement(entryId: string): string | undefined
    }
  /** Any other destination of a tenant with secrets: a value ends the exchange. */
  | { readonly kind: 'scan'; readonly patterns: Patterns; readonly partSeen: PartSeen }
  /** The tenant has no secret that could come back. */
  | { readonly kind: 'pass' }

/** A response as it will be written. */
export interface Outcome {
  readonly status: number
  readonly phrase: string
  readonly fields: readonly Field[]
  readonly body: Body
  /** Declared length that stands though there is no body (HEAD, 304). */
  readonly declared: number | undefined
  redactions(): number
}

/** Validators and lengths of bytes that may not be the upstream's any more. */
const strongFields = [
  'content-md5',
  'digest',
  'content-digest',
  'repr-digest',
  'accept-ranges',
  'content-range',
]
const conditional = [
  'if-match',
  'if-none-match',
  'if-modified-since',
  'if-unmodified-since',
  'if-range',
  'range',
]

/** Bytes of a part that is long enough to be known as a piece of a secret; see `isWithinSecret`. */
const shortestPart = 4

/** How the answers of the destination of this request are treated, for this sandbox. */
export function treatmentOf(
  plane: DataPlane,
  snapshot: Snapshot,
  who: { sandbox: SandboxView; request: ClientRequest },
): Treatment {
  const { sandbox, request } = who
  const { host, port } = request.destination
  const patterns = plane.patterns(sandbox.tenant)
  const isBound = snapshot.bound.get(sandbox.tenant)?.has(host, port) ?? false
  if (patterns === undefined) return { kind: 'pass' }
  const partSeen = plane.guesses.watching(sandbox, request.destination)
  if (!isBound) return { kind: 'scan', patterns, partSeen }
  return {
    kind: 'redact',
    patterns,
    partSeen,
    replacement: (entryId) => placeholderFor(plane, sandbox, entryId),
  }
}

/** The sandbox's own placeholder for the credential an entry belongs to. */
function placeholderFor(plane: DataPlane, sandbox: SandboxView, entryId: string): string | undefined {
  const entry = plane.broker.redactionSet(sandbox.tenant).entries.find(({ id }) => id === entryId)
  if (entry === undefined) return undefined
  return sandbox.grants.find(({ access }) => access.credential === entry.credential)?.handle.placeholder
}

/**
 * Request fields for an upstream whose answer must be read: codings we decode, and nothing by which a client could have
 * a secret in parts (ranges) or learn of it by comparison (validators).
 */
export function readableRequest(fields: readonly Field[], treatment: Treatment): Field[] {
  if (treatment.kind === 'pass') return [...fields]
  if (treatment.kind === 'redact') {
    return withField(withoutFields(fields, conditional), 'Accept-Encoding', 'identity')
  }
  const range = valuesOf(fields, 'range').join(', ')
  const asked = showsTooLittle(range) ? withoutFields(fields, ['range', 'if-range']) : [...fields]
  const offered = valuesOf(asked, 'accept-encoding')
  if (offered.length === 0) return asked
  // A part of a coded representation cannot be decoded, so ranges are asked for uncoded.
  const isPartial = valuesOf(asked, 'range').length > 0
  return withField(asked, 'Accept-Encoding', isPartial ? 'identity' : limitAcceptEncoding(offered.join(', ')))
}

/**
 * Parts that are too short to be told from a piece of a secret, or several in one answer: the whole is asked for, which
 * RFC 9110 section 14.2 leaves to any recipient. The first bytes of a file are a common question.
 */
function showsTooLittle(range: string): boolean {
  if (range === '') return false
  const [, first = '', last = ''] = /^\s*bytes\s*=\s*([0-9]{0,15})-([0-9]{0,15})\s*$/i.exec(range) ?? []
  if (first === '' && last === '') return true
  if (first === '') return Number(last) < shortestPart
  return last !== '' && Number(first) > 0 && Number(last) - Number(first) + 1 < shortestPart
}

/** Prepares an upstream's response for the client; throws a `Refusal` for what cannot be read or must not pass. */
export async function treatResponse(
  incoming: Incoming,
  treatment: Treatment,
  plane: DataPlane,
): Promise<Outcome> {
  const { head } = incoming
  const fields = returnedFields(head.fields)
  const hasBody = incoming.framing.kind !== 'none'
  const declared = hasBody ? undefined : declaredLength(head.fields)
  if (treatment.kind === 'pass') {
    return { ...plain(head), fields, body: incoming.body, declared, redactions: () => 0 }
  }
  if (treatment.kind === 'scan') return scanned(incoming, { fields, declared, hasBody, treatment })
  return redacted(incoming, { fields, hasBody, treatment, plane })
}

const plain = (head: ResponseHead): { status: number; phrase: string } => ({
  status: head.status,
  phrase: head.phrase,
})

function scanned(
  incoming: Incoming,
  facts: {
    fields: Field[]
    declared: number | undefined
    hasBody: boolean
    treatment: Extract<Treatment, { kind: 'scan' }>
  },
): Outcome {
  const { head } = incoming
  const { fields, declared, hasBody, treatment } = facts
  refuseSecretIn(headText(head), treatment)
  const decoder = hasBody ? decoderOf(head) : undefined
  const isPart = head.status === 206
  const body = hasBody ? scannedBody(incoming.body, decoder, { treatment, isPart }) : incoming.body
  return { ...plain(head), fields, body, declared, redactions: () => 0 }
}

const scannedBody = (
  body: Body,
  decoder: Decoder | undefined,
  {
    treatment: { patterns, partSeen },
    isPart,
  }: { treatment: Extract<Treatment, { kind: 'scan' }>; isPart: boolean },
): ScannedBody =>
  new ScannedBody(body, {
    decoder,
    scanner: createScanner(patterns, partSeen),
    coded: decoder === undefined ? undefined : createScanner(patterns, partSeen),
    isWithin: isPart ? (bytes) => isWithinSecret(patterns, bytes) : undefined,
  })

async function redacted(
  incoming: Incoming,
  facts: {
    fields: Field[]
    hasBody: boolean
    treatment: Extract<Treatment, { kind: 'redact' }>
    plane: DataPlane
  },
): Promise<Outcome> {
  const { head } = incoming
  const { treatment, hasBody, plane } = facts
  const clean = redactHead(head.phrase, withoutFields(facts.fields, ['content-encoding']), treatment)
  if (!hasBody) {
    // A length that depends on the secret would tell its length, so HEAD and 304 lose theirs.
    return {
      ...clean,
      status: head.status,
      body: incoming.body,
      declared: undefined,
      redactions: () => clean.hits,
    }
  }
  const { patterns, replacement, partSeen } = treatment
  const redactor = createRedactor(patterns, replacement, partSeen)
  const body = new RedactedBody(incoming.body, decoderOf(head), redactor)
  const held = await hold(body, { head, plane, declared: incoming.body.length })
  const isUnchanged = held.length !== undefined && body.hits === 0
  const fields = isUnchanged ? clean.fields : weakened(clean.fields)
  return {
    status: head.status,
    phrase: clean.phrase,
    fields,
    body: held,
    declared: undefined,
    redactions: () => clean.hits + body.hits,
  }
}

function weakened(fields: readonly Field[]): Field[] {
  return withoutFields(fields, strongFields).filter(
    ([name, value]) => name.toLowerCase() !== 'etag' || value.startsWith('W/'),
  )
}

/** An informational response's fields, judged like a final one's. */
export function treatInformational(head: ResponseHead, treatment: Treatment): ResponseHead {
  const fields = returnedFields(head.fields)
  if (treatment.kind === 'pass') return { ...head, fields }
  if (treatment.kind === 'redact') return { ...head, ...redactHead(head.phrase, fields, treatment) }
  refuseSecretIn(headText(head), treatment)
  return { ...head, fields }
}

/** Trailer fields, judged like header fields. */
export function treatTrailers(fields: readonly Field[], treatment: Treatment): Field[] {
  if (treatment.kind === 'pass' || fields.length === 0) return [...fields]
  if (treatment.kind === 'redact') return redactHead('', fields, treatment).fields
  refuseSecretIn(fields.map(([name, value]) => `${name}: ${value}`).join('\n'), treatment)
  return [...fields]
}

function refuseSecretIn(text: string, { patterns, partSeen }: Extract<Treatment, { kind: 'scan' }>): void {
  if (containsSecret(patterns, Buffer.from(text, 'latin1'), partSeen))
    throw new Refusal('credential_in_response')
}

const headText = (head: ResponseHead): string =>
  `${head.phrase}\n${head.fields.map(([name, value]) => `${name}: ${value}`).join('\n')}`

function decoderOf(head: ResponseHead): Decoder | undefined {
  const codings = valuesOf(head.fields, 'content-encoding').join(', ')
  if (codings.trim() === '') return undefined
  const decoder = createDecoder(codings)
  if (decoder === 'unreadable') throw new Refusal('unreadable_encoding')
  return decoder === 'identity' ? undefined : decoder
}
