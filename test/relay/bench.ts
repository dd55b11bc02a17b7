import { createServer } from 'node:net'
import { startTestBroker, type TestBroker, type TestBrokerOptions } from '../helpers/broker.ts'
import { startOrigin, type Origin, type OriginOptions } from '../helpers/origin.ts'
import { rawClient, type RawClient } from '../helpers/raw-client.ts'

/** Something that relays absolute-form requests for `plain.good.test` to an origin on this machine. */
export interface Relay {
  readonly port: number
  /** Field lines that every request needs, each with its CRLF. */
  readonly credentials: string
  stop(): Promise<void>
}

/** One relay, one origin whose behaviour each case sets, and the clients of the case. */
export interface Bench {
  readonly origin: Origin
  /** `host:port` of the origin, and of a port on which nobody listens. */
  readonly authority: string
  readonly deadAuthority: string
  /** Says what the origin does from now on. */
  script(options: OriginOptions): void
  /** A request head to the origin, absolute-form, credentials included; `fields` are lines without CRLF. */
  head(method: string, path: string, fields?: readonly string[]): string
  headTo(authority: string, method: string, path: string, fields?: readonly string[]): string
  client(): Promise<RawClient>
  /** Ends every connection of the case. */
  reset(): Promise<void>
  stop(): Promise<void>
}

export const originHost = 'plain.good.test'

export async function startBench(
  startRelay: (ports: { origin: number; dead: number }) => Promise<Relay>,
): Promise<Bench> {
  // The origin reads its options at each connection and request, so that a case can change them.
  const script: { -readonly [key in keyof OriginOptions]: OriginOptions[key] } = {}
  const origin = await startOrigin(script)
  const dead = await freePort()
  const relay = await startRelay({ origin: origin.port, dead })
  const clients: RawClient[] = []
  const headTo: Bench['headTo'] = (authority, method, path, fields = []) =>
    `${method} http://${authority}${path} HTTP/1.1\r\nHost: ${authority}\r\n${relay.credentials}${fields.map((field) => `${field}\r\n`).join('')}\r\n`
  const authority = `${originHost}:${origin.port}`
  return {
    origin,
    authority,
    deadAuthority: `${originHost}:${dead}`,
    script(options) {
      script.onRequest = options.onRequest
      script.onConnection = options.onConnection
    },
    headTo,
    head: (method, path, fields) => headTo(authority, method, path, fields),
    async client() {
      const client = await rawClient(relay.port)
      clients.push(client)
      return client
    },
    async reset() {
      for (const client of clients.splice(0)) client.destroy()
      for (const socket of origin.sockets) socket.destroy()
      await eventually(() => origin.sockets.size === 0, 'the origin lets go of its connections')
      origin.received.length = 0
      script.onRequest = undefined
      script.onConnection = undefined
    },
    async stop() {
      await relay.stop()
      await origin.stop()
    },
  }
}

/** The product: a whole broker whose policy allows the origin over cleartext HTTP. */
export async function startBrokerBench(
  options: Pick<TestBrokerOptions, 'limits'> = {},
): Promise<Bench & { broker: TestBroker }> {
  let broker: TestBroker | undefined
  const bench = await startBench(async ({ origin, dead }) => {
    broker = await startTestBroker({
      ...options,
      yaml: `
resolver: { hosts: { ${originHost}: [127.0.0.1] } }
templates:
  plain:
    allow: [{ host: ${originHost}, scheme: http, ports: [${origin}, ${dead}], addresses: [127.0.0.0/8] }]
sandboxes:
  s1: { template: plain, agent: a1, identity: [{ token: generated }] }
  s2: { template: plain, agent: a2, identity: [{ token: generated }] }
`,
    })
    return { port: broker.port, credentials: await broker.auth('s1'), stop: broker.stop }
  })
  if (broker === undefined) throw new TypeError('the relay is always started')
  return { ...bench, broker }
}

/** A port on which nobody listens. */
async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  await new Promise((resolve) => server.close(resolve))
  return typeof address === 'object' && address !== null ? address.port : 0
}

export const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

/** Waits until `condition` holds; rejects after `ms` with `what` did not happen. */
export async function eventually(condition: () => boolean, what: string, ms = 4_000): Promise<void> {
  const end = Date.now() + ms
  while (!condition()) {
    if (Date.now() > end) throw new Error(`not within ${ms} ms: ${what}`)
    await pause(5)
  }
}
