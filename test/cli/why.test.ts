import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { LoggedEvent } from '../../src/audit/query.ts'
import { runCli } from '../../src/cli/wiring.ts'
import { startTestBroker } from '../helpers/broker.ts'
import type { TestBroker } from '../helpers/broker.ts'
import { memoryIo } from '../helpers/memory-io.ts'
import { ok, startOrigin } from '../helpers/origin.ts'
import type { Origin } from '../helpers/origin.ts'
import { createTestCa } from '../helpers/test-ca.ts'

const secret = 'sk_live_9dK2mQ7xR4tV8wZ1bN6c'

let origin: Origin
let broker: TestBroker
let policies: { readonly a: string; readonly b: string }

beforeAll(async () => {
  const ca = await createTestCa()
  const { cert, key } = await ca.issue({ names: ['api.good.test', 'docs.good.test'] })
  origin = await startOrigin({ tls: { cert, key }, onRequest: ({ socket }) => void socket.write(ok('fine')) })
  const shared = `
resolver: { hosts: { api.good.test: [127.0.0.1], docs.good.test: [127.0.0.1], meta.test: [169.254.169.254] } }
trust: { system: false, ca: [root.pem] }
credentials: { key: { issuer: static, value: { env: KEY } } }
access:
  api:
    credential: key
    destinations: [{ host: api.good.test, port: ${origin.port}, methods: [GET], addresses: [127.0.0.0/8] }]
    slot: { header: authorization, scheme: Bearer }
`
  const docs = `host: docs.good.test, ports: [${origin.port}], addresses: [127.0.0.0/8]`
  policies = {
    a: `${shared}
templates:
  coder: { tenant: web, allow: [{ id: docs.read, ${docs}, methods: [GET], paths: ["/v1/**"] }, { host: meta.test }] }
sandboxes:
  own: { tenant: web, template: coder, agent: a1, access: [api], deny: [{ id: no.private, host: docs.good.test, paths: ["/v1/private/**"] }] }
`,
    b: `${shared}
templates:
  coder: { tenant: web }
sandboxes:
  own: { tenant: web, template: coder }
`,
  }
  broker = await startTestBroker({ files: { 'root.pem': ca.cert }, env: { KEY: secret }, yaml: policies.a })
})
afterAll(async () => {
  await broker.stop()
  await origin.stop()
})

async function get(sandbox: string, path: string, fields = ''): Promise<void> {
  const client = await broker.tunnel(sandbox, `docs.good.test:${origin.port}`)
  client.write(`GET ${path} HTTP/1.1\r\nHost: docs.good.test:${origin.port}\r\n${fields}\r\n`)
  await client.response()
}

async function connect(sandbox: string, authority: string): Promise<void> {
  const client = await broker.client()
  client.write(`CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n${await broker.auth(sandbox)}\r\n`)
  await client.response()
}

async function octroi(...args: string[]) {
  const { io, out, err } = memoryIo({ env: { KEY: secret } })
  const code = await runCli(['--config', `${broker.folder}/octroi.yaml`, ...args], io)
  return { code, out: out.join('\n'), err: err.join('\n') }
}

async function idOf(is: (event: LoggedEvent) => boolean): Promise<string> {
  const events = await broker.events((all) => all.some(is))
  return events.find(is)?.id ?? ''
}

describe('octroi why', () => {
  it('shows the whole trace under the policy then in force, whatever is in force now', async () => {
    const made = await octroi('sandbox', 'create', '--template', 'coder', '--name', 'made')
    expect(made.code, made.err).toBe(0)
    await get('own', '/v1/x')
    await get('own', '/v1/private/x')
    await get('own', '/v2/x')
    await get('made', '/v1/private/x')
    await connect('own', 'meta.test:443')
    await connect('own', 'elsewhere.test:443')
    const ids = {
      allowed: await idOf(({ path }) => path === '/v1/x'),
      denied: await idOf(({ path, sandbox }) => path === '/v1/private/x' && sandbox === 'own'),
      missed: await idOf(({ path }) => path === '/v2/x'),
      runtime: await idOf(({ sandbox, path }) => sandbox === 'made' && path === '/v1/private/x'),
      guarded: await idOf(({ host }) => host === 'meta.test'),
      elsewhere: await idOf(({ host }) => host === 'elsewhere.test'),
    }
    await broker.reconfigure(policies.b)
    const now = await octroi(
      'explain',
      '--sandbox',
      'own',
      'GET',
      `https://docs.good.test:${origin.port}/v1/x`,
    )
    expect(now.out).toContain('deny: host_denied')

    const allowed = await octroi('why', ids.allowed)
    expect(allowed).toMatchObject({ code: 0, err: '' })
    expect(allowed.out).toMatch(/^under policy [0-9a-f]{16}, in force then:$/m)
    expect(allowed.out).toContain(
      `sandbox own (tenant web, agent a1, template coder) to docs.good.test:${origin.port}`,
    )
    expect(allowed.out).toMatch(/^ +pass +policy +allowed by docs\.read$/m)
    expect(allowed.out).toMatch(/^ +pass +guard +127\.0\.0\.1 may be dialled$/m)
    expect(allowed.out).toMatch(
      /^ +allow +docs\.read +matches +\{ host: docs\.good\.test, .*methods: \[GET\]/m,
    )
    expect(allowed.out).toMatch(/^ +deny +no\.private +not this path /m)
    expect(allowed.out).toMatch(/^allow: rule by docs\.read$/m)

    const denied = (await octroi('why', ids.denied)).out
    expect(denied).toMatch(/^ +FAIL +policy +path_denied: decided by no\.private$/m)
    expect(denied).toMatch(/^ +deny +no\.private +matches /m)
    const missed = (await octroi('why', ids.missed)).out
    expect(missed).toMatch(/^ +allow +docs\.read +not this path /m)
    const runtime = (await octroi('why', ids.runtime)).out
    expect(runtime).toMatch(/^allow: rule by docs\.read$/m)
    expect(runtime).not.toContain('no.private')
    const guarded = (await octroi('why', ids.guarded)).out
    expect(guarded).toMatch(/^ +pass +policy +allowed by meta\.test#/m)
    expect(guarded).toMatch(/^ +FAIL +guard +metadata_denied: Metadata service denied$/m)
    expect((await octroi('why', ids.elsewhere)).out).toMatch(
      /^ +FAIL +policy +host_denied: no rule allows this$/m,
    )

    const json = JSON.parse((await octroi('why', ids.denied, '--json')).out) as object
    expect(json).toMatchObject({
      event: { id: ids.denied, reason: 'path_denied' },
      meaning: { title: 'Path denied' },
      decision: {
        sandbox: 'own',
        steps: [
          { check: 'identity', passed: true },
          { check: 'policy', passed: false },
        ],
        trace: [
          { effect: 'deny', rule: 'no.private', matched: true },
          { effect: 'allow', rule: 'docs.read', matched: true },
        ],
        rules: { verdict: 'deny', reason: 'path_denied', rule: 'no.private' },
      },
    })
  })

  it('traces no policy for an event that none decided', async () => {
    const id = await idOf(({ kind }) => kind === 'admin')
    const { code, out, err } = await octroi('why', id)
    expect([code, err]).toEqual([0, ''])
    expect(out).toContain('reason       create')
    expect(out).not.toContain('under policy')
  })
})
