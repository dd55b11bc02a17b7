import { createProxyServer } from 'http-proxy'
import { createServer, type Server } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startBench, type Bench, type Relay } from './bench.ts'
import { plainCases } from './cases.ts'
import { upgradeCases } from './upgrade-cases.ts'

/**
 * The contract run against another relay, for comparison: `OCTROI_RELAY_PEER=http-proxy`. The rows it is known to fail
 * are written down here, so that a new version that does better or worse is seen.
 */
const peer = process.env['OCTROI_RELAY_PEER']

const knownFailures = [
  ...['response-trailers', 'request-trailers', 'expect-100', 'expect-417', 'early-hints', 'sse-head'],
  ...['request-hop-by-hop', 'response-hop-by-hop', 'duplicates'],
]

/** Rows whose outcome differs from run to run there. */
const unsteady = ['early-413-close', 'ws-death']

/** The library as its own page shows it, on `node:http`, with nothing added. */
async function startPeer(originPort: number): Promise<Relay & { open: () => number }> {
  const target = `http://127.0.0.1:${originPort}`
  const proxy = createProxyServer()
  const sockets = new Set<Socket>()
  const server: Server = createServer((request, response) => {
    request.url = (request.url ?? '/').replace(/^http:\/\/[^/]+/, '')
    const isDead = request.headers.host?.endsWith(`:${originPort}`) === false
    proxy.web(request, response, { target: isDead ? 'http://127.0.0.1:9' : target }).catch(() => {
      if (!response.headersSent) response.writeHead(502).end()
    })
  })
  server.on('upgrade', (request, socket, head) => {
    proxy.ws(request, socket as Socket, { target }, head).catch(() => socket.destroy())
  })
  server.on('connection', (socket: Socket) => {
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket))
  })
  proxy.on('error', (_error, _request, response) => {
    if (response !== undefined && 'writeHead' in response && !response.headersSent)
      response.writeHead(502).end()
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    port: (server.address() as AddressInfo).port,
    credentials: 'Proxy-Authorization: Basic czE6dG9rZW4=\r\n',
    open: () => sockets.size,
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        for (const socket of sockets) socket.destroy()
      }),
  }
}

describe.skipIf(peer === undefined)(`the relay contract of ${peer ?? 'a peer'}`, () => {
  let bench: Bench
  let relay: Awaited<ReturnType<typeof startPeer>>

  beforeAll(async () => {
    if (peer !== 'http-proxy') throw new TypeError('OCTROI_RELAY_PEER knows `http-proxy` only')
    bench = await startBench(async ({ origin }) => (relay = await startPeer(origin)))
  })
  afterAll(() => bench.stop())

  it('fails the rows that are written down, and no others', { timeout: 120_000 }, async () => {
    const failed: string[] = []
    const rows = [
      ...plainCases.map((row) => ({ ...row, run: () => row.run(bench) })),
      ...upgradeCases.map((row) => ({
        ...row,
        run: () =>
          row.run({ port: relay.port, origin: bench.origin, open: relay.open, script: bench.script }),
      })),
    ]
    const report: string[] = []
    for (const { key, name, run } of rows) {
      const problem = await run().then(() => undefined, String)
      if (problem !== undefined) failed.push(key)
      report.push(problem === undefined ? `ok    ${name}` : `FAIL  ${name}: ${problem.slice(0, 120)}`)
      await bench.reset()
    }
    process.stderr.write(`${report.join('\n')}\n${rows.length - failed.length} of ${rows.length}\n`)
    expect(failed.filter((key) => !unsteady.includes(key))).toEqual(knownFailures)
  })
})
