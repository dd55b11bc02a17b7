import type { Socket } from 'node:net'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { startOrigin, type Origin, type OriginOptions } from '../helpers/origin.ts'
import { rawClient } from '../helpers/raw-client.ts'
import { eventually } from './bench.ts'
import { converses, upgradeCases, type UpgradeBench } from './upgrade-cases.ts'
import { startUpgradeRelay, type UpgradeRelay } from './upgrade-relay.ts'

describe('the relay contract for upgrades', () => {
  const script: { -readonly [key in keyof OriginOptions]: OriginOptions[key] } = {}
  let origin: Origin
  let relay: UpgradeRelay
  let bench: UpgradeBench

  beforeAll(async () => {
    origin = await startOrigin(script)
    relay = await startUpgradeRelay(origin.port)
    bench = {
      port: relay.port,
      origin,
      open: relay.open,
      script(options) {
        script.onRequest = options.onRequest
        script.onConnection = options.onConnection
      },
    }
  })
  afterEach(async () => {
    for (const socket of origin.sockets) socket.destroy()
    await eventually(() => origin.sockets.size === 0, 'the origin lets go of its connections')
    origin.received.length = 0
  })
  afterAll(async () => {
    await relay.stop()
    await origin.stop()
  })

  it.each(upgradeCases)('$name', (row) => row.run(bench))

  it('carries a conversation between a real client and a real server', () => converses(startUpgradeRelay))

  it('takes no switch to a protocol that was not asked for', async () => {
    bench.script({
      onRequest: ({ socket }) =>
        void socket.write(
          'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n',
        ),
    })
    const client = await rawClient(relay.port)
    client.write('GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n')
    expect(await client.closed()).toBe('')
  })

  it('passes the end of one direction on while the other still flows', async () => {
    bench.script({
      onRequest: ({ socket }) => {
        socket.allowHalfOpen = true
        socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n')
        socket.once('end', () => setTimeout(() => socket.end('last words'), 600))
      },
    })
    const client = await rawClient(relay.port)
    client.write('GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n')
    await client.read((text) => text.includes('\r\n\r\n'))
    client.end()
    expect(await client.closed()).toMatch(/\r\n\r\nlast words$/)
  })

  it('lets go of an upstream that does not take the rest when the client is gone', async () => {
    bench.script({
      onRequest: ({ socket }) => {
        socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n')
        socket.pause()
        // What is written to the client is how the relay, which reads no further, learns that it left.
        const timer = setInterval(() => socket.write('tick'), 20)
        socket.on('close', () => clearInterval(timer))
      },
    })
    const client = await rawClient(relay.port)
    client.write('GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n')
    await client.read((text) => text.includes('\r\n\r\n'))
    await fill(client.socket)
    client.socket.resetAndDestroy()
    await eventually(() => origin.sockets.size === 0, 'the upstream connection is closed')
  })
})

/** Writes until the other side takes no more for a while. */
async function fill(socket: Socket): Promise<void> {
  const block = Buffer.alloc(256 * 1024)
  for (;;) {
    if (socket.write(block)) continue
    const isDrained = await Promise.race([
      new Promise((resolve) => socket.once('drain', () => resolve(true))),
      new Promise((resolve) => setTimeout(() => resolve(false), 300)),
    ])
    if (isDrained === false) return
  }
}
