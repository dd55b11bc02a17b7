import { Refusal } from '../core/errors.ts'
import { chunkHead, lastChunk } from '../http1/chunked.ts'
import { listOf, valuesOf, type Field } from '../http1/fields.ts'
import { responseFraming, type Framing } from '../http1/framing.ts'
import { findHeadEnd, parseResponseHead, type HeadLimits, type ResponseHead } from '../http1/head.ts'
import { bodyOf, type Body } from './body.ts'
import { send } from './byte-reader.ts'
import { permittedTrailers, writeHead } from './head.ts'
import type { PlaneLimits } from './limits.ts'
import type { Upstream } from './upstream-pool.ts'

/** A finished request: what the upstream is sent, nothing added behind this point. */
export interface Outgoing {
  readonly method: string
  readonly target: string
  /** Host included, framing fields not. */
  readonly fields: readonly Field[]
  readonly framing: Framing
  readonly body: Body
  /** The first piece of the body is there already and travels with the head. */
  readonly isBodyReady: boolean
  /** Protocol to switch to (`websocket`); a 101 to any other request is an error. */
  readonly upgrade?: string | undefined
}

/** What is told of a request while it is forwarded. */
export interface ForwardEvents {
  /** An informational response (100, 102, 103), in order, before the final one. */
  informational(head: ResponseHead): Promise<void> | undefined
  /** `bytes` of content were written to the upstream. */
  sent(bytes: number): void
}

/** The final response: its head and a body to pull. */
export interface Incoming {
  readonly head: ResponseHead
  readonly framing: Framing
  readonly body: Body
  /** The request's body was wholly written. */
  isRequestSent(): boolean
  /** The connection may carry another exchange once the body is complete. */
  mayReuse(): boolean
}

/** The connection ended before one byte of a response: on a reused connection nothing may have been processed. */
export class NoResponse extends Error {
  override readonly name = 'NoResponse'
  readonly refusal: Error

  constructor(refusal: Error) {
    super(refusal.message)
    this.refusal = refusal
  }
}

/**
 * The upstream leg of one exchange over HTTP/1.1 framing: sends, relays informational responses, returns the final head.
 * Request body and response run at the same time, so an early final answer is seen while the client still sends.
 */
export async function forward(
  upstream: Upstream,
  outgoing: Outgoing,
  options: { events: ForwardEvents; limits: PlaneLimits; now: () => number },
): Promise<Incoming> {
  const pump = new RequestPump(upstream, outgoing, options)
  void pump.run()
  const head = await finalHead(upstream, { outgoing, options })
  pump.isAnswered = true
  upstream.deadline = options.now() + options.limits.stallMs
  // The answer to the last piece can be read before the loop has told that the piece is written.
  if (!pump.isDone) await nextTurn()
  const framing = responseFraming(head, outgoing.method)
  if ('problem' in framing) throw new Refusal('upstream_failed', { detail: framing.problem })
  const body = bodyOf(upstream.reader, framing, {
    cut: () => upstream.failure,
    broken: ({ problem }) => new Refusal('upstream_failed', { detail: problem }),
  })
  upstream.serverIdleMs = serverIdleMs(head)
  return {
    head,
    framing,
    body,
    isRequestSent: () => pump.isDone,
    mayReuse: () =>
      head.status !== 101 && pump.isDone && body.complete && framing.kind !== 'close' && isPersistent(head),
  }
}

type Options = Parameters<typeof forward>[2]

const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

/** Writes the request; a failure of the client's body fails the upstream, since half a request must not look whole. */
class RequestPump {
  readonly #upstream: Upstream
  readonly #outgoing: Outgoing
  readonly #options: Options
  /** The whole request is written. */
  isDone = false
  /** The final response has begun: the upstream's time is no longer the request's. */
  isAnswered = false

  constructor(upstream: Upstream, outgoing: Outgoing, options: Options) {
    this.#upstream = upstream
    this.#outgoing = outgoing
    this.#options = options
  }

  async run(): Promise<void> {
    try {
      const { limits } = this.#options
      const head = this.#head()
      this.#allow(limits.stallMs)
      if (this.#outgoing.framing.kind === 'none') await this.#write(head)
      else await this.#withBody(head)
      this.isDone = true
      this.#allow(limits.firstByteMs)
    } catch (error) {
      this.#upstream.fail(error instanceof Error ? error : new Refusal('internal', { cause: error }))
    }
  }

  /** Time for the next step of the request; once the response has begun, its own steps set the time. */
  #allow(ms: number): void {
    if (!this.isAnswered) this.#upstream.deadline = this.#options.now() + ms
  }

