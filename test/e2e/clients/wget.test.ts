import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startTestBroker, type TestBroker } from '../../helpers/broker.ts'
import { createTestCa } from '../../helpers/test-ca.ts'
import { eventsOf, missing, openShell, titleOf, type Ran, type Shell } from './kit.ts'
import { send, startUpstream, type Upstream } from './upstream.ts'

const skip = missing('wget')

describe.skipIf(skip !== undefined)(titleOf('wget', skip), () => {
  let broker: TestBroker
  let plain: Upstream
  let secure: Upstream
  let shell: Shell

  beforeAll(async () => {
    const ca = await createTestCa()
    plain = await startUpstream((_, response) => send(response, 'text/plain', 'plain'))
    secure = await startUpstream((_, response) => send(response, 'text/plain', 'secure'), {
      ca,
      names: ['a.good.test'],
    })
    broker = await startTestBroker({
      files: { 'root.pem': ca.cert },
      yaml: `
resolver: { hosts: { a.good.test: [127.0.0.1] } }
trust: { system: false, ca: [root.pem] }
sandboxes:
  s1:
    agent: a1
    allow:
      - { id: plain, host: a.good.test, scheme: http, ports: [${plain.port}], addresses: [127.0.0.0/8] }
      - { id: secure, host: a.good.test, ports: [${secure.port}], methods: [GET], addresses: [127.0.0.0/8] }
`,
    })
    shell = await openShell(broker, 's1')
  })

  afterAll(async () => {
    await shell.stop()
    await broker.stop()
    await plain.stop()
    await secure.stop()
  })

  // Most builds read no variable for their trust: outside of `octroi run` they are told the bundle.
  const wget = (...args: string[]): Promise<Ran> =>
    shell.run('wget', [
      '-nv',
      '-O',
      '-',
      '--tries=1',
      `--ca-certificate=${shell.env['SSL_CERT_FILE']}`,
      ...args,
    ])

  it('reads over http and https', async () => {
    expect(await wget(`http://a.good.test:${plain.port}/p`)).toMatchObject({ code: 0, stdout: 'plain' })
    expect(plain.received[0]?.headers).toMatchObject({ host: `a.good.test:${plain.port}` })
    expect(Object.keys(plain.received[0]?.headers ?? {}).filter((name) => name.startsWith('proxy'))).toEqual(
      [],
    )
    expect(await wget(`https://a.good.test:${secure.port}/s`)).toMatchObject({ code: 0, stdout: 'secure' })
    const [first] = await eventsOf(broker, 'a1', { host: 'a.good.test', path: '/p' })
    expect(first).toMatchObject({ scheme: 'http', verdict: 'allow', rule: 'plain', status: 200 })
    const [second] = await eventsOf(broker, 'a1', { host: 'a.good.test', path: '/s' })
    expect(second).toMatchObject({ scheme: 'https', verdict: 'allow', rule: 'secure', status: 200 })
  })

  it('shows the reason of every refusal', async () => {
    const before = secure.received.length
    const posted = await wget('--post-data=x', `https://a.good.test:${secure.port}/post`)
    expect(posted.code).toBe(8)
    expect(posted.stderr).toMatch(/ERROR 403: octroi method_denied a\.good\.test:\d+ id=/)
    const tunnel = await wget('https://a.evil.test/')
    expect(tunnel.code).not.toBe(0)
    expect(tunnel.stderr).toContain('octroi host_denied a.evil.test:443')
    expect(secure.received).toHaveLength(before)
    const [event] = await eventsOf(broker, 'a1', { host: 'a.evil.test' })
    expect(event).toMatchObject({ method: 'CONNECT', verdict: 'deny', reason: 'host_denied' })
  })
})
