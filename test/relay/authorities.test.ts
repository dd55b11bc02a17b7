import { createServer } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startTestBroker, type TestBroker } from '../helpers/broker.ts'
import { startOrigin, type Origin } from '../helpers/origin.ts'

const hasIpv6 = await new Promise<boolean>((resolve) => {
  const server = createServer()
  server.once('error', () => resolve(false))
  server.listen(0, '::1', () => server.close(() => resolve(true)))
})

describe('how a destination may be written', () => {
  let origin: Origin
  let origin6: Origin | undefined
  let broker: TestBroker
  let auth: string

  beforeAll(async () => {
    origin = await startOrigin()
    origin6 = hasIpv6 ? await startOrigin({ host: '::1' }) : undefined
    broker = await startTestBroker({
      yaml: `
resolver: { hosts: { xn--bcher-kva.test: [127.0.0.1] } }
sandboxes:
  s1:
    identity: [{ token: generated }]
    allow:
      - { host: xn--bcher-kva.test, scheme: http, ports: [${origin.port}], addresses: [127.0.0.0/8] }
      - { address: "::1/128", scheme: http, ports: [${origin6?.port ?? 1}] }
      - { address: 127.0.0.1/32, scheme: http, ports: [${origin.port}] }
`,
    })
    auth = await broker.auth('s1')
  })

  afterAll(async () => {
    await broker.stop()
    await origin.stop()
    await origin6?.stop()
  })

  const ask = async (authority: string, host = authority) => {
    const client = await broker.client()
    client.write(`GET http://${authority}/a HTTP/1.1\r\nHost: ${host}\r\n${auth}\r\n`)
    return client.response()
  }

  it.skipIf(!hasIpv6)(
    'as an IPv6 literal, in an URL and in a CONNECT, in any spelling of the address',
    async () => {
      const port = origin6?.port ?? 0
      const head = `GET /a HTTP/1.1\r\nHost: [::1]:${port}\r\n\r\n`
      expect(await ask(`[::1]:${port}`)).toMatchObject({ status: 200 })
      expect(await ask(`[0:0:0::0001]:${port}`)).toMatchObject({ status: 200 })
      expect(origin6?.received).toEqual([head + head])
      const client = await broker.client()
      client.write(`CONNECT [::1]:${port} HTTP/1.1\r\nHost: [::1]:${port}\r\n${auth}\r\n`)
      expect(await client.response()).toMatchObject({ status: 200 })
      client.write(head)
      expect(await client.response()).toMatchObject({ status: 200, body: 'ok' })
    },
  )

  it('as an IPv4 literal', async () => {
    expect(await ask(`127.0.0.1:${origin.port}`)).toMatchObject({ status: 200 })
    expect(origin.received.at(-1)).toContain(`\r\nHost: 127.0.0.1:${origin.port}\r\n`)
  })

  it('as the xn-- form of an international name, in any case', async () => {
    const host = `xn--bcher-kva.test:${origin.port}`
    expect(await ask(host)).toMatchObject({ status: 200 })
    expect(await ask(`XN--Bcher-KVA.test.:${origin.port}`, host)).toMatchObject({ status: 200 })
    expect(origin.received.at(-1)).toContain(`\r\nHost: ${host}\r\n`)
  })

  it('but not as an international name in its own letters', async () => {
    const client = await broker.client()
    client.write(
      Buffer.from(`GET http://bücher.test:${origin.port}/ HTTP/1.1\r\nHost: bücher.test\r\n${auth}\r\n`),
    )
    expect(await client.response()).toMatchObject({ status: 400 })
  })
})
