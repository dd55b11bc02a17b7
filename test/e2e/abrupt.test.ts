import { connect } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startTestBroker, type TestBroker } from '../helpers/broker.ts'
import { startOrigin, type Origin } from '../helpers/origin.ts'
import type { RawResponse } from '../helpers/raw-client.ts'

const tunnels = 8

describe('connections that end in the middle', () => {
  let broker: TestBroker
  let resetting: Origin
  let plain: Origin

  beforeAll(async () => {
    resetting = await startOrigin({
      onConnection: (socket) => void setTimeout(() => socket.resetAndDestroy(), 30),
    })
    plain = await startOrigin()
    broker = await startTestBroker({
      yaml: `
listen: { proxy: [127.0.0.1:0, "https://127.0.0.1:0"], admin: 127.0.0.1:0 }
resolver: { hosts: { splice.good.test: [127.0.0.1], plain.good.test: [127.0.0.1] } }
sandboxes:
  s1:
    identity: [{ token: generated }]
    limits: { tunnels: ${tunnels} }
    allow:
      - { host: splice.good.test, ports: [${resetting.port}], addresses: [127.0.0.0/8], tls: splice }
      - { host: plain.good.test, scheme: http, ports: [${plain.port}], addresses: [127.0.0.0/8] }
`,
    })
  })
  afterAll(async () => {
    await broker.stop()
    await resetting.stop()
    await plain.stop()
  })

  const connectHead = async (authority: string): Promise<string> =>
    `CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n${await broker.auth('s1')}\r\n`

  it('an upstream of a spliced tunnel that resets before the ClientHello ends that tunnel alone', async () => {
    const client = await broker.client()
    client.write(await connectHead(`splice.good.test:${resetting.port}`))
    expect(await client.response()).toMatchObject({ status: 200 })
    await client.closed(3_000)
    const [event] = (await broker.events((all) => all.some(({ end }) => end === 'upstream_failed'))).filter(
      ({ host }) => host === 'splice.good.test',
    )
    expect(event).toMatchObject({ kind: 'exchange', verdict: 'allow', end: 'upstream_failed' })
  })

  it('a client that resets before the handshake of a TLS listener ends its connection alone', async () => {
    const tls = broker.app.listeners.find(({ address }) => address.startsWith('https'))
    const port = Number(tls?.address.split(':').at(-1))
    await new Promise<void>((resolve) => {
      const socket = connect(port, '127.0.0.1', () => {
        socket.resetAndDestroy()
        setTimeout(resolve, 500)
      })
    })
    const client = await broker.client()
    client.write('GET http://x.test/ HTTP/1.1\r\nHost: x.test\r\n\r\n')
    expect(await client.response()).toMatchObject({ status: 407 })
    client.destroy()
  })

  it('a client that resets with its first request in a cleartext tunnel gives the place of the tunnel back', async () => {
    const authority = `plain.good.test:${plain.port}`
    const bytes = `${await connectHead(authority)}GET / HTTP/1.1\r\nHost: ${authority}\r\n\r\n`
    for (let round = 0; round < 2 * tunnels; round++) {
      await new Promise<void>((resolve) => {
        const socket = connect(broker.port, '127.0.0.1', () => {
          socket.write(bytes)
          socket.resetAndDestroy()
        })
        socket.on('error', () => undefined)
        socket.on('close', () => setTimeout(resolve, 5))
      })
    }
    const open = async (): Promise<RawResponse> => {
      const client = await broker.client()
      client.write(await connectHead(authority))
      const response = await client.response()
      client.destroy()
      return response
    }
    await new Promise((resolve) => setTimeout(resolve, 300))
    expect(await open()).toMatchObject({ status: 200 })
  })
})
