import { createHash, randomBytes } from 'node:crypto'
import { expect } from 'vitest'
import { WebSocket, WebSocketServer } from 'ws'
import type { Origin, OriginOptions } from '../helpers/origin.ts'
import { rawClient, type RawClient } from '../helpers/raw-client.ts'
import { eventually } from './bench.ts'

/** A relay of upgrades in front of an origin whose behaviour each case sets. */
export interface UpgradeBench {
  readonly port: number
  readonly origin: Origin
  /** Connections of clients that the relay holds. */
  readonly open: () => number
  script(options: OriginOptions): void
}

export interface UpgradeCase {
  readonly key: string
  readonly name: string
  run(bench: UpgradeBench): Promise<void>
}

const key = 'dGhlIHNhbXBsZSBub25jZQ=='
const accept = createHash('sha1').update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest('base64')
const asks =
  'GET /socket?a=b HTTP/1.1\r\nHost: relay.test\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n' +
  `Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${key}\r\nSec-WebSocket-Protocol: chat\r\n\r\n`
const switches =
  'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n' +
  `Sec-WebSocket-Accept: ${accept}\r\nSec-WebSocket-Protocol: chat\r\n\r\n`

/** Switches, and then gives back what it gets. */
const echoing: OriginOptions = {
  onRequest: ({ socket }) => {
    socket.removeAllListeners('data')
    socket.on('data', (data: Buffer) => void socket.write(data))
    socket.write(switches)
  },
}

async function switched(bench: UpgradeBench): Promise<RawClient> {
  const client = await rawClient(bench.port)
  client.write(asks)
  await client.read((text) => text.includes('\r\n\r\n'))
  return client
}

const closesUpstream = (bench: UpgradeBench): Promise<void> =>
  eventually(() => bench.origin.sockets.size === 0, 'the upstream connection is closed')

/** The four rows of the relay contract about WebSocket. */
export const upgradeCases: readonly UpgradeCase[] = [
  {
    key: 'ws-echo',
    name: 'relays an upgraded connection with the early bytes of both sides',
    async run(bench) {
      bench.script({
        onConnection: (socket) => {
          let text = ''
          let isSwitched = false
          socket.on('data', (data: Buffer) => {
            text += data.toString('latin1')
            if (text.endsWith('\r\n\r\n') || text.endsWith('early from client')) {
              if (!isSwitched) socket.write(`${switches}early from upstream`)
              isSwitched = true
            }
            if (text.endsWith('early from clientlater')) socket.write('and later')
          })
        },
      })
      const client = await rawClient(bench.port)
      client.write(`${asks}early from client`)
      const text = await client.read((all) => all.endsWith('early from upstream'))
      expect(text).toMatch(/^HTTP\/1\.1 101 Switching Protocols\r\n/)
      expect(text).toMatch(/\r\nUpgrade: websocket\r\n/i)
      expect(text).toMatch(/\r\nConnection: Upgrade\r\n/i)
      expect(text.toLowerCase()).toContain(`\r\nsec-websocket-accept: ${accept.toLowerCase()}\r\n`)
      client.write('later')
      await client.read((all) => all.endsWith('and later'))
      const [received = ''] = bench.origin.received
      expect(received).toMatch(/^GET \/socket\?a=b HTTP\/1\.1\r\n/)
      expect(received).toMatch(/\r\nConnection: (keep-alive, )?Upgrade\r\n/i)
      expect(received).toMatch(/\r\nUpgrade: websocket\r\n/i)
      expect(received.toLowerCase()).toContain(`\r\nsec-websocket-key: ${key.toLowerCase()}\r\n`)
      client.destroy()
      await closesUpstream(bench)
    },
  },
  {
    key: 'ws-refused',
    name: 'brings a refused upgrade to the client with its body',
    async run(bench) {
      bench.script({
        onRequest: ({ socket }) =>
          void socket.write(
            'HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nContent-Length: 12\r\n\r\nwho are you?',
          ),
      })
      const client = await rawClient(bench.port)
      client.write(asks)
      const response = await client.response()
      expect(response).toMatchObject({ status: 401, body: 'who are you?' })
      expect(response.fields['www-authenticate']).toBe('Bearer')
      client.destroy()
    },
  },
  {
    key: 'ws-reset',
    name: 'closes the upgraded upstream connection when the client resets its own',
    async run(bench) {
      bench.script(echoing)
      const client = await switched(bench)
      client.write('ping')
      await client.read((text) => text.endsWith('ping'))
      client.socket.resetAndDestroy()
      await closesUpstream(bench)
    },
  },
  {
    key: 'ws-death',
    name: 'closes the upgraded client connection when the upstream dies',
    async run(bench) {
      for (const isReset of [false, true]) {
        bench.script(echoing)
        const client = await switched(bench)
        client.write('ping')
        await client.read((text) => text.endsWith('ping'))
        for (const socket of bench.origin.sockets) {
          if (isReset) socket.resetAndDestroy()
          else socket.destroy()
        }
        await client.closed()
        client.destroy()
        await eventually(() => bench.open() === 0, 'the relay lets go of the client')
      }
    },
  },
]

/** A real WebSocket client and server: text, binary of a size that fragments, ping and pong, and the closing handshake. */
export async function converses(
  startRelay: (originPort: number) => Promise<{ port: number; stop(): Promise<void> }>,
): Promise<void> {
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1' })
  server.on('connection', (socket) => {
    socket.send('welcome')
    socket.on('message', (data: Buffer, isBinary) => socket.send(data, { binary: isBinary }))
    socket.on('close', (code) => closedWith.push(code))
  })
  const closedWith: number[] = []
  await new Promise((resolve) => server.once('listening', resolve))
  const address = server.address()
  const relay = await startRelay(typeof address === 'object' && address !== null ? address.port : 0)
  const socket = new WebSocket(`ws://127.0.0.1:${relay.port}/chat`)
  const messages: Buffer[] = []
  let pongs = 0
  socket.on('message', (data: Buffer) => messages.push(data))
  socket.on('pong', () => pongs++)
  await new Promise((resolve, reject) => socket.once('open', resolve).once('error', reject))
  const large = randomBytes(3_000_000)
  socket.send('text')
  socket.send(large)
  socket.ping()
  await eventually(() => messages.length === 3 && pongs === 1, 'everything comes back')
  expect(messages[0]?.toString()).toBe('welcome')
  expect(messages[1]?.toString()).toBe('text')
  expect(messages[2]?.equals(large)).toBe(true)
  const closing = new Promise((resolve) => socket.once('close', resolve))
  socket.close(4001, 'done')
  expect(await closing).toBe(4001)
  await eventually(() => closedWith.length > 0, 'the server learns of the end')
  expect(closedWith).toEqual([4001])
  await new Promise((resolve) => server.close(resolve))
  await relay.stop()
}
