import { Refusal } from '../core/errors.ts'
import { createClientHelloReader, type ClientHello } from '../tls/client-hello.ts'
import type { ClientConnection } from './connection.ts'

/** What the client sends first in a tunnel. */
export type Opening =
  | { readonly kind: 'tls'; readonly hello: ClientHello }
  | { readonly kind: 'http' }
  /** Neither TLS nor an HTTP request line. */
  | { readonly kind: 'other' }
  /** The client left without a byte. */
  | { readonly kind: 'nothing' }

const tlsHandshake = 0x16
const requestLine = /^[A-Z]{3,20} /

/** Looks at the first bytes of a tunnel without taking them; ends by the handshake deadline. */
export async function readOpening(client: ClientConnection): Promise<Opening> {
  client.allow(client.plane.limits.handshakeMs)
  const { reader } = client
  while (reader.size === 0 && !reader.ended) await reader.more()
  if (reader.size === 0) return { kind: 'nothing' }
  const isTls = reader.peek()[0] === tlsHandshake
  const opening = isTls ? await readHello(client) : await readLine(client)
  client.deadline = Infinity
  return opening
}

async function readHello(client: ClientConnection): Promise<Opening> {
  const { reader } = client
  const hello = createClientHelloReader()
  let seen = 0
  for (;;) {
    if (reader.size > seen) {
      const bytes = reader.peek()
      const result = hello.push(bytes.subarray(seen))
      seen = bytes.length
      if (result === 'not_tls') return { kind: 'other' }
      if (result === 'malformed') throw new Refusal('non_tls', { detail: 'the ClientHello is malformed' })
      if (result !== 'need_more') return { kind: 'tls', hello: result }
    }
    if (reader.ended) return { kind: 'nothing' }
    await reader.more()
  }
}

async function readLine(client: ClientConnection): Promise<Opening> {
  const { reader } = client
  for (;;) {
    const text = reader.peek().toString('latin1', 0, 24)
    if (requestLine.test(text)) return { kind: 'http' }
    if (text.length >= 21 || !/^[A-Z]*$/.test(text) || reader.ended) return { kind: 'other' }
    await reader.more()
  }
}

/** Gives the socket back with everything that was looked at, to be read by the next owner. */
export function handBack(client: ClientConnection): void {
  const rest = client.reader.detach()
  if (rest.length > 0) client.socket.unshift(rest)
  client.plane.deadlines.delete(client)
}
