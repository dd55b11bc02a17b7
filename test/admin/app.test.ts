import { describe, expect, it } from 'vitest'
import type { FastifyInstance } from 'fastify'
import { createAdminApp } from '../../src/admin/app.ts'
import { createBearer } from '../../src/admin/auth.ts'
import { hostsOf } from '../../src/admin/origin.ts'
import { createThrottle } from '../../src/identity/throttle.ts'
import { OperatorError } from '../../src/core/errors.ts'
import { adminBench, routes } from '../helpers/admin-bench.ts'
import type { AdminBench, RouteCase } from '../helpers/admin-bench.ts'

const token = 'operator-token-0123456789abcdefghijklmnopqrs'
const host = '127.0.0.1:18081'
const bearer = { authorization: `Bearer ${token}` }

function tcpApp(made: AdminBench = adminBench()): { app: FastifyInstance; made: AdminBench } {
  const hosts = hostsOf('127.0.0.1', 18081)
  const door = {
    kind: 'tcp',
    hosts: () => hosts,
    bearer: createBearer(token, createThrottle(made.bench.clock, 1)),
  } as const
  return { app: createAdminApp(made.deps, door), made }
}

function inject(
  app: FastifyInstance,
  route: Pick<RouteCase, 'method' | 'url' | 'body'>,
  headers: object = {},
) {
  const { method, url, body } = route
  const payload = body === undefined ? {} : { payload: body }
  return app.inject({ method, url, ...payload, headers: { host, ...headers } })
}

const methods = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'] as const
const urls = [...routes.map(({ url }) => url), '/', '/v1', '/v2/x', '/v1/sandboxes/%ff', '/%', '/admin.token']

describe('admin API over TCP: door', () => {
  it('answers every method of every route without credentials 401, and only health openly', async () => {
    const { app, made } = tcpApp()
    for (const url of urls)
      for (const method of methods) {
        const answer = await app.inject({ method, url, headers: { host } })
        const isHealth = routes.some((route) => route.open && route.url === url)
        const expected = isHealth && (method === 'GET' || method === 'HEAD') ? 200 : 401
        expect([method, url, answer.statusCode]).toEqual([method, url, expected])
      }
    expect(made.bench.store.writes).toEqual([])
    expect(made.asked).toEqual([])
  })

  it.each([
    'evil.test:18081',
    'localhost.evil.test',
    'localhost:1',
    '127.0.0.1',
    '127.0.0.1:18081.evil.test',
    '',
  ])('refuses Host %j on every route before the route, also with the token', async (bad) => {
    const { app, made } = tcpApp()
    for (const url of urls) {
      const answer = await app.inject({ method: 'GET', url, headers: { ...bearer, host: bad } })
      expect([url, answer.statusCode]).toEqual([url, 421])
      expect(answer.body).not.toContain('evil')
    }
    expect(made.asked).toEqual([])
  })

  it.each(['localhost:18081', '127.0.0.1:18081', '[::1]:18081', 'LOCALHOST:18081'])(
    'serves Host %s',
    async (good) => {
      const { app } = tcpApp()
      const answer = await app.inject({
        method: 'GET',
        url: '/v1/status',
        headers: { ...bearer, host: good },
      })
      expect(answer.statusCode).toBe(200)
    },
  )

  it.each([
    ['an Origin of another site', { origin: 'http://evil.test' }, 403],
    ['the null Origin', { origin: 'null' }, 403],
    ['its own Origin on another port', { origin: 'http://127.0.0.1:3000' }, 403],
    ['a cross-site fetch', { 'sec-fetch-site': 'cross-site' }, 403],
    ['a same-site fetch', { 'sec-fetch-site': 'same-site' }, 403],
    ['its own Origin', { origin: `http://${host}`, 'sec-fetch-site': 'same-origin' }, 200],
    ['a typed address', { 'sec-fetch-site': 'none' }, 200],
  ])('judges %s', async (_case, headers, status) => {
    const { app } = tcpApp()
    expect(
      (await inject(app, { method: 'POST', url: '/v1/reload' }, { ...bearer, ...headers })).statusCode,
    ).toBe(status)
  })

  it('does not take a token of a sandbox, a token in the URL, another scheme or a prefix', async () => {
    const { app, made } = tcpApp()
    const { token: sandboxToken } = await made.bench.lifecycle.create({ template: 'coder', name: 's1' })
    const basic = Buffer.from(`admin:${token}`).toString('base64')
    for (const authorization of [
      `Bearer ${sandboxToken}`,
      `Basic ${basic}`,
      token,
      `Bearer ${token.slice(0, -1)}`,
      `Bearer ${token}x`,
      'Bearer ',
    ]) {
      const answer = await inject(app, { method: 'GET', url: '/v1/status' }, { authorization })
      expect([authorization, answer.statusCode]).toEqual([authorization, 401])
    }
    const byUrl = await inject(app, { method: 'GET', url: `/v1/status?token=${token}` })
    expect(byUrl.statusCode).toBe(401)
  })

  it('throttles wrong tokens, lets the right one pass meanwhile, and recovers', async () => {
    const { app, made } = tcpApp()
    const status = async (authorization: string) =>
      inject(app, { method: 'GET', url: '/v1/status' }, { authorization })
    for (let n = 0; n < 10; n++) expect((await status('Bearer wrong')).statusCode).toBe(401)
    const throttled = await status('Bearer wrong')
    expect(throttled.statusCode).toBe(429)
    expect(throttled.headers['retry-after']).toBe('60')
    expect((await status(bearer.authorization)).statusCode).toBe(200)
    made.bench.clock.advance(60_000)
    expect((await status('Bearer wrong')).statusCode).toBe(401)
  })

  it('gives the same answer for a missing and a wrong token, and tells no version', async () => {
    const { app } = tcpApp()
    const missing = await inject(app, { method: 'GET', url: '/v1/status' })
    const wrong = await inject(app, { method: 'GET', url: '/v1/status' }, { authorization: 'Bearer wrong' })
    expect(wrong.body).toBe(missing.body)
    expect(missing.headers['www-authenticate']).toBe('Bearer realm="octroi"')
    for (const url of ['/healthz', '/livez', '/readyz', '/v1/status']) {
      const { body, headers } = await inject(app, { method: 'GET', url })
      expect(`${body} ${JSON.stringify(headers)}`).not.toMatch(/version|fastify|node|\d+\.\d+\.\d+/i)
    }
  })
})

