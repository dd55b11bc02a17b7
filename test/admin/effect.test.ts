import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createRemote } from '../../src/cli/remote.ts'
import type { RemoteBroker } from '../../src/cli/remote.ts'
import { startTestBroker } from '../helpers/broker.ts'
import type { TestBroker } from '../helpers/broker.ts'
import { ok, startOrigin } from '../helpers/origin.ts'
import type { Origin } from '../helpers/origin.ts'
import { basic } from '../helpers/raw-client.ts'
import { createTestCa } from '../helpers/test-ca.ts'

const secret = 'sk_live_9dK2mQ7xR4tV8wZ1bN6c'

describe('what an operator does, as clients feel it', () => {
  let origin: Origin
  let broker: TestBroker
  let remote: RemoteBroker
  let authority = ''

  beforeAll(async () => {
    const ca = await createTestCa()
    const { cert, key } = await ca.issue({ names: ['api.good.test'] })
    origin = await startOrigin({
      tls: { cert, key },
      onRequest: ({ socket }) => void socket.write(ok('fine')),
    })
    authority = `api.good.test:${origin.port}`
    broker = await startTestBroker({
      files: { 'root.pem': ca.cert },
      env: { KEY: secret },
      yaml: `
resolver: { hosts: { api.good.test: [127.0.0.1] } }
trust: { system: false, ca: [root.pem] }
credentials: { key: { issuer: static, value: { env: KEY } } }
access:
  api:
    credential: key
    destinations: [{ host: api.good.test, port: ${origin.port}, methods: [GET], addresses: [127.0.0.0/8] }]
    slot: { header: authorization, scheme: Bearer }
templates:
  coder: { tenant: default, access: [api], max_ttl: 1h }
`,
    })
    remote = createRemote({ stateFolder: broker.stateFolder, configPath: '/c.yaml' })
  })

  afterAll(async () => {
    await broker.stop()
    await origin.stop()
  })

  const request = (placeholder: string) =>
    `GET / HTTP/1.1\r\nHost: ${authority}\r\nAuthorization: Bearer ${placeholder}\r\n\r\n`

  /** Status line of a CONNECT with a password. */
  async function connect(user: string, password: string): Promise<string> {
    const client = await broker.client()
    const login = `Proxy-Authorization: ${basic(user, password)}\r\n`
    client.write(`CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n${login}\r\n`)
    return (await client.response()).statusLine
  }

  it('gives a new sandbox of an old name neither the password nor the placeholder of the old one', async () => {
    const old = await remote.create({ template: 'coder', name: 's1' })
    const placeholder = broker.placeholder('s1', 'api')
    expect(await connect('s1', old.token)).toContain(' 200 ')
    await remote.destroy('s1')
    await remote.create({ template: 'coder', name: 's1' })
    expect(await connect('s1', old.token)).toContain(' 407 ')
    const tunnel = await broker.tunnel('s1', authority)
    tunnel.write(request(placeholder))
    expect((await tunnel.response()).statusLine).toContain('403 octroi handle_unknown')
    expect(broker.placeholder('s1', 'api')).not.toBe(placeholder)
  })

  it('swaps no more on a connection that was open when the handle was revoked', async () => {
    await remote.create({ template: 'coder', name: 's2' })
    const placeholder = broker.placeholder('s2', 'api')
    const tunnel = await broker.tunnel('s2', authority)
    tunnel.write(request(placeholder))
    expect((await tunnel.response()).status).toBe(200)
    const before = origin.received.length
    await remote.revoke({ kind: 'handle', target: placeholder })
    tunnel.write(request(placeholder))
    expect((await tunnel.response()).statusLine).toContain('403 octroi handle_unknown')
    expect(origin.received).toHaveLength(before)
    await remote.grant({ sandbox: 's2', access: 'api' })
    const again = await broker.tunnel('s2', authority)
    again.write(request(broker.placeholder('s2', 'api')))
    expect((await again.response()).status).toBe(200)
  })

  it('refuses a paused sandbox by its name for it, and serves it again after the resume', async () => {
    const { token } = await remote.create({ template: 'coder', name: 's3' })
    await remote.pause('s3')
    expect(await connect('s3', token)).toContain('403 octroi sandbox_paused')
    await remote.resume('s3')
    expect(await connect('s3', token)).toContain(' 200 ')
  })

  it('takes the old password inside the overlap of a rotation only', async () => {
    const { token: old } = await remote.create({ template: 'coder', name: 's4' })
    const { token: fresh } = await remote.rotateToken('s4', 60_000)
    expect(
      [await connect('s4', old), await connect('s4', fresh)].every((line) => line.includes(' 200 ')),
    ).toBe(true)
    const last = await remote.rotateToken('s4', 0)
    expect(await connect('s4', old)).toContain(' 407 ')
    expect(await connect('s4', fresh)).toContain(' 407 ')
    expect(await connect('s4', last.token)).toContain(' 200 ')
  })

  it('takes neither a sandbox password nor a wrong token on the admin port, and is no destination', async () => {
    const { token } = await remote.create({ template: 'coder', name: 's5' })
    const url = `http://127.0.0.1:${broker.adminPort}/v1/sandboxes`
    expect((await fetch(url, { headers: { authorization: `Bearer ${token}` } })).status).toBe(401)
    const client = await broker.client()
    const login = `Proxy-Authorization: ${basic('s5', token)}\r\n`
    const admin = `127.0.0.1:${broker.adminPort}`
    client.write(`CONNECT ${admin} HTTP/1.1\r\nHost: ${admin}\r\n${login}\r\n`)
    expect((await client.response()).statusLine).toMatch(/ 403 octroi (?:self|host_denied) /)
  })
})
