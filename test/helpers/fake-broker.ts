import { createServer } from 'node:net'
import type { Socket } from 'node:net'
import { TLSSocket } from 'node:tls'
import type { SecureContext } from 'node:tls'

/** What stands at the other end of a sandbox's socket in tests of the sandbox kit: answers as scripted, relays nothing. */
export interface FakeBroker {
  readonly socketPath: string
  /** First line of every request, inside tunnels too. */
  readonly requests: string[]
  close(): Promise<void>
}

export interface FakeBrokerOptions {
  readonly socketPath: string
  /** Answer to a CONNECT or a plain request that opens no tunnel: status and phrase. */
  answer(line: string): string
  /** TLS context for a tunnel to this host; `undefined` refuses by `answer`. */
  tunnel?(host: string): SecureContext | undefined
  /** Whole response to a request inside a tunnel. */
  inTunnel?(head: string): Buffer | string
}

/** Listens on a unix socket until closed. */
export async function fakeBroker(options: FakeBrokerOptions): Promise<FakeBroker> {
  const requests: string[] = []
  const sockets = new Set<Socket>()
  const server = createServer((client) => {
    sockets.add(client)
    client.on('error', () => undefined)
    client.once('close', () => sockets.delete(client))
    onHead(client, (head) => {
      const line = head.split('\r\n')[0] ?? ''
      requests.push(line)
      const host = /^CONNECT ([^ ]+):\d+ /.exec(line)?.[1]
      const context = host === undefined ? undefined : options.tunnel?.(host)
      if (context === undefined) {
        client.end(`HTTP/1.1 ${options.answer(line)}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n`)
        return
      }
      client.write('HTTP/1.1 200 OK\r\n\r\n')
      const tls = new TLSSocket(client, { isServer: true, secureContext: context })
      tls.on('error', () => undefined)
      onHead(tls, (inner) => {
        requests.push(inner.split('\r\n')[0] ?? '')
        tls.end(options.inTunnel?.(inner) ?? '')
      })
    })
  })
  await new Promise<void>((resolve) => server.listen(options.socketPath, resolve))
  return {
    socketPath: options.socketPath,
    requests,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        for (const socket of sockets) socket.destroy()
      }),
  }
}

function onHead(socket: Socket, then: (head: string) => void): void {
  let text = ''
  const read = (chunk: Buffer) => {
    text += chunk.toString('latin1')
    if (!text.includes('\r\n\r\n')) return
    socket.off('data', read)
    then(text)
  }
  socket.on('data', read)
}
