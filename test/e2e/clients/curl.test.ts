import { createHash, randomBytes } from 'node:crypto'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startTestBroker, type TestBroker } from '../../helpers/broker.ts'
import { ok, startOrigin, type Origin } from '../../helpers/origin.ts'
import { createTestCa } from '../../helpers/test-ca.ts'
import { eventsOf, expectNowhere, missing, openShell, titleOf, type Shell } from './kit.ts'
import { send, startUpstream, type Upstream } from './upstream.ts'

const secret = 'sk_live_7Yp2Rw9Lk4Vb8Zc1Nq6Tm3Xd'
const large = randomBytes(6 * 1024 * 1024)
const sha256 = (content: Buffer): string => createHash('sha256').update(content).digest('hex')
const skip = missing('curl')

describe.skipIf(skip !== undefined)(titleOf('curl', skip), () => {
  let plain: Origin
  let upstream: Upstream
  let broker: TestBroker
  let shell: Shell
  let small: Shell

  beforeAll(async () => {
    const ca = await createTestCa()
    plain = await startOrigin({
      onRequest: ({ socket }) => void socket.write(ok('hello', ['Content-Type: text/plain'])),
    })
    upstream = await startUpstream(
      ({ headers, target }, response) =>
        target === '/large'
          ? send(response, 'application/octet-stream', large)
          : send(response, 'application/json', JSON.stringify({ authorization: headers.authorization })),
      { ca, names: ['api.good.test', 'files.good.test'] },
    )
    const there = `ports: [${upstream.port}], addresses: [127.0.0.0/8]`
    broker = await startTestBroker({
      files: { 'root.pem': ca.cert },
      env: { KEY: secret },
      yaml: `
resolver: { hosts: { plain.good.test: [127.0.0.1], api.good.test: [127.0.0.1], files.good.test: [127.0.0.1] } }
trust: { system: false, ca: [root.pem] }
credentials: { key: { issuer: static, value: { env: KEY } } }
access:
  api:
    credential: key
    destinations: [{ host: api.good.test, port: ${upstream.port}, methods: [GET], addresses: [127.0.0.0/8] }]
    env: API_KEY
sandboxes:
  s1:
    agent: a1
    access: [api]
    allow:
      - { id: plain, host: plain.good.test, scheme: http, ports: [${plain.port}], methods: [GET, HEAD], addresses: [127.0.0.0/8] }
      - { id: files, host: files.good.test, ${there} }
  s2:
    agent: a2
    limits: { body: 1MB }
    allow: [{ id: files, host: files.good.test, ${there} }]
`,
    })
    shell = await openShell(broker, 's1')
    small = await openShell(broker, 's2')
    await writeFile(join(shell.home, 'upload'), large)
    await writeFile(join(small.home, 'upload'), large)
  })

  afterAll(async () => {
    await shell.stop()
    await small.stop()
    await broker.stop()
    await plain.stop()
    await upstream.stop()
  })

  it('reads a page over http, and the upstream sees nothing of the proxy', async () => {
    const ran = await shell.run('curl', ['-sS', `http://plain.good.test:${plain.port}/a?b=c`])
    expect(ran).toMatchObject({ code: 0, stdout: 'hello', stderr: '' })
    expect(plain.received[0]).toMatch(
      /^GET \/a\?b=c HTTP\/1\.1\r\nHost: plain\.good\.test:\d+\r\nUser-Agent: curl\/[\d.]+\r\nAccept: \*\/\*\r\n\r\n$/,
    )
    const [event] = await eventsOf(broker, 'a1', { host: 'plain.good.test' })
    expect(event).toMatchObject({
      agent: 'a1',
      scheme: 'http',
      verdict: 'allow',
      reason: 'rule',
      rule: 'plain',
      path: '/a',
    })
  })

  it('is told in the body why a host is refused over http', async () => {
    const ran = await shell.run('curl', ['-sS', '-w', '\n%{http_code}', 'http://evil.test/'])
    expect(ran.code).toBe(0)
    const [body = '', code] = ran.stdout.split('\n')
    expect(code).toBe('403')
    expect(JSON.parse(body)).toMatchObject({
      type: 'urn:octroi:host_denied',
      reason: 'host_denied',
      destination: 'evil.test:80',
    })
    const [event] = await eventsOf(broker, 'a1', { host: 'evil.test' })
    expect(event).toMatchObject({
      agent: 'a1',
      method: 'GET',
      verdict: 'deny',
      reason: 'host_denied',
      status: 403,
    })
    expect((JSON.parse(body) as { id: string }).id).toBe(event?.id)
  })

  it('reads over https with the placeholder, and gets the placeholder back', async () => {
    const placeholder = broker.placeholder('s1', 'api')
    expect(shell.env['API_KEY']).toBe(placeholder)
    // As a person would type it: the shell puts the variable in.
    const line = `curl -sS -H "Authorization: Bearer $API_KEY" https://api.good.test:${upstream.port}/v1`
    const ran = await shell.run('sh', ['-c', line])
    expect(ran).toMatchObject({
      code: 0,
      stderr: '',
      stdout: JSON.stringify({ authorization: `Bearer ${placeholder}` }),
    })
    expect(upstream.received.at(-1)).toMatchObject({ method: 'GET', target: '/v1' })
    expect(upstream.received.at(-1)?.headers.authorization).toBe(`Bearer ${secret}`)
    const [event] = await eventsOf(broker, 'a1', { host: 'api.good.test' })
    expect(event).toMatchObject({
      agent: 'a1',
      access: 'api',
      verdict: 'allow',
      reason: 'access',
      redactions: 1,
      status: 200,
    })
    await expectNowhere(broker, secret, [ran])
  })

  it('may not use the placeholder for another method, nor at another host', async () => {
    const placeholder = broker.placeholder('s1', 'api')
    const requests = upstream.received.length
    const field = ['-H', `Authorization: Bearer ${placeholder}`]
    const posted = await shell.run('curl', [
      '-sS',
      ...field,
      '-d',
      'x',
      `https://api.good.test:${upstream.port}/v1`,
    ])
    expect(JSON.parse(posted.stdout)).toMatchObject({ status: 403, reason: 'method_denied' })
    const elsewhere = await shell.run('curl', ['-sS', ...field, `https://files.good.test:${upstream.port}/`])
    expect(JSON.parse(elsewhere.stdout)).toMatchObject({ status: 403, reason: 'handle_wrong_destination' })
    expect(upstream.received).toHaveLength(requests)
    const [event] = await eventsOf(broker, 'a1', { host: 'files.good.test' })
    expect(event).toMatchObject({ agent: 'a1', verdict: 'deny', reason: 'handle_wrong_destination' })
  })

  it('sees the reason of a refused tunnel in the status line', async () => {
    const ran = await shell.run('curl', ['-sSv', '-w', '%{http_connect}', 'https://evil.example.test/'])
    expect(ran).toMatchObject({ code: 56, stdout: '403' })
    const [event] = await eventsOf(broker, 'a1', { host: 'evil.example.test' })
    expect(event).toMatchObject({ agent: 'a1', method: 'CONNECT', verdict: 'deny', reason: 'host_denied' })
    expect(ran.stderr).toContain(
      `< HTTP/1.1 403 octroi host_denied evil.example.test:443 id=${event?.id}\r\n`,
    )
    expect(ran.stderr).toContain('CONNECT tunnel failed, response 403')
  })

  it('answers the challenge for a tunnel on the same connection', async () => {
    const url = `https://files.good.test:${upstream.port}/challenged`
    const login = `s1:${await broker.token('s1')}`
    const args = [
      '-sSv',
      '--proxy-anyauth',
      '-x',
      `http://127.0.0.1:${broker.port}`,
      '-U',
      login,
      '-w',
      '%{num_connects}',
      '-o',
      'challenged',
    ]
    const ran = await shell.run('curl', [...args, url])
    expect(ran).toMatchObject({ code: 0 })
    expect(ran.stderr).toContain('< HTTP/1.1 407 octroi auth_missing')
    expect(ran.stderr).toContain('< HTTP/1.1 200')
    expect(ran.stderr).not.toContain('Re-using existing connection! (#1)')
    expect(ran.stderr.match(/Connected to 127\.0\.0\.1/g)).toHaveLength(1)
    expect(upstream.received.at(-1)?.target).toBe('/challenged')
    expect(JSON.stringify(upstream.received.at(-1)?.headers)).not.toContain('proxy')
    const [event] = await eventsOf(broker, 'a1', { host: 'files.good.test', path: '/challenged' })
    expect(event).toMatchObject({ verdict: 'allow', rule: 'files', status: 200 })
  })

  it('gets nowhere without a password or with a wrong one', async () => {
    const requests = upstream.received.length
    const url = `https://files.good.test:${upstream.port}/`
    const proxy = ['-x', `http://127.0.0.1:${broker.port}`, '-sSv', '-w', '%{http_connect}']
    const none = await shell.run('curl', [...proxy, url])
    expect(none).toMatchObject({ code: 56, stdout: '407' })
    const wrong = await shell.run('curl', [...proxy, '-U', 's1:wrong', url])
    expect(wrong).toMatchObject({ code: 56, stdout: '407' })
    expect(upstream.received).toHaveLength(requests)
    const refused = (
      await broker.events((all) => all.some(({ reason }) => reason === 'auth_invalid'))
    ).filter(({ status }) => status === 407)
    expect(refused.map(({ reason }) => reason)).toContain('auth_missing')
    for (const event of refused) expect(event).not.toHaveProperty('agent')
  })

  it('uploads after the upstream said to go on', async () => {
    const args = [
      '-sSv',
      '-T',
      'upload',
      '-H',
      'Expect: 100-continue',
      `https://files.good.test:${upstream.port}/put`,
    ]
    const ran = await shell.run('curl', args)
    expect(ran).toMatchObject({ code: 0 })
    expect(ran.stderr).toContain('< HTTP/1.1 100 Continue')
    const received = upstream.received.at(-1)
    expect(received).toMatchObject({ method: 'PUT', target: '/put' })
    expect(received?.headers).toMatchObject({
      expect: '100-continue',
      'content-length': String(large.length),
    })
    expect(sha256(received?.body ?? Buffer.alloc(0))).toBe(sha256(large))
    const [event] = await eventsOf(broker, 'a1', { host: 'files.good.test', path: '/put' })
    expect(event).toMatchObject({ method: 'PUT', verdict: 'allow', bytes_up: large.length, end: 'complete' })
  })

  it('sends no byte of an upload that is refused', async () => {
    const requests = upstream.received.length
    const args = ['-sS', '-T', 'upload', '-H', 'Expect: 100-continue', '-w', '\n%{http_code} %{size_upload}']
    const ran = await small.run('curl', [...args, `https://files.good.test:${upstream.port}/put`])
    const [body = '', counts] = ran.stdout.split('\n')
    expect(counts).toBe('413 0')
    expect(JSON.parse(body)).toMatchObject({ reason: 'too_large' })
    expect(upstream.received).toHaveLength(requests)
    const refused = (await broker.events((all) => all.some(({ agent }) => agent === 'a2'))).filter(
      ({ agent }) => agent === 'a2',
    )
    expect(refused).toMatchObject([
      { host: 'files.good.test', verdict: 'deny', reason: 'too_large', status: 413 },
    ])
  })

  it('downloads a large file whole, and posts one without waiting', async () => {
    const at = `https://files.good.test:${upstream.port}`
    const down = await shell.run('curl', ['-sS', '--compressed', '-o', 'down', `${at}/large`])
    expect(down).toMatchObject({ code: 0, stderr: '' })
    expect(sha256(await readFile(join(shell.home, 'down')))).toBe(sha256(large))
    const chunked = ['-sS', '-H', 'Expect:', '-H', 'Transfer-Encoding: chunked', '--data-binary', '@upload']
    const up = await shell.run('curl', [...chunked, `${at}/post`])
    expect(up).toMatchObject({ code: 0, stderr: '' })
    expect(upstream.received.at(-1)?.headers).toMatchObject({ 'transfer-encoding': 'chunked' })
    expect(sha256(upstream.received.at(-1)?.body ?? Buffer.alloc(0))).toBe(sha256(large))
    const [get] = await eventsOf(broker, 'a1', { host: 'files.good.test', path: '/large' })
    expect(get).toMatchObject({ method: 'GET', bytes_down: large.length, status: 200, end: 'complete' })
    const [post] = await eventsOf(broker, 'a1', { host: 'files.good.test', path: '/post' })
    expect(post).toMatchObject({ method: 'POST', bytes_up: large.length, status: 200, end: 'complete' })
  })

  it('asks for heads, on one connection', async () => {
    const url = `http://plain.good.test:${plain.port}/head`
    const connections = plain.connections
    const ran = await shell.run('curl', ['-sS', '-I', '-w', '%{num_connects}\n', url, '-I', url])
    expect(ran).toMatchObject({ code: 0, stderr: '' })
    expect(ran.stdout.match(/^Content-Length: 5\r$/gm)).toHaveLength(2)
    expect(ran.stdout).not.toContain('hello')
    expect(
      plain.received
        .slice(connections - 1)
        .join('')
        .match(/^HEAD \/head HTTP\/1\.1\r$/gm),
    ).toHaveLength(2)
    const refused = await shell.run('curl', ['-sS', '-I', '-m', '10', 'http://evil.head.test/'])
    expect(refused).toMatchObject({ code: 0, stderr: '' })
    expect(refused.stdout).toMatch(
      /^HTTP\/1\.1 403 octroi host_denied evil\.head\.test:80 id=[0-9A-Z]{26}\r\n/,
    )
    expect(refused.stdout).not.toContain('urn:octroi')
  })
})
