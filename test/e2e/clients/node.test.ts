import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startTestBroker, type TestBroker } from '../../helpers/broker.ts'
import { createTestCa } from '../../helpers/test-ca.ts'
import { eventsOf, expectNowhere, openShell, type Shell } from './kit.ts'
import { send, startUpstream, type Upstream } from './upstream.ts'

const secret = 'sk_live_9Zt4Mq7Bw2Xn5Kv8Lr3Hc6Pd'

/** Each prints status, reason and body of a GET; argv: URL, value of Authorization. */
const programs: Readonly<Record<string, string>> = {
  fetch: `
const [url, authorization] = process.argv.slice(1)
const answer = await fetch(url, { headers: { authorization } })
console.log(answer.status, answer.statusText, await answer.text())
`,
  https: `
import { get } from 'node:https'
const [url, authorization] = process.argv.slice(1)
const answer = await new Promise((resolve, reject) => get(url, { headers: { authorization } }, resolve).on('error', reject))
let text = ''
for await (const chunk of answer) text += chunk
console.log(answer.statusCode, answer.statusMessage, text)
`,
}

describe('Node 24', () => {
  let broker: TestBroker
  let upstream: Upstream
  let plain: Upstream
  let shell: Shell

  beforeAll(async () => {
    const ca = await createTestCa()
    upstream = await startUpstream(
      ({ headers }, response) => send(response, 'text/plain', `you sent ${headers.authorization}`),
      { ca, names: ['api.good.test'] },
    )
    plain = await startUpstream((_, response) => send(response, 'text/plain', 'plain'))
    broker = await startTestBroker({
      files: { 'root.pem': ca.cert },
      env: { KEY: secret },
      yaml: `
resolver: { hosts: { plain.good.test: [127.0.0.1], api.good.test: [127.0.0.1] } }
trust: { system: false, ca: [root.pem] }
credentials: { key: { issuer: static, value: { env: KEY } } }
access:
  api:
    credential: key
    destinations: [{ host: api.good.test, port: ${upstream.port}, paths: ["/v1/**"], addresses: [127.0.0.0/8] }]
    env: API_KEY
sandboxes:
  s1:
    agent: a1
    access: [api]
    allow: [{ id: plain, host: plain.good.test, scheme: http, ports: [${plain.port}], paths: ["/open/**"], addresses: [127.0.0.0/8] }]
`,
    })
    shell = await openShell(broker, 's1')
  })

  afterAll(async () => {
    await shell.stop()
    await broker.stop()
    await upstream.stop()
    await plain.stop()
  })

  for (const [name, program] of Object.entries(programs)) {
    const get = (url: string) =>
      shell.run(process.execPath, [
        '--input-type=module',
        '-e',
        program,
        url,
        `Bearer ${shell.env['API_KEY']}`,
      ])

    it(`${name} sends the placeholder and gets it back`, async () => {
      const ran = await get(`https://api.good.test:${upstream.port}/v1/${name}`)
      expect(ran).toMatchObject({
        code: 0,
        stderr: '',
        stdout: `200 OK you sent Bearer ${shell.env['API_KEY']}\n`,
      })
      expect(upstream.received.at(-1)).toMatchObject({
        target: `/v1/${name}`,
        headers: { authorization: `Bearer ${secret}` },
      })
      const [event] = await eventsOf(broker, 'a1', { host: 'api.good.test', path: `/v1/${name}` })
      expect(event).toMatchObject({
        verdict: 'allow',
        reason: 'access',
        access: 'api',
        status: 200,
        redactions: 1,
      })
      await expectNowhere(broker, secret, [ran])
    })

    it(`${name} is told why a path and a host are refused`, async () => {
      const before = upstream.received.length
      const path = await get(`https://api.good.test:${upstream.port}/v2/${name}`)
      expect(path.stdout).toMatch(
        /^403 octroi path_denied api\.good\.test:\d+ id=[0-9A-Z]{26} \{"type":"urn:octroi:path_denied"/,
      )
      const host = await get(`https://${name}.evil.test/`)
      expect(host.code).not.toBe(0)
      expect(host.stderr).toContain('403')
      expect(upstream.received).toHaveLength(before)
      const [event] = await eventsOf(broker, 'a1', { host: `${name}.evil.test` })
      expect(event).toMatchObject({ method: 'CONNECT', verdict: 'deny', reason: 'host_denied' })
    })
  }

  const run = (program: string) => shell.run(process.execPath, ['--input-type=module', '-e', program])

  it('reads plain http, for which fetch asks for a tunnel too', async () => {
    const at = `http://plain.good.test:${plain.port}`
    const ran = await run(`
      for (const path of ['/open/a', '/shut']) {
        const answer = await fetch('${at}' + path)
        console.log(answer.status, answer.statusText.split(' ').slice(0, 2).join(' '))
      }`)
    expect(ran).toMatchObject({ code: 0, stdout: '200 OK\n403 octroi path_denied\n' })
    expect(plain.received.map(({ target }) => target)).toEqual(['/open/a'])
    const events = await eventsOf(broker, 'a1', { host: 'plain.good.test', count: 2 })
    expect(events).toMatchObject([
      { method: 'GET', scheme: 'http', path: '/open/a', verdict: 'allow', rule: 'plain' },
      { method: 'GET', scheme: 'http', path: '/shut', verdict: 'deny', reason: 'path_denied' },
    ])
  })

  it('reaches no metadata service, and the broker knows that it tried', async () => {
    const ran = await run("await fetch('http://169.254.169.254/latest/meta-data/')")
    expect(ran.code).toBe(1)
    expect(ran.stderr).toContain('403')
    const [event] = await eventsOf(broker, 'a1', { host: '169.254.169.254' })
    expect(event).toMatchObject({ verdict: 'deny', reason: 'metadata_denied', status: 403 })
  })
})
