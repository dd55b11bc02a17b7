import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startTestBroker, type TestBroker } from '../helpers/broker.ts'
import { ok, startOrigin, type Origin } from '../helpers/origin.ts'
import { createTestCa } from '../helpers/test-ca.ts'

const secret = 'sk_live_9dK2mQ7xR4tV8wZ1bN6c'

describe('one request through the broker', () => {
  let origin: Origin
  let tlsOrigin: Origin
  let broker: TestBroker

  beforeAll(async () => {
    const ca = await createTestCa()
    const { cert, key } = await ca.issue({ names: ['api.good.test', 'echo.good.test'] })
    origin = await startOrigin()
    tlsOrigin = await startOrigin({
      tls: { cert, key },
      onRequest: ({ head, body, socket }) =>
        void socket.write(ok(`${head}${body}`, ['Content-Type: text/plain'])),
    })
    broker = await startTestBroker({
      files: { 'root.pem': ca.cert },
      env: { KEY: secret },
      yaml: `
resolver: { hosts: { plain.good.test: [127.0.0.1], api.good.test: [127.0.0.1], echo.good.test: [127.0.0.1] } }
trust: { system: false, ca: [root.pem] }
credentials: { key: { issuer: static, value: { env: KEY } } }
access:
  api:
    credential: key
    destinations: [{ host: api.good.test, port: ${tlsOrigin.port}, methods: [GET, POST], paths: ["/v1/**"], addresses: [127.0.0.0/8] }]
    slot: { header: authorization, scheme: Bearer }
    env: API_KEY
sandboxes:
  s1:
    agent: a1
    identity: [{ token: generated }]
    access: [api]
    allow:
      - { host: plain.good.test, scheme: http, ports: [${origin.port}], addresses: [127.0.0.0/8] }
      - { host: echo.good.test, ports: [${tlsOrigin.port}], addresses: [127.0.0.0/8] }
`,
    })
  })

  afterAll(async () => {
    await broker.stop()
    await origin.stop()
    await tlsOrigin.stop()
  })

  it('forwards an absolute-form request without the proxy credentials', async () => {
    const client = await broker.client()
    client.write(
      `GET http://plain.good.test:${origin.port}/a?b HTTP/1.1\r\nHost: plain.good.test:${origin.port}\r\n${await broker.auth('s1')}X-A: 1\r\n\r\n`,
    )
    const response = await client.response()
    expect(response).toMatchObject({ status: 200, body: 'ok' })
    expect(origin.received[0]).toBe(
      `GET /a?b HTTP/1.1\r\nHost: plain.good.test:${origin.port}\r\nX-A: 1\r\n\r\n`,
    )
    const [event] = await broker.events((events) => events.length > 0)
    expect(event).toMatchObject({
      kind: 'exchange',
      agent: 'a1',
      verdict: 'allow',
      host: 'plain.good.test',
      path: '/a',
      status: 200,
    })
  })

  it('challenges a request without credentials and keeps the connection', async () => {
    const client = await broker.client()
    client.write(`CONNECT api.good.test:443 HTTP/1.1\r\nHost: api.good.test:443\r\n\r\n`)
    expect(await client.response()).toMatchObject({ status: 407 })
    client.write(`CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n${await broker.auth('s1')}\r\n`)
    const refused = await client.response()
    expect(refused.statusLine).toMatch(/^HTTP\/1\.1 403 octroi host_denied evil\.test:443 id=[0-9A-Z]{26}$/)
  })

  it('swaps the placeholder in its slot and redacts what comes back', async () => {
    const client = await broker.tunnel('s1', `api.good.test:${tlsOrigin.port}`)
    const placeholder = broker.placeholder('s1', 'api')
    client.write(
      `GET /v1/x HTTP/1.1\r\nHost: api.good.test:${tlsOrigin.port}\r\nAuthorization: Bearer ${placeholder}\r\n\r\n`,
    )
    const response = await client.response()
    expect(response.status).toBe(200)
    expect(tlsOrigin.received.at(-1)).toContain(`Authorization: Bearer ${secret}\r\n`)
    expect(response.raw).not.toContain(secret)
    expect(response.body).toContain(`Authorization: Bearer ${placeholder}`)
    const events = await broker.events((all) =>
      all.some((event) => event.access === 'api' && event.status === 200),
    )
    expect(events.at(-1)).toMatchObject({ access: 'api', verdict: 'allow', status: 200, redactions: 1 })
  })
})
