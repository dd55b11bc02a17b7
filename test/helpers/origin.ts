import { createServer, type AddressInfo, type Server, type Socket } from 'node:net'
import { createServer as createTlsServer } from 'node:tls'

/** An upstream that answers in raw bytes and keeps every byte it received. */
export interface Origin {
  readonly port: number
  /** Bytes received, one text (latin1) for each connection, in order of arrival. */
  readonly received: string[]
  readonly sockets: ReadonlySet<Socket>
  /** Connections so far. */
  readonly connections: number
  stop(): Promise<void>
}

export type OnRequest = (request: { head: string; body: string; socket: Socket; index: number }) => void

export interface OriginOptions {
  /** Address to listen on; default 127.0.0.1. */
  readonly host?: string
  readonly tls?: { readonly cert: string; readonly key: string }
  /** Called with each whole request (head and declared body) as it arrives. */
  readonly onRequest?: OnRequest | undefined
  /** Takes the connection over; `onRequest` is not called. */
  readonly onConnection?: ((socket: Socket) => void) | undefined
}

/** An answer in full, with a length. */
export const ok = (body: string, fields: readonly string[] = []): string =>
  `HTTP/1.1 200 OK\r\n${fields.map((field) => `${field}\r\n`).join('')}Content-Length: ${Buffer.byteLength(body, 'latin1')}\r\n\r\n${body}`

export async function startOrigin(options: OriginOptions = {}): Promise<Origin> {
  const received: string[] = []
  const sockets = new Set<Socket>()
  const onConnection = (socket: Socket): void => {
    const index = received.push('') - 1
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket))
    socket.on('error', () => undefined)
    if (options.onConnection !== undefined) {
      socket.on('data', (chunk: Buffer) => (received[index] += chunk.toString('latin1')))
      options.onConnection(socket)
      return
    }
    let pending = ''
    let count = 0
    socket.on('data', (chunk: Buffer) => {
      received[index] += chunk.toString('latin1')
      pending += chunk.toString('latin1')
      for (;;) {
        const request = whole(pending)
        if (request === undefined) return
        pending = pending.slice(request.length)
        const onRequest = options.onRequest ?? (({ socket: s }) => s.write(ok('ok')))
        onRequest({ head: request.head, body: request.body, socket, index: count++ })
      }
    })
  }
  const server: Server =
    options.tls === undefined
      ? createServer({ noDelay: true }, onConnection)
      : createTlsServer({ ...options.tls, noDelay: true, ALPNProtocols: ['http/1.1'] }, onConnection)
  server.on('tlsClientError', () => undefined)
  await new Promise<void>((resolve) => server.listen(0, options.host ?? '127.0.0.1', resolve))
  return {
    port: (server.address() as AddressInfo).port,
    received,
    sockets,
    get connections() {
      return received.length
    },
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        for (const socket of sockets) socket.destroy()
      }),
  }
}

function whole(text: string): { head: string; body: string; length: number } | undefined {
  const end = text.indexOf('\r\n\r\n')
  if (end < 0) return undefined
  const head = text.slice(0, end + 4)
  const rest = text.slice(end + 4)
  const length = Number(/^content-length: *([0-9]+)/im.exec(head)?.[1] ?? 0)
  if (/^transfer-encoding: *chunked/im.test(head)) {
    const last = /(^|\r\n)0\r\n([^\r\n]+\r\n)*\r\n/.exec(rest)
    if (last === null) return undefined
    const size = last.index + last[0].length
    return { head, body: rest.slice(0, size), length: head.length + size }
  }
  if (rest.length < length) return undefined
  return { head, body: rest.slice(0, length), length: head.length + length }
}
