import type { FastifyInstance } from 'fastify'
import { OperatorError } from '../core/errors.ts'
import { createThrottle } from '../identity/throttle.ts'
import { createAdminApp } from './app.ts'
import { createBearer, operatorToken } from './auth.ts'
import type { AdminDeps } from './deps.ts'
import { hostsOf } from './origin.ts'
import { clearOwnerSocket, closeToOthers } from './owner-socket.ts'

/** Where the admin API listens. */
export interface AdminServerOptions {
  readonly stateFolder: string
  /** IP literal and port of the TCP listener; port `0` takes any free one. */
  readonly listen: { readonly host: string; readonly port: number }
  /** Names the process that holds a taken port, when it can be told. */
  readonly holderOf?: (port: number) => string | undefined
}

/** The running admin API. */
export interface AdminServer {
  readonly host: string
  readonly port: number
  readonly socketPath: string
  /** Ends both listeners and every connection. */
  stop(): Promise<void>
}

/** `admin.sock` of the running admin API. */
export interface OwnerSocket {
  readonly socketPath: string
  /** Ends the listener and every connection. */
  stop(): Promise<void>
}

/** Opens the owner's door alone: `admin.sock` in the state folder. */
export async function startOwnerSocket(deps: AdminDeps, stateFolder: string): Promise<OwnerSocket> {
  const app = createAdminApp(deps, { kind: 'socket' })
  const socketPath = await clearOwnerSocket(stateFolder)
  await app.listen({ path: socketPath })
  closeToOthers(socketPath)
  return { socketPath, stop: () => app.close() }
}

/** Opens both doors: `admin.sock` in the state folder, and TCP with the operator token. */
export async function startAdminServer(deps: AdminDeps, options: AdminServerOptions): Promise<AdminServer> {
  const { stateFolder, listen } = options
  let hosts: ReadonlySet<string> = new Set()
  const seed = Buffer.from(deps.random(4)).readUInt32LE()
  const throttle = createThrottle(deps.clock, seed)
  const bearer = createBearer(operatorToken(stateFolder, deps.random), throttle)
  const byTcp = createAdminApp(deps, { kind: 'tcp', hosts: () => hosts, bearer })
  const owner = await startOwnerSocket(deps, stateFolder)
  const stop = async (): Promise<void> => void (await Promise.all([owner.stop(), byTcp.close()]))
  try {
    const port = await listenTcp(byTcp, options)
    hosts = hostsOf(listen.host, port)
    return { host: listen.host, port, socketPath: owner.socketPath, stop }
  } catch (error) {
    await stop()
    throw error
  }
}

async function listenTcp(app: FastifyInstance, options: AdminServerOptions): Promise<number> {
  const { host, port } = options.listen
  try {
    await app.listen({ host, port })
  } catch (cause) {
    throw new OperatorError(listenProblem(options, cause), { cause })
  }
  const address = app.server.address()
  if (address === null || typeof address === 'string') throw new TypeError('a TCP listener has an address')
  return address.port
}

function listenProblem({ listen: { host, port }, holderOf }: AdminServerOptions, cause: unknown): string {
  const where = `${host.includes(':') ? `[${host}]` : host}:${String(port)}`
  const code = cause instanceof Error && 'code' in cause ? String(cause.code) : 'unknown error'
  if (code !== 'EADDRINUSE')
    return `the admin API cannot listen on ${where} (${code}); change \`listen.admin\``
  const holder = holderOf?.(port)
  return `${where} is taken${holder === undefined ? '' : ` by ${holder}`}; stop it or change \`listen.admin\``
}