  #head(): string {
    const { method, target, fields, framing, upgrade } = this.#outgoing
    const switching: Field[] = upgrade === undefined ? [] : [['Connection', 'Upgrade'], ['Upgrade', upgrade]] // prettier-ignore
    return writeHead(`${method} ${target} HTTP/1.1`, [
      ...fields,
      ...framingFields(framing, method),
      ...switching,
    ])
  }

  async #withBody(head: string): Promise<void> {
    const { socket } = this.#upstream
    const { body, isBodyReady } = this.#outgoing
    socket.cork()
    void this.#write(head)
    // What is there may be less than a piece, such as the size of a chunk to come: the head waits one turn, not for it.
    if (isBodyReady) setImmediate(() => socket.uncork())
    else socket.uncork()
    for (;;) {
      const piece = await body.next()
      if (piece === undefined) break
      await this.#piece(piece)
    }
    if (this.#outgoing.framing.kind === 'chunked')
      await this.#write(lastChunk(permittedTrailers(body.trailers)))
  }

  async #piece(piece: Buffer): Promise<void> {
    const { socket } = this.#upstream
    const { events, limits } = this.#options
    if (this.#outgoing.framing.kind === 'chunked') {
      socket.cork()
      socket.write(chunkHead(piece.length), 'latin1')
      socket.write(piece)
      const room = send(socket, '\r\n')
      socket.uncork()
      await room
    } else await send(socket, piece)
    events.sent(piece.length)
    this.#allow(limits.stallMs)
  }

  #write(text: string): Promise<void> | undefined {
    return send(this.#upstream.socket, text)
  }
}

function framingFields(framing: Framing, method: string): Field[] {
  if (framing.kind === 'chunked') return [['Transfer-Encoding', 'chunked']]
  if (framing.kind === 'length') return [['Content-Length', String(framing.length)]]
  // RFC 9110 section 8.6: a method that anticipates content says so even when there is none.
  return ['POST', 'PUT', 'PATCH'].includes(method) ? [['Content-Length', '0']] : []
}

async function finalHead(
  upstream: Upstream,
  exchange: { outgoing: Outgoing; options: Options },
): Promise<ResponseHead> {
  const { limits, events } = exchange.options
  const { upgrade } = exchange.outgoing
  for (let seen = 0; ; seen++) {
    const head = await readHead(upstream, limits.responseHead, seen === 0)
    if (head.status >= 200) return head
    if (head.status === 101 && upgrade !== undefined && listOf(head.fields, 'upgrade').includes(upgrade))
      return head
    if (head.status === 101) throw new Refusal('upstream_failed', { detail: '101 without an upgrade' })
    if (seen >= limits.informational)
      throw new Refusal('upstream_failed', { detail: 'too many informational responses' })
    await events.informational(head)
  }
}

async function readHead(upstream: Upstream, limits: HeadLimits, isFirst: boolean): Promise<ResponseHead> {
  const { reader } = upstream
  let searched = 0
  for (;;) {
    if (reader.size > searched) {
      const bytes = reader.peek()
      const end = findHeadEnd(bytes, searched, limits)
      if (typeof end === 'number') return takeHead(upstream, bytes, { end, limits })
      if (end !== undefined) throw new Refusal('upstream_failed', { detail: end.problem })
      searched = bytes.length
    }
    if (reader.ended) {
      if (isFirst && reader.size === 0) throw new NoResponse(upstream.failure)
      throw upstream.failure
    }
    await reader.more()
  }
}

function takeHead(
  upstream: Upstream,
  bytes: Buffer,
  { end, limits }: { end: number; limits: HeadLimits },
): ResponseHead {
  const text = bytes.toString('latin1', 0, end - 4)
  upstream.reader.skip(end)
  const head = parseResponseHead(text, limits)
  if ('problem' in head) throw new Refusal('upstream_failed', { detail: head.problem })
  return head
}

function isPersistent(head: ResponseHead): boolean {
  return head.minor === 1 && !listOf(head.fields, 'connection').includes('close')
}

/** When the server closes an idle connection, by its `Keep-Alive: timeout=N`, less a second for the way. */
function serverIdleMs(head: ResponseHead): number {
  const [value] = valuesOf(head.fields, 'keep-alive')
  const seconds = value === undefined ? undefined : /timeout=([0-9]{1,6})/i.exec(value)?.[1]
  return seconds === undefined ? Infinity : Number(seconds) * 1_000 - 1_000
}
