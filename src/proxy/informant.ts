import { Refusal } from '../core/errors.ts'
import type { ResponseHead } from '../http1/head.ts'
import { send } from './byte-reader.ts'
import type { ClientConnection } from './connection.ts'
import type { ForwardEvents } from './forward.ts'
import { writeHead } from './head.ts'
import type { Record } from './record.ts'
import type { ClientRequest } from './request.ts'
import { treatInformational, type Treatment } from './response.ts'

interface Facts {
  readonly request: ClientRequest
  readonly treatment: Treatment
  readonly record: Record
  /** Limit of the request's body, bytes. */
  readonly bodyBytes: number | undefined
}

/** What is told while a request is on its way: informational responses to the client, sent bytes to the record. */
export class Informant implements ForwardEvents {
  readonly #client: ClientConnection
  readonly #facts: Facts

  constructor(client: ClientConnection, facts: Facts) {
    this.#client = client
    this.#facts = facts
  }

  /** The upstream's own 100 goes to the client that asked for one; HTTP/1.0 knows no informational responses. */
  informational(head: ResponseHead): Promise<void> | undefined {
    const { request, treatment } = this.#facts
    const clean = treatInformational(head, treatment)
    if (request.head.minor === 0 || (head.status === 100 && !request.expectsContinue)) return undefined
    return send(this.#client.socket, writeHead(`HTTP/1.1 ${clean.status} ${clean.phrase}`, clean.fields))
  }

  sent(bytes: number): void {
    const { record, bodyBytes } = this.#facts
    record.bytesUp += bytes
    if (bodyBytes !== undefined && record.bytesUp > bodyBytes) throw new Refusal('too_large', { status: 413 })
  }
}
