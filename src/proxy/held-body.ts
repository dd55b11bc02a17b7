import { valuesOf, type Field } from '../http1/fields.ts'
import type { ResponseHead } from '../http1/head.ts'
import type { Body } from './body.ts'
import type { DataPlane } from './plane.ts'

/**
 * Collects a small body whole, so that it gets a true length and an early failure can still be a proper refusal. A body
 * that declares more, or an event stream, is not waited for; one without a length is waited for only briefly.
 */
export async function hold(
  body: Body,
  facts: { head: ResponseHead; plane: DataPlane; declared: number | undefined },
): Promise<Body> {
  const { head, plane, declared } = facts
  const { heldBytes, heldMs } = plane.limits
  if (
    valuesOf(head.fields, 'content-type').some((type) => type.toLowerCase().startsWith('text/event-stream'))
  )
    return body
  if (declared !== undefined && declared > heldBytes) return body
  const isPatient = declared !== undefined
  const expiry = isPatient ? undefined : timeout(plane, heldMs)
  const pieces: Buffer[] = []
  let size = 0
  try {
    for (;;) {
      const next = body.next()
      const piece = expiry === undefined ? await next : await Promise.race([next, expiry.promise])
      if (piece === 'late') return new ResumedBody(pieces, body, next)
      if (piece === undefined) {
        // Trailers need the chunked coding, and with it there is no length to give.
        return body.trailers.length > 0
          ? new ResumedBody(pieces, body, undefined)
          : new HeldBody(Buffer.concat(pieces), body)
      }
      pieces.push(piece)
      size += piece.length
      if (size > heldBytes) return new ResumedBody(pieces, body, undefined)
    }
  } finally {
    expiry?.cancel()
  }
}

function timeout(plane: DataPlane, ms: number): { promise: Promise<'late'>; cancel: () => void } {
  let cancel = (): void => undefined
  const promise = new Promise<'late'>((resolve) => {
    cancel = plane.clock.after(ms, () => resolve('late'))
  })
  return { promise, cancel }
}

/** A body that was collected whole. */
class HeldBody implements Body {
  readonly length: number
  readonly isReady = true
  readonly #source: Body
  #bytes: Buffer | undefined

  constructor(bytes: Buffer, source: Body) {
    this.#bytes = bytes.length > 0 ? bytes : undefined
    this.length = bytes.length
    this.#source = source
  }

  get complete(): boolean {
    return this.#bytes === undefined
  }

  get trailers(): readonly Field[] {
    return this.#source.trailers
  }

  close(): void {
    this.#source.close?.()
  }

  next(): Promise<Buffer | undefined> {
    const bytes = this.#bytes
    this.#bytes = undefined
    return Promise.resolve(bytes)
  }
}

/** A body that was waited for in vain: what was collected, then what comes. */
class ResumedBody implements Body {
  readonly length = undefined
  readonly #source: Body
  #pieces: Buffer[]
  #pending: Promise<Buffer | undefined> | undefined

  constructor(pieces: Buffer[], source: Body, pending: Promise<Buffer | undefined> | undefined) {
    this.#pieces = pieces
    this.#source = source
    this.#pending = pending
    // It is awaited later; until then a failure must not count as unhandled.
    pending?.catch(() => undefined)
  }

  get complete(): boolean {
    return this.#pieces.length === 0 && this.#source.complete
  }

  get trailers(): readonly Field[] {
    return this.#source.trailers
  }

  close(): void {
    this.#source.close?.()
  }

  next(): Promise<Buffer | undefined> {
    if (this.#pieces.length > 0) {
      const bytes = Buffer.concat(this.#pieces)
      this.#pieces = []
      return Promise.resolve(bytes)
    }
    const pending = this.#pending
    this.#pending = undefined
    return pending ?? this.#source.next()
  }
}
