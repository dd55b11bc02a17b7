import { chunkHead, lastChunk } from '../http1/chunked.ts'
import { Refusal } from '../core/errors.ts'
import type { Field } from '../http1/fields.ts'
import type { Body } from './body.ts'
import { send } from './byte-reader.ts'
import { ClientGone, type ClientConnection } from './connection.ts'
import { permittedTrailers, writeHead } from './head.ts'
import type { Record } from './record.ts'
import type { ClientRequest } from './request.ts'
import { treatTrailers, type Outcome, type Treatment } from './response.ts'
import type { Leg } from './upstream-leg.ts'

interface Context {
  readonly request: ClientRequest
  /** The request's body is wholly through. */
  readonly isRequestSent: () => boolean
  readonly treatment: Treatment
  readonly record: Record
  readonly story: { readonly leg: Leg | undefined }
}

function refuseLarge(outcome: Outcome, record: Record): void {
  const limit = record.sandbox?.limits.responseBytes
  if (limit === undefined || (outcome.body.length ?? 0) <= limit) return
  throw new Refusal('upstream_failed', {
    detail: `response over ${limit} bytes`,
    hint: 'The response is larger than the limit of this sandbox.',
  })
}

type Delimiter = 'length' | 'chunked' | 'close' | 'none'

/** How long a first piece is waited for before the head goes alone, `ms`. */
const firstPieceMs = 10

/**
 * Writes the whole response to the client. Resolves to `true` when another may follow it; a failure after the head ends the
 * connection without a proper end, so that a cut answer can never look complete.
 */
export async function answer(client: ClientConnection, outcome: Outcome, context: Context): Promise<boolean> {
  const { record, request } = context
  refuseLarge(outcome, record)
  const delimiter = delimiterOf(outcome, request)
  if (delimiter === 'none') {
    record.status = outcome.status
    const mayKeep = keepsConnection(context, delimiter)
    await taken(client, send(client.socket, responseHead(outcome, { delimiter, mayKeep })))
    record.redactions = outcome.redactions()
    return mayKeep
  }
  const first = await firstPiece(client, outcome.body)
  const mayKeep = keepsConnection(context, delimiter)
  const head = responseHead(outcome, { delimiter, mayKeep })
  // From here on there is an answer; a failure before it is told with a status of its own.
  record.status = outcome.status
  try {
    await relay(client, { outcome, context, head, delimiter, first })
  } catch (error) {
    record.redactions = outcome.redactions()
    throw error instanceof ClientGone ? error : new CutAnswer(error, delimiter)
  }
  record.redactions = outcome.redactions()
  return mayKeep
}

/** The answer had begun when it failed: nothing but the end of the connection can tell the client. */
export class CutAnswer extends Error {
  override readonly name = 'CutAnswer'
  readonly reason: unknown
  /** The end of the connection is what would make the answer whole: only a reset says that it is not. */
  readonly needsReset: boolean

  constructor(reason: unknown, delimiter: Delimiter) {
    super('the response was cut')
    this.reason = reason
    this.needsReset = delimiter === 'close'
  }
}

function delimiterOf(outcome: Outcome, request: ClientRequest): Delimiter {
  if (request.head.method === 'HEAD' || outcome.status === 204 || outcome.status === 304) return 'none'
  if (outcome.body.length !== undefined) return 'length'
  return request.head.minor === 1 ? 'chunked' : 'close'
}

/** Judged as the head is written, so that the client is told. */
function keepsConnection({ request, isRequestSent, story }: Context, delimiter: Delimiter): boolean {
  if (request.head.minor === 0 || delimiter === 'close' || story.leg === undefined) return false
  // The request's body is not through yet, or never will be: the next request could not be found on this connection.
  if (!isRequestSent()) return false
  return !request.head.fields.some(
    ([name, value]) => name.toLowerCase() === 'connection' && /\bclose\b/i.test(value),
  )
}

function responseHead(
  outcome: Outcome,
  { delimiter, mayKeep }: { delimiter: Delimiter; mayKeep: boolean },
): string {
  const framing: Field[] = []
  if (delimiter === 'length') framing.push(['Content-Length', String(outcome.body.length ?? 0)])
  if (delimiter === 'chunked') framing.push(['Transfer-Encoding', 'chunked'])
  // RFC 9110 section 8.6: a 204 has no length.
  if (delimiter === 'none' && outcome.declared !== undefined && outcome.status !== 204)
    framing.push(['Content-Length', String(outcome.declared)])
  if (!mayKeep) framing.push(['Connection', 'close'])
  return writeHead(`HTTP/1.1 ${outcome.status} ${outcome.phrase}`, [...outcome.fields, ...framing])
}

type First = { readonly piece: Buffer | undefined } | { readonly pending: Promise<Buffer | undefined> }

/** The first piece if it comes at once, so that a small response is one write; else the head must not wait for it. */
async function firstPiece(client: ClientConnection, body: Body): Promise<First> {
  if (body.isReady === true) return { piece: await body.next() }
  const pending = body.next()
  let cancel = (): void => undefined
  const late = new Promise<'late'>((resolve) => {
    cancel = client.plane.clock.after(firstPieceMs, () => resolve('late'))
  })
  try {
    const piece = await Promise.race([pending, late])
    return piece === 'late' ? { pending } : { piece }
  } finally {
    cancel()
  }
}

async function relay(
  client: ClientConnection,
  facts: { outcome: Outcome; context: Context; head: string; delimiter: Delimiter; first: First },
): Promise<void> {
  const { outcome, context, delimiter, first } = facts
  const { socket } = client
  const { record } = context
  const limit = record.sandbox?.limits.responseBytes
  socket.cork()
  socket.write(facts.head, 'latin1')
  if ('pending' in first) socket.uncork()
  let piece = 'pending' in first ? await first.pending : first.piece
  if ('piece' in first) process.nextTick(() => socket.uncork())
  while (piece !== undefined) {
    if (client.isGone) throw new ClientGone('the client left')
    record.bytesDown += piece.length
    if (limit !== undefined && record.bytesDown > limit) {
      throw new Refusal('upstream_failed', { detail: `response over ${limit} bytes` })
    }
    await taken(client, writePiece(client, piece, delimiter))
    extend(context, client)
    piece = await outcome.body.next()
  }
  if (delimiter === 'chunked') {
    const last = lastChunk(treatTrailers(permittedTrailers(outcome.body.trailers), context.treatment))
    await taken(client, send(socket, last))
  }
  if (client.isGone) throw new ClientGone('the client left')
}

/** Waits for the client to take what was written, at most `stallMs`: one that reads nothing must not hold an upstream. */
async function taken(client: ClientConnection, room: Promise<void> | undefined): Promise<void> {
  if (room === undefined) return
  client.allow(client.plane.limits.stallMs)
  await room
  client.deadline = Infinity
}

function writePiece(
  client: ClientConnection,
  piece: Buffer,
  delimiter: Delimiter,
): Promise<void> | undefined {
  const { socket } = client
  if (delimiter !== 'chunked') return send(socket, piece)
  socket.cork()
  socket.write(chunkHead(piece.length), 'latin1')
  socket.write(piece)
  const room = send(socket, '\r\n')
  socket.uncork()
  return room
}

/** A body may take as long as it likes, as long as something comes. */
function extend({ story }: Context, client: ClientConnection): void {
  if (story.leg === undefined) return
  story.leg.upstream.deadline = client.plane.clock.monotonic() + client.plane.limits.stallMs
}
