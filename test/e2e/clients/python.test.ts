import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startTestBroker, type TestBroker } from '../../helpers/broker.ts'
import { createTestCa } from '../../helpers/test-ca.ts'
import { printedBy, eventsOf, expectNowhere, openShell, python, titleOf, type Shell } from './kit.ts'
import { send, startUpstream, type Upstream } from './upstream.ts'

const secret = 'sk_live_4Hx9Bq2Nw7Vk5Lz8Rc3Tp6Ym'
const skip = python === undefined ? 'python3 is not installed' : undefined

/** Each prints status, reason and body of a GET; argv: URL, header name, header value. */
const programs: Readonly<Record<string, string>> = {
  urllib: `
import sys, urllib.request, urllib.error
request = urllib.request.Request(sys.argv[1], headers={sys.argv[2]: sys.argv[3]})
try:
    answer = urllib.request.urlopen(request)
except urllib.error.HTTPError as error:
    answer = error
print(answer.status, answer.reason, answer.read().decode())
`,
  requests: `
import sys, requests
answer = requests.get(sys.argv[1], headers={sys.argv[2]: sys.argv[3]})
print(answer.status_code, answer.reason, answer.text)
`,
  httpx: `
import sys, httpx
answer = httpx.get(sys.argv[1], headers={sys.argv[2]: sys.argv[3]})
print(answer.status_code, answer.reason_phrase, answer.text)
`,
}

/** A Python that can import the library: a version manager's may lack what the distribution's has. */
function pythonWith(library: string): string | undefined {
  const module = library === 'urllib' ? 'urllib.request' : library
  return [python, '/usr/bin/python3']
    .filter((file) => file !== undefined)
    .find((file) => printedBy(file, ['-c', `import ${module}; print("yes")`]) === 'yes')
}

describe.skipIf(skip !== undefined)(titleOf('Python', skip), () => {
  let broker: TestBroker
  let upstream: Upstream
  let shell: Shell

  beforeAll(async () => {
    const ca = await createTestCa()
    upstream = await startUpstream(
      ({ headers }, response) => send(response, 'text/plain', `you sent ${headers.authorization}`),
      { ca, names: ['api.good.test'] },
    )
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
    destinations: [{ host: api.good.test, port: ${upstream.port}, paths: ["/v1/**"], addresses: [127.0.0.0/8] }]
    env: API_KEY
sandboxes: { s1: { agent: a1, access: [api] } }
`,
    })
    shell = await openShell(broker, 's1')
  })

  afterAll(async () => {
    await shell.stop()
    await broker.stop()
    await upstream.stop()
  })

  for (const [name, program] of Object.entries(programs)) {
    const file = pythonWith(name)
    const absent = skip === undefined && file === undefined ? `${name} is not installed` : undefined
    const get = (url: string) =>
      shell.run(file ?? '', ['-c', program, url, 'Authorization', `Bearer ${shell.env['API_KEY']}`])

    it.skipIf(absent !== undefined)(
      titleOf(`${name} sends the placeholder and gets it back`, absent),
      async () => {
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
      },
    )

    it.skipIf(absent !== undefined)(
      titleOf(`${name} is told why a path and a host are refused`, absent),
      async () => {
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
      },
    )
  }
})
