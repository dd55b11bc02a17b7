import { createHash } from 'node:crypto'
import type { AuditEvent } from './event.ts'

/** `prev` of the first event ever. */
export const genesis = '0'.repeat(64)

/** One event in the chain: its canonical JSON without `prev` and `hash`, and the hash over that and `prev`. */
export interface Link {
  readonly seq: number
  readonly body: string
  /** Lower-case hex SHA-256 of the line up to and including `prev`. */
  readonly hash: string
}

/** A place in the chain: the event `seq` has this hash. What is exported and checked later. */
export interface ChainHead {
  readonly seq: number
  readonly hash: string
}

/** What a check of the chain found. */
export type ChainVerdict =
  | { readonly ok: true; readonly head: ChainHead; readonly events: number }
  | { readonly ok: false; readonly seq: number; readonly problem: string }

// A record and not a list, so that a field added to the event fails to compile until it has a place here.
const order = {
  id: 0, ts: 0, kind: 0, tenant: 0, agent: 0, sandbox: 0, template: 0, run: 0, caller: 0, server: 0, tool: 0, call: 0,
  method: 0, scheme: 0, host: 0, port: 0, path: 0, address: 0, verdict: 0, reason: 0, would: 0, rule: 0, policy: 0,
  access: 0, handle: 0, lease: 0, approval: 0, status: 0, bytes_up: 0, bytes_down: 0, duration_ms: 0, redactions: 0,
  registry: 0, tls: 0, exit: 0, artifacts: 0, end: 0, count: 0, note: 0,
} satisfies Record<keyof AuditEvent, 0> // prettier-ignore

// `as`: the keys of a literal that `satisfies` has just checked.
const fields = (Object.keys(order) as (keyof AuditEvent)[]).filter((field) => field !== 'id')

/** The event as a canonical JSON object, fields in the order of the record and absent ones left out. */
export function canonicalBody(seq: number, event: AuditEvent): string {
  let text = `{"v":1,"id":${JSON.stringify(event.id)},"seq":${seq}`
  for (const field of fields) {
    const value = event[field]
    if (value !== undefined && value !== null) text += `,"${field}":${JSON.stringify(value)}`
  }
  return plainJson(`${text}}`)
}

// What JSON leaves as it is and a terminal or a viewer acts on: DEL and C1 controls, ends of lines, and every character of
// format, which turns, joins or hides text (direction, tags, annotations).
const acting = /[\u007f-\u009f\p{Cf}\p{Zl}\p{Zp}]/gu

/** The same JSON value in a text that steers no terminal: what `JSON.stringify` leaves raw is escaped as well. */
export function plainJson(text: string): string {
  return text.replace(acting, (found) => found.split('').map(escapeOf).join(''))
}

const escapeOf = (unit: string): string => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`

/** The event as the next link after the one whose hash is `prev`. */
export function appendLink(prev: string, seq: number, event: AuditEvent): Link {
  const body = canonicalBody(seq, event)
  return { seq, body, hash: linkHash(prev, body) }
}

/** The whole line as it is shown and exported: body, `prev`, `hash`. */
export function linkLine(prev: string, link: Link): string {
  return `${link.body.slice(0, -1)},"prev":"${prev}","hash":"${link.hash}"}`
}

/** Checks rows in the order they come against the place in the chain they must follow; names the first bad one. */
export function verifyChain(
  rows: Iterable<Link>,
  start: ChainHead = { seq: 0, hash: genesis },
): ChainVerdict {
  let { seq, hash } = start
  for (const row of rows) {
    const expected = seq + 1
    if (row.seq !== expected) return { ok: false, seq: expected, problem: gap(expected, row.seq) }
    if (seqOf(row.body) !== expected) {
      return { ok: false, seq: expected, problem: `event ${expected} says it is another one` }
    }
    // The brace that `prev` takes the place of is the one character that no hash covers.
    if (!row.body.endsWith('}') || linkHash(hash, row.body) !== row.hash) {
      return {
        ok: false,
        seq: expected,
        problem: `event ${expected} does not match its hash or the event before it`,
      }
    }
    seq = expected
    hash = row.hash
  }
  return { ok: true, head: { seq, hash }, events: seq - start.seq }
}

function linkHash(prev: string, body: string): string {
  return createHash('sha256')
    .update(`${body.slice(0, -1)},"prev":"${prev}"}`)
    .digest('hex')
}

function gap(expected: number, found: number): string {
  if (found < expected) return `event ${found} comes after event ${expected - 1}`
  return found === expected + 1
    ? `event ${expected} is missing`
    : `events ${expected} to ${found - 1} are missing`
}

/** Read from the place where a canonical text has it; a text of another form is not one that was written here. */
function seqOf(body: string): number | undefined {
  const found = /^\{"v":1,"id":"(?:[^"\\]|\\.)*","seq":(\d+)[,}]/.exec(body)
  return found === null ? undefined : Number(found[1])
}
