import { createHash } from 'node:crypto'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import type { AddressInfo } from 'node:net'

/** A request as a strict parser that shares no code with the broker has read it. */
export interface StrictRequest {
  readonly method: string
  readonly target: string
  /** Names in lower case, sorted, as `name: value`. */
  readonly fields: readonly string[]
  readonly bodySha256: string
}

/** An upstream on Node's own HTTP server, without its lenient switches. */
export interface StrictOrigin {
  readonly port: number
  /** Requests that were whole. */
  readonly requests: StrictRequest[]
  /** Requests whose head was read and whose body was cut. */
  readonly cut: string[]
  /** What its parser refused; `ECONNRESET` for a connection that just ended. */
  readonly errors: string[]
  stop(): Promise<void>
}

export async function startStrictOrigin(tls?: { cert: string; key: string }): Promise<StrictOrigin> {
  const requests: StrictRequest[] = []
  const cut: string[] = []
  const errors: string[] = []
  const onRequest = (request: IncomingMessage, response: ServerResponse): void => {
    const hash = createHash('sha256')
    request.on('data', (chunk: Buffer) => hash.update(chunk))
    request.on('error', () => undefined)
    request.on('close', () => {
      if (!request.complete) cut.push(`${request.method} ${request.url}`)
    })
    request.on('end', () => {
      if (!request.complete) return
      requests.push({
        method: request.method ?? '',
        target: request.url ?? '',
        fields: fieldsOf(request.rawHeaders),
        bodySha256: hash.digest('hex'),
      })
      response.end('ok')
    })
  }
  const options = { insecureHTTPParser: false, keepAliveTimeout: 60_000 }
  const server: Server =
    tls === undefined ? createServer(options, onRequest) : createTlsServer({ ...options, ...tls }, onRequest)
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    errors.push(error.code ?? error.message)
    socket.destroy()
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    port: (server.address() as AddressInfo).port,
    requests,
    cut,
    errors,
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}

function fieldsOf(raw: readonly string[]): string[] {
  const fields: string[] = []
  for (let i = 0; i < raw.length; i += 2) fields.push(`${(raw[i] ?? '').toLowerCase()}: ${raw[i + 1] ?? ''}`)
  return fields.sort()
}