describe('admin API: routes', () => {
  it.each(['/v1/attach', '/v1/handover'])('has %s on the owner-only socket alone', async (url) => {
    const { app, made } = tcpApp()
    expect((await inject(app, { method: 'POST', url }, bearer)).statusCode).toBe(404)
    expect(made.asked).toEqual([])
  })

  it.each(routes.map((route) => [`${route.method} ${route.url}`, route] as const))(
    'does %s with the token, and over the owner-only socket without one',
    async (_name, route) => {
      const socket = adminBench()
      const apps = [tcpApp(), { app: createAdminApp(socket.deps, { kind: 'socket' }), made: socket }]
      for (const [index, { app, made }] of apps.entries()) {
        await made.bench.lifecycle.create({ template: 'coder', name: 's1' })
        const handle = await made.bench.addHandle('s1', 'openai')
        if (route.url.endsWith('/grants'))
          await made.bench.lifecycle.revoke({ kind: 'handle', target: handle.id })
        const body =
          route.body && (JSON.parse(JSON.stringify(route.body).replace(':HANDLE', handle.id)) as object)
        const request = { ...route, ...(body ? { body } : {}) }
        const answer = await inject(app, request, index === 0 ? bearer : { host: 'anything' })
        expect(answer.statusCode, answer.body).toBe(route.status)
        expect(answer.headers).toMatchObject({
          'x-content-type-options': 'nosniff',
          'cache-control': 'no-store',
        })
        expect(answer.headers['access-control-allow-origin']).toBeUndefined()
      }
    },
  )

  it('shows tokens only in the answers of create and rotate, and placeholders nowhere', async () => {
    const { app, made } = tcpApp()
    const secrets: string[] = []
    const bodies: string[] = []
    const send = async (route: Pick<RouteCase, 'method' | 'url' | 'body'>) => inject(app, route, bearer)
    const first = await send({
      method: 'POST',
      url: '/v1/sandboxes',
      body: { template: 'coder', name: 's1' },
    })
    secrets.push(first.json<{ token: string }>().token)
    const rotated = await send({ method: 'POST', url: '/v1/sandboxes/s1/rotate-token' })
    secrets.push(rotated.json<{ token: string }>().token)
    const handle = await made.bench.addHandle('s1', 'openai')
    secrets.push(handle.placeholder)
    expect(new Set(secrets).size).toBe(3)
    for (const route of routes) {
      if (route.url.endsWith('rotate-token') || route.status === 201) continue
      const body = route.url === '/v1/revoke' ? { body: { kind: 'handle', target: handle.placeholder } } : {}
      bodies.push((await send({ ...route, ...body })).body)
    }
    expect(bodies).toHaveLength(routes.length - 2)
    for (const secret of [...secrets, token])
      expect(
        `${bodies.join('\n')} ${JSON.stringify(made.bench.events)} ${made.log.join('\n')}`,
      ).not.toContain(secret)
  })

  it('tells which part is not ready', async () => {
    const { app, made } = tcpApp()
    made.notReady = ['store', 'audit']
    const answer = await inject(app, { method: 'GET', url: '/readyz' })
    expect([answer.statusCode, answer.json()]).toEqual([503, { ready: false, not_ready: ['store', 'audit'] }])
    expect((await inject(app, { method: 'GET', url: '/healthz' })).statusCode).toBe(200)
    const status = await inject(app, { method: 'GET', url: '/v1/status' }, bearer)
    expect(status.json()).toMatchObject({ ready: false, not_ready: ['store', 'audit'], policy: 'abc123' })
  })

  it('answers a reload of a broken file with its problems and leaves the rest alone', async () => {
    const { app, made } = tcpApp()
    made.failWith = new OperatorError('octroi.yaml:3:7: sandboxes.a.alow: unknown key; did you mean `allow`?')
    const answer = await inject(app, { method: 'POST', url: '/v1/reload' }, bearer)
    expect(answer.statusCode).toBe(422)
    expect(answer.json()).toMatchObject({
      error: 'not_reloaded',
      message: expect.stringContaining(':3:7') as string,
    })
  })

  it('opens a socket only for a sandbox that lives', async () => {
    const { app, made } = tcpApp()
    const answer = await inject(app, { method: 'POST', url: '/v1/sandboxes/s9/socket' }, bearer)
    expect(answer.statusCode).toBe(404)
    expect(made.asked).toEqual([])
  })
})

