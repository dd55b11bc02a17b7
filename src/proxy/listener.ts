import { chmod, rm } from 'node:fs/promises'
import { createServer, type Server, type Socket } from 'node:net'
import { TLSSocket } from 'node:tls'
import { OperatorError } from '../core/errors.ts'
import type { ConnectionFacts } from '../identity/model.ts'
import { ClientConnection } from './connection.ts'
import { guardDestroy } from '../net/tls-socket.ts'
import { serverHandshake } from './handshake.ts'
import type { DataPlane } from './plane.ts'
import { serve } from './serve.ts'

/** Where to listen; with `identity`, whoever comes in here has proved something by that. */
export type ListenAt = { readonly identity?: boolean | undefined } & (
  | { readonly kind: 'tcp'; readonly host: string; readonly port: number; readonly tls: boolean }
  | {
      readonly kind: 'unix'
      readonly path: string
      /** Id of the sandbox that every connection on this socket belongs to, */
      readonly openedFor?: string | undefined
      /** and of the run. */
      readonly run?: string | undefined
    }
)

/** One open listening socket of the data plane and its connections. */
export interface Listener {
  /** As bound: the port is never 0. */
  readonly at: { readonly host: string; readonly port: number } | { readonly path: string }
  readonly connections: number
  /** No new connections; resolves when the listening socket is closed. Open connections go on. */
  close(): Promise<void>
  /** Ends every open connection. */
  destroy(): void
}

/** Opens one listener of the data plane. Throws an `OperatorError` that names who holds a taken port. */
export async function listen(
  plane: DataPlane,
  at: ListenAt,
  holderOf: HolderOf = () => undefined,
): Promise<Listener> {
  const sockets = new Set<Socket>()
  const accept = (socket: Socket): void => {
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket))
    // A reset that nobody listens for yet ends the process; who serves the connection learns of it by its close.
    socket.on('error', () => undefined)
    socket.setNoDelay(true)
    start(plane, socket, at).catch((error: unknown) => {
      plane.log.error({ err: error }, 'a connection could not be started')
      socket.destroy()
    })
  }
  const server = tcpServer(accept)
  server.maxConnections = plane.limits.connections
  await bind(server, at, holderOf)
  server.on('error', (err) => plane.log.error({ err }, 'a connection could not be accepted'))
  const address = server.address()
  return {
    at:
      typeof address === 'object' && address !== null
        ? { host: address.address, port: address.port }
        : { path: pathOf(at) },
    get connections() {
      return sockets.size
    },
    close: () => new Promise((resolve) => server.close(() => resolve())),
    destroy: () => {
      for (const socket of sockets) socket.destroy()
    },
  }
}

async function start(plane: DataPlane, socket: Socket, at: ListenAt): Promise<void> {
  const stream = at.kind === 'tcp' && at.tls ? await secured(plane, socket, at.host) : socket
  if (stream !== undefined) await serve(new ClientConnection(plane, stream, { facts: factsOf(stream, at) }))
}

const pathOf = (at: ListenAt): string => (at.kind === 'unix' ? at.path : '')

// Half-open: a client may end its side after the request and still read the answer.
const tcpServer = (accept: (socket: Socket) => void): Server =>
  createServer({ allowHalfOpen: true, keepAlive: true, keepAliveInitialDelay: 60_000 }, accept)

/**
 * TLS between client and broker. The leaf is for the listener's own host, or for the name the client asks for when that
 * is one of the broker's own (`self:`); never for any other, or the listener would mint for denied hosts.
 */
async function secured(plane: DataPlane, socket: Socket, host: string): Promise<TLSSocket | undefined> {
  const own = host === '0.0.0.0' || host === '::' ? 'localhost' : host
  const tls = new TLSSocket(socket, {
    isServer: true,
    secureContext: await plane.leaves.contextFor(own),
    ALPNProtocols: ['http/1.1'],
    requestCert: true,
    // A certificate is a proof only by its fingerprint; that of a stranger proves nothing and ends nothing.
    rejectUnauthorized: false,
    SNICallback: (name, done) => {
      const known = plane.snapshot().selfNames.includes(name.toLowerCase()) ? name.toLowerCase() : own
      plane.leaves.contextFor(known).then(
        (context) => done(null, context),
        (error: unknown) => done(error instanceof Error ? error : new TypeError('no leaf')),
      )
    },
  })
  guardDestroy(tls, socket)
  const problem = await serverHandshake(tls, plane)
  if (problem === undefined) return tls
  plane.log.debug({ problem }, 'a TLS handshake on the proxy listener failed')
  socket.destroy()
  return undefined
}

function factsOf(socket: Socket | TLSSocket, at: ListenAt): ConnectionFacts {
  const certificate = 'getPeerX509Certificate' in socket ? socket.getPeerX509Certificate() : undefined
  return {
    // A listener for everybody proves nothing, whatever a later configuration says of its port or path.
    socketPath: at.kind === 'unix' && at.identity === true ? at.path : undefined,
    port: at.kind === 'tcp' && at.identity === true ? socket.localPort : undefined,
    remoteAddress: socket.remoteAddress,
    clientCertificate: certificate?.fingerprint256.replaceAll(':', '').toLowerCase(),
    openedFor: at.kind === 'unix' ? at.openedFor : undefined,
    run: at.kind === 'unix' ? at.run : undefined,
  }
}

type HolderOf = (port: number) => string | undefined

async function bind(server: Server, at: ListenAt, holderOf: HolderOf): Promise<void> {
  if (at.kind === 'unix') await rm(at.path, { force: true })
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => reject(bindError(error, at, holderOf)))
    if (at.kind === 'tcp') server.listen(at.port, at.host, resolve)
    else {
      // The socket is bound within this call: by the umask it is the owner's alone from its first moment on.
      const umask = process.umask(0o177)
      server.listen(at.path, resolve)
      process.umask(umask)
    }
  })
  server.removeAllListeners('error')
  if (at.kind === 'unix') await chmod(at.path, 0o600)
}

function bindError(error: NodeJS.ErrnoException, at: ListenAt, holderOf: HolderOf): OperatorError {
  const where = at.kind === 'unix' ? at.path : `${at.host}:${at.port}`
  if (error.code !== 'EADDRINUSE' || at.kind === 'unix') {
    return new OperatorError(
      `cannot listen on ${where} (${error.code ?? error.message}); change \`listen.proxy\``,
      {
        cause: error,
      },
    )
  }
  const holder = holderOf(at.port)
  const by = holder === undefined ? '' : ` by ${holder}`
  return new OperatorError(`${where} is taken${by}; stop it or change \`listen.proxy\``, { cause: error })
}
