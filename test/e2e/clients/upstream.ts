import { createServer as createPlainServer } from 'node:http'
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import type { TestCa } from '../../helpers/test-ca.ts'

/** One request as the upstream received it. */
export interface Received {
  readonly method: string
  /** Path and query. */
  readonly target: string
  readonly headers: IncomingHttpHeaders
  readonly body: Buffer
}

export type Handler = (received: Received, response: ServerResponse) => void

/** A service that real clients talk to: it reads every request whole, keeps it, and answers by a function. */
export interface Upstream {
  readonly port: number
  /** Oldest first. */
  readonly received: Received[]
  stop(): Promise<void>
}

/** Listens on the loopback; with `tls` under a certificate of that CA for these names. */
export async function startUpstream(
  handler: Handler,
  tls?: { readonly ca: TestCa; readonly names: readonly string[] },
): Promise<Upstream> {
  const received: Received[] = []
  const listener = (request: IncomingMessage, response: ServerResponse): void => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      const { method = '', url: target = '', headers } = request
      const one = { method, target, headers, body: Buffer.concat(chunks) }
      received.push(one)
      handler(one, response)
    })
  }
  const leaf = tls === undefined ? undefined : await tls.ca.issue({ names: tls.names })
  const server =
    leaf === undefined
      ? createPlainServer(listener)
      : createServer({ cert: leaf.cert, key: leaf.key }, listener)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    port: (server.address() as AddressInfo).port,
    received,
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}

/** Sends content with its length. */
export function send(response: ServerResponse, type: string, content: string | Buffer): void {
  response.writeHead(200, { 'content-type': type, 'content-length': Buffer.byteLength(content) }).end(content)
}

/** The credentials that a Basic `Authorization` carries, or an empty text. */
export function basicOf(headers: IncomingHttpHeaders): string {
  const token = /^Basic (\S+)$/.exec(headers.authorization ?? '')?.[1]
  return token === undefined ? '' : Buffer.from(token, 'base64').toString('utf8')
}