describe('admin API: bad input', () => {
  const secret = 'sk-live-7c1f0e9d8b6a5432'
  it.each([
    ['an unknown field', { template: 'coder', [secret]: secret }, 400],
    ['a wrong type', { template: [secret] }, 400],
    ['an unknown template', { template: `${secret} ${secret}` }, 404],
    ['a bad name', { template: 'coder', name: `${secret}:` }, 400],
    ['a bad agent', { template: 'coder', agent: `${secret}\n` }, 400],
    ['a ttl above the ceiling', { template: 'coder', ttl_ms: 1e12 }, 422],
    ['a name in use', { template: 'coder', name: 'coder-1' }, 409],
    ['a list', [secret], 400],
  ])('refuses %s without repeating it', async (_case, body, status) => {
    const { app } = tcpApp()
    const answer = await inject(app, { method: 'POST', url: '/v1/sandboxes', body }, bearer)
    expect(answer.statusCode).toBe(status)
    expect(answer.body).not.toContain(secret)
    expect(answer.json<{ message: string }>().message).not.toBe('')
  })

  it.each([
    ['broken JSON', 'application/json', `{"template": "${secret}"`, 400],
    ['no JSON at all', 'application/json', secret, 400],
    ['a prototype', 'application/json', '{"template":"coder","__proto__":{"admin":true}}', 400],
    ['a form', 'application/x-www-form-urlencoded', `template=${secret}`, 415],
    ['JSON as text', 'text/plain', '{"template":"coder"}', 415],
    ['multipart', 'multipart/form-data; boundary=x', '--x--', 415],
    ['an empty body', 'application/json', '', 400],
    ['more than 64 KiB', 'application/json', `{"template":"${'a'.repeat(70_000)}"}`, 413],
  ])('refuses %s', async (_case, type, payload, status) => {
    const { app, made } = tcpApp()
    const headers = { host, ...bearer, 'content-type': type }
    const answer = await app.inject({ method: 'POST', url: '/v1/sandboxes', headers, payload })
    expect(answer.statusCode).toBe(status)
    expect(answer.body).not.toContain(secret)
    expect(made.bench.store.writes).toEqual([])
  })

  it('answers an unknown route 404 and a broken path 400, each after the door', async () => {
    const { app } = tcpApp()
    expect((await inject(app, { method: 'GET', url: '/v1/nothing' }, bearer)).statusCode).toBe(404)
    expect((await inject(app, { method: 'GET', url: '/%' }, bearer)).statusCode).toBe(400)
    expect(
      (await inject(app, { method: 'GET', url: `/v1/sandboxes/${'a'.repeat(500)}` }, bearer)).statusCode,
    ).toBe(400)
  })
})

describe('admin API: our own failures', () => {
  it('answers 500 with an id only, and logs the cause under it', async () => {
    const { app, made } = tcpApp()
    await made.bench.lifecycle.create({ template: 'coder', name: 's1' })
    made.failWith = new TypeError('SELECT * FROM tokens at /var/lib/octroi/octroi.db')
    made.bench.store.failWrites = /./
    // These have nothing to write here: it is active, the handle is unknown, the event log is up.
    const idle = ['/v1/sandboxes/s1/resume', '/v1/revoke', '/v1/sandboxes/s1/runs']
    const failing = routes.filter(({ method, url }) => method !== 'GET' && !idle.includes(url))
    for (const route of failing) {
      const answer = await inject(app, route, bearer)
      expect([route.url, answer.statusCode]).toEqual([route.url, 500])
      const { id, ...rest } = answer.json<{ id: string }>()
      expect(rest).toEqual({ error: 'internal', message: `failed; see the log for ${id}` })
      expect(made.log.at(-1)).toContain(id)
    }
    expect(failing.length).toBeGreaterThan(6)
  })

  it('says in words that the event log is down, and whether the operation was done', async () => {
    const { app, made } = tcpApp()
    await made.bench.lifecycle.create({ template: 'coder', name: 's1' })
    made.bench.auditDown = true
    const paused = await inject(app, { method: 'POST', url: '/v1/sandboxes/s1/pause' }, bearer)
    expect([paused.statusCode, paused.json<{ message: string }>().message]).toEqual([
      503,
      'done (paused), but the event log cannot be written',
    ])
    const resumed = await inject(app, { method: 'POST', url: '/v1/sandboxes/s1/resume' }, bearer)
    expect(resumed.json<{ message: string }>().message).toBe('not done: the event log cannot be written')
  })
})
