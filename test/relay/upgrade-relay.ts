import { connect, createServer, type Socket } from 'node:net'
import { systemClock } from '../../src/core/clock.ts'
import { emptyBody } from '../../src/proxy/body.ts'
import { ClientConnection, ClientGone } from '../../src/proxy/connection.ts'
import { Deadlines } from '../../src/proxy/deadlines.ts'
import { forward } from '../../src/proxy/forward.ts'
import { forwardedFields, returnedFields, writeHead } from '../../src/proxy/head.ts'
import { defaultLimits } from '../../src/proxy/limits.ts'
import type { DataPlane } from '../../src/proxy/plane.ts'
import { relayUpgraded } from '../../src/proxy/upgrade.ts'
import { Upstream } from '../../src/proxy/upstream-pool.ts'

/** A listening relay of upgrades to one upstream on this machine; origin-form requests. */
export interface UpgradeRelay {
  readonly port: number
  /** Connections of clients that are open. */
  readonly open: () => number
  stop(): Promise<void>
}

/** The parts of the forwarding core that relay an upgrade, with nothing of policy around them. */
export async function startUpgradeRelay(originPort: number): Promise<UpgradeRelay> {
  const deadlines = new Deadlines(systemClock)
  // A connection and a forwarded request touch no more of the data plane than this.
  const plane = { clock: systemClock, limits: { ...defaultLimits, halfCloseMs: 300 }, deadlines } as DataPlane
  const sockets = new Set<Socket>()
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket))
    relayOne(plane, socket, originPort).catch(() => socket.destroy())
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  return {
    port: typeof address === 'object' && address !== null ? address.port : 0,
    open: () => sockets.size,
    stop: () =>
      new Promise((resolve) => {
        deadlines.stop()
        server.close(() => resolve())
        for (const socket of sockets) socket.destroy()
      }),
  }
}

async function relayOne(plane: DataPlane, socket: Socket, originPort: number): Promise<void> {
  const client = new ClientConnection(plane, socket, {
    facts: {
      socketPath: undefined,
      port: undefined,
      remoteAddress: undefined,
      clientCertificate: undefined,
      openedFor: undefined,
    },
  })
  const head = await client.nextHead()
  if (head === undefined) return
  const to = connect({ host: '127.0.0.1', port: originPort, noDelay: true, allowHalfOpen: true })
  const upstream = new Upstream(to, '127.0.0.1', undefined)
  client.onGone(() => upstream.fail(new ClientGone('the client left')))
  const incoming = await forward(
    upstream,
    {
      method: head.method,
      target: head.target,
      fields: [['Host', `origin.test:${originPort}`], ...forwardedFields(head.fields, new Set())],
      framing: { kind: 'none' },
      body: emptyBody,
      isBodyReady: false,
      upgrade: 'websocket',
    },
    {
      limits: plane.limits,
      now: () => systemClock.monotonic(),
      events: { informational: () => undefined, sent: () => undefined },
    },
  )
  if (incoming.head.status === 101) {
    await relayUpgraded(client, upstream, incoming)
    return
  }
  const { status, phrase, fields } = incoming.head
  socket.write(
    writeHead(`HTTP/1.1 ${status} ${phrase}`, [...returnedFields(fields), ['Connection', 'close']]),
    'latin1',
  )
  for (let piece = await incoming.body.next(); piece !== undefined; piece = await incoming.body.next())
    socket.write(piece)
  socket.end()
  to.destroy()
}
