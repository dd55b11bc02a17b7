import { connect } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startTestBroker, type TestBroker } from '../helpers/broker.ts'
import { startOrigin, type Origin } from '../helpers/origin.ts'

describe('connections that end in the middle', () => {
  let broker: TestBroker
  let resetting: Origin

  beforeAll(async () => {
    resetting = await startOrigin({ onConnection: (socket) => void setTimeout(() => socket.resetAndDestroy(), 30) })
    broker = await startTestBroker({
      yaml: `
listen: { proxy: [127.0.0.1:0, "https://127.0.0.1:0"], admin: 127.0.0.1:0 }
resolver: { hosts: { splice.good.test: [127.0.0.1] } }
sandboxes:
  s1:
    identity: [{ token: generated }]
    allow:
      - { host: splice.good.test, ports: [${resetting.port}], addresses: [127.0.0.0/8], tls: splice }
`,
    })
  })
  afterAll(async () => {
    await broker.stop()
    await resetting.stop()
  })

  it('an upstream of a spliced tunnel that resets before the ClientHello ends that tunnel alone', async () => {
    const client = await broker.client()
    const authority = `splice.good.test:${resetting.port}`
    client.write(`CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n${await broker.auth('s1')}\r\n`)
    expect(await client.response()).toMatchObject({ status: 200 })
    await client.closed(3_000)
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
  })
})
