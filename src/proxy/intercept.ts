import type { Duplex } from 'node:stream'
import { TLSSocket } from 'node:tls'
import { Refusal } from '../core/errors.ts'
import type { Scheme } from '../policy/model.ts'
import type { ClientHello } from '../tls/client-hello.ts'
import { lingerClose, send } from './byte-reader.ts'
import { ClientConnection, type TunnelFacts } from './connection.ts'
import { guardDestroy } from '../net/tls-socket.ts'
import { leftHandshake, serverHandshake } from './handshake.ts'
import { handBack, readOpening } from './opening.ts'
import { refusalMessage } from './refusal.ts'
import type { OpenTunnel, Serve } from './tunnel.ts'

/** The answer to a CONNECT that is allowed. */
export const established = 'HTTP/1.1 200 Connection established\r\n\r\n'

/**
 * A terminated tunnel: TLS ends here with a leaf for the CONNECT name, or cleartext HTTP is read where a rule has
 * `scheme: http`. Every request inside goes through an exchange of its own. Resolves to how many there were.
 */
export async function intercept(tunnel: OpenTunnel, serve: Serve): Promise<number> {
  const { client, decision, record } = tunnel
  await send(client.socket, established)
  record.status = 200
  const opening = await readOpening(client)
  if (opening.kind === 'nothing') {
    record.end ??= 'client_gone'
    client.socket.destroy()
    return 0
  }
  if (opening.kind === 'tls' && decision.schemes.includes('https'))
    return terminate(tunnel, opening.hello, serve)
  if (opening.kind === 'http' && decision.schemes.includes('http')) {
    handBack(client)
    const facts = factsOf(tunnel, { scheme: 'http', isMisdirected: false, tlsVersion: undefined })
    return through(tunnel, client.socket, { facts, serve })
  }
  return refuseOpening(tunnel, opening.kind)
}

/** A readable refusal for a client that speaks HTTP, silence for any other; nothing is relayed either way. */
async function refuseOpening({ client, record, destination }: OpenTunnel, kind: string): Promise<number> {
  const refusal = new Refusal('non_tls', {
    detail: `the tunnel began with ${kind === 'tls' ? 'TLS' : 'no TLS'}`,
  })
  record.denied = refusal.reason
  record.status = refusal.status
  record.note = refusal.detail
  if (kind === 'http') {
    await send(
      client.socket,
      refusalMessage(refusal, { id: record.id, destination, isHead: false, keepAlive: false }),
    )
    lingerClose(client.socket)
  } else client.socket.destroy()
  return 0
}

async function terminate(tunnel: OpenTunnel, hello: ClientHello, serve: Serve): Promise<number> {
  const { client, destination, record } = tunnel
  const { plane } = client
  const secureContext = await plane.leaves.contextFor(destination.host)
  handBack(client)
  const socket = new TLSSocket(client.socket as ConstructorParameters<typeof TLSSocket>[0], {
    isServer: true,
    secureContext,
    ALPNProtocols: ['http/1.1'],
    requestCert: false,
  })
  guardDestroy(socket, client.socket)
  const problem = await serverHandshake(socket, plane)
  if (problem !== undefined) {
    if (problem === leftHandshake) record.end ??= 'client_gone'
    else record.denied ??= 'non_tls'
    record.note ??= `TLS handshake with the client failed: ${problem}`
    client.socket.destroy()
    return 0
  }
  record.tls = { mode: 'terminate', version: socket.getProtocol() ?? '' }
  const facts = factsOf(tunnel, {
    scheme: 'https',
    isMisdirected: hello.serverName !== undefined && hello.serverName !== destination.host,
    tlsVersion: socket.getProtocol() ?? undefined,
  })
  return through(tunnel, socket, { facts, serve })
}

function factsOf(
  { who, destination }: OpenTunnel,
  facts: { scheme: Scheme; isMisdirected: boolean; tlsVersion: string | undefined },
): TunnelFacts {
  return {
    ...facts,
    destination,
    sandboxId: who.sandbox.id,
    sandboxName: who.sandbox.name,
    mayUseHandles: who.mayUseHandles,
    requests: 0,
  }
}

async function through(
  tunnel: OpenTunnel,
  socket: Duplex,
  { facts, serve }: { facts: TunnelFacts; serve: Serve },
): Promise<number> {
  const { client } = tunnel
  const inside = new ClientConnection(client.plane, socket, { facts: client.facts, tunnel: facts })
  await serve(inside)
  await closed(socket)
  return facts.requests
}

function closed(socket: Duplex): Promise<void> {
  if (socket.closed) return Promise.resolve()
  return new Promise((resolve) => socket.once('close', () => resolve()))
}
