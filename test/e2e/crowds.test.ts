import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startTestBroker, type TestBroker } from '../helpers/broker.ts'
import { startOrigin, type Origin } from '../helpers/origin.ts'
import type { RawClient, RawResponse } from '../helpers/raw-client.ts'

const most = 6

describe('a sandbox that opens connection after connection', () => {
  let broker: TestBroker
  let plain: Origin

  beforeAll(async () => {
    plain = await startOrigin()
    broker = await startTestBroker({
      limits: { sandboxConnections: most },
      yaml: `
resolver: { hosts: { plain.good.test: [127.0.0.1] } }
templates:
  plain: { allow: [{ host: plain.good.test, scheme: http, ports: [${plain.port}], addresses: [127.0.0.0/8] }] }
sandboxes:
  s1: { template: plain, agent: a1, identity: [{ token: generated }] }
  s2: { template: plain, agent: a2, identity: [{ token: generated }] }
`,
    })
  })
  afterAll(async () => {
    await broker.stop()
    await plain.stop()
  })

  async function ask(sandbox: string, method = 'GET'): Promise<{ client: RawClient; response: RawResponse }> {
    const client = await broker.client()
    const authority = `plain.good.test:${plain.port}`
    const target = method === 'CONNECT' ? authority : `http://${authority}/`
    client.write(`${method} ${target} HTTP/1.1\r\nHost: ${authority}\r\n${await broker.auth(sandbox)}\r\n`)
    return { client, response: await client.response() }
  }

  it('is refused the ones past its share, tunnels included, and takes none from its neighbour', async () => {
    for (let round = 0; round < 2; round++) {
      const open: RawClient[] = []
      for (let n = 0; n < most; n++) {
        const { client, response } = await ask('s1', n % 2 === 0 ? 'GET' : 'CONNECT')
        expect(response.status).toBe(200)
        open.push(client)
      }
      const { client, response } = await ask('s1')
      expect(response.statusLine).toMatch(/^HTTP\/1\.1 429 octroi rate_limited /)
      // It would be one of nobody's, and so one that no limit counts.
      await client.closed(2_000)
      const neighbour = await ask('s2')
      expect(neighbour.response.status).toBe(200)
      for (const one of [...open, neighbour.client]) one.destroy()
      await new Promise((resolve) => setTimeout(resolve, 100))
    }
  })
})
