import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { createHash, X509Certificate } from 'node:crypto'
import { connect } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { attackBench, until, type AttackBench } from '../helpers/attack-bench.ts'
import { basic, rawClient } from '../helpers/raw-client.ts'
import { createTestCa, type Issued } from '../helpers/test-ca.ts'

describe('who asks', () => {
  let bench: AttackBench
  let certificate: Issued

  beforeAll(async () => {
    certificate = await (
      await createTestCa()
    ).issue({ names: ['client.test'], usages: ['1.3.6.1.5.5.7.3.2'] })
    const fingerprint = createHash('sha256').update(new X509Certificate(certificate.cert).raw).digest('hex')
    bench = await attackBench({
      more: 'listen: { proxy: [127.0.0.1:0, "https://127.0.0.1:0"], admin: 127.0.0.1:0 }\n',
      sandboxes: `
  by-socket:
    agent: a4
    identity: [{ socket: own.sock }]
    allow: [{ host: plain.good.test, scheme: http, ports: [1], addresses: [127.0.0.0/8] }]
  by-source:
    agent: a5
    identity: [{ source: 127.0.0.2/32 }]
    access: [api]
  by-certificate:
    agent: a6
    identity: [{ client_certificate: ${fingerprint} }]
templates:
  again: { access: [api] }
`,
    })
  })
  afterEach(() => bench.standing())
  afterAll(() => bench.stop())

  const authority = (host = 'api.good.test'): string => bench.at(host)
  const connectLine = (host?: string): string =>
    `CONNECT ${authority(host)} HTTP/1.1\r\nHost: ${authority(host)}\r\n`
  const getPlain = (fields = ''): string =>
    `GET ${bench.url('plain.good.test')}/a HTTP/1.1\r\nHost: plain.good.test:${bench.plain.port}\r\n${fields}\r\n`

  it('A001: a CONNECT without credentials gets a framed 407 before any lookup, and the event names no agent', async () => {
    const mark = bench.mark()
    const client = await bench.client()
    client.write(`${connectLine()}\r\n`)
    const response = await client.response()
    expect(response.status).toBe(407)
    expect(response.fields['proxy-authenticate']).toMatch(/^Basic realm="/)
    expect(response.fields['content-length']).toBe(String(response.body.length))
    expect(client.isClosed).toBe(false)
    const [event] = await mark.decisions(1)
    expect(event).toMatchObject({
      verdict: 'deny',
      reason: 'auth_missing',
      status: 407,
      host: 'api.good.test',
    })
    expect(event?.agent).toBeUndefined()
    expect(event?.sandbox).toBeUndefined()
    mark.nothingLeft()
  })

  it('B003: the challenge is answered on the same connection, and a wrong password is challenged again', async () => {
    const mark = bench.mark()
    const client = await bench.client()
    client.write(`${connectLine()}\r\n`)
    const missing = await client.response()
    client.write(`${connectLine()}Proxy-Authorization: ${basic('s1', 'wrong')}\r\n\r\n`)
    const wrong = await client.response()
    client.write(`${connectLine()}${await bench.broker.auth('s1')}\r\n`)
    expect((await client.response()).status).toBe(200)
    client.destroy()
    expect(wrong.status).toBe(407)
    const likeness = (text: string): string =>
      text.replaceAll(/[0-9A-Z]{26}/g, 'ID').replaceAll('auth_invalid', 'auth_missing')
    expect(likeness(wrong.raw)).toBe(likeness(missing.raw))
    const events = await mark.decisions(3)
    expect(events.map(({ reason }) => reason)).toEqual(['auth_missing', 'auth_invalid', 'access'])
  })

  it('A003: guessing is throttled after ten tries, and the owner with the right password is not locked out', async () => {
    const mark = bench.mark()
    const client = await bench.client()
    const statuses: number[] = []
    for (let i = 0; i < 20; i++) {
      client.write(
        `${connectLine('guess.good.test')}Proxy-Authorization: ${basic('s2', `guess${i}`)}\r\n\r\n`,
      )
      const response = await client.response()
      statuses.push(response.status)
      if (response.status === 429) expect(response.fields['retry-after']).toMatch(/^[0-9]+$/)
    }
    expect(statuses).toEqual([...Array<number>(10).fill(407), ...Array<number>(10).fill(429)])
    const { client: owner, response } = await bench.connect('s2', authority())
    expect(response.status).toBe(200)
    owner.destroy()
    await owner.closed()
    await until(
      () => mark.events().some(({ agent, verdict }) => agent === 'a2' && verdict === 'allow'),
      'event of the owner',
    )
    mark.tally(21)
    expect(mark.upstream()).toBe('')
  })

  it('A003: an unknown user and a wrong password get answers of the same bytes', async () => {
    const answers: string[] = []
    for (const user of ['s1', 'nobody']) {
      const client = await bench.client()
      client.write(`${connectLine()}Proxy-Authorization: ${basic(user, 'wrong-password')}\r\n\r\n`)
      answers.push((await client.response()).raw.replaceAll(/[0-9A-Z]{26}/g, 'ID'))
      client.destroy()
    }
    expect(answers[1]).toBe(answers[0])
  })

  it('A004: credentials of one sandbox on the socket of another are 403 and the event names both', async () => {
    const mark = bench.mark()
    const client = await bench.unixClient(`${bench.broker.folder}/own.sock`)
    client.write(`${connectLine()}${await bench.broker.auth('s2')}\r\n`)
    const response = await client.response()
    expect(response).toMatchObject({ status: 403 })
    expect(response.statusLine).toContain('identity_mismatch')
    await client.closed()
    const [event] = await mark.decisions(1)
    expect(event).toMatchObject({ verdict: 'deny', reason: 'identity_mismatch' })
    expect(event?.note).toContain('s2')
    expect(event?.note).toContain('by-socket')
    expect(event?.agent).toBeUndefined()
    mark.nothingLeft()
  })

  it('A004: a client certificate and a password that name different sandboxes are 403', async () => {
    const mark = bench.mark()
    const tls = await secure()
    tls.write(`${connectLine()}${await bench.broker.auth('s1')}\r\n`)
    const answer = await new Promise<string>((resolve) =>
      tls.once('data', (chunk: Buffer) => resolve(chunk.toString())),
    )
    tls.destroy()
    expect(answer).toMatch(/^HTTP\/1\.1 403 octroi identity_mismatch /)
    await mark.decisions(1)
    mark.nothingLeft()
  })

  it('a client certificate alone proves its sandbox on an https listener', async () => {
    const mark = bench.mark()
    const tls = await secure()
    tls.write(`${connectLine()}\r\n`)
    const answer = await new Promise<string>((resolve) =>
      tls.once('data', (chunk: Buffer) => resolve(chunk.toString())),
    )
    tls.destroy()
    expect(answer).toMatch(/^HTTP\/1\.1 403 octroi host_denied /)
    expect((await mark.decisions(1))[0]).toMatchObject({ agent: 'a6', sandbox: 'by-certificate' })
  })

  it('a source address alone opens what a rule allows and never earns a swap', async () => {
    const mark = bench.mark()
    const socket = bench.own(() =>
      connect({ port: bench.broker.port, host: '127.0.0.1', localAddress: '127.0.0.2' }),
    )
    socket.write(`${connectLine()}\r\n`)
    await new Promise((resolve) => socket.once('data', resolve))
    const options = { socket, servername: 'api.good.test', ca: bench.broker.ca, ALPNProtocols: ['http/1.1'] }
    const tls = connectTls(options)
    await new Promise((resolve) => tls.once('secureConnect', resolve))
    const handle = bench.placeholder('api', 'by-source')
    tls.write(`GET /v1/x HTTP/1.1\r\nHost: ${authority()}\r\nAuthorization: Bearer ${handle}\r\n\r\n`)
    const answer = await new Promise<string>((resolve) =>
      tls.once('data', (chunk: Buffer) => resolve(chunk.toString())),
    )
    tls.destroy()
    expect(answer).toMatch(/^HTTP\/1\.1 403 octroi handle_unknown /)
    expect((await mark.decisions(1))[0]).toMatchObject({ agent: 'a5', sandbox: 'by-source', verdict: 'deny' })
    expect(mark.upstream()).toBe('')
  })

  const secure = async () => {
    const listener = bench.broker.app.listeners.find(({ address }) => address.startsWith('https://'))
    const port = Number(listener?.address.match(/[0-9]+$/)?.[0])
    const options = { ca: bench.broker.ca, cert: certificate.cert, key: certificate.key }
    const tls = bench.own(() =>
      connectTls({ host: '127.0.0.1', port, ...options, ALPNProtocols: ['http/1.1'] }),
    )
    tls.on('error', () => undefined)
    await new Promise((resolve) => tls.once('secureConnect', resolve))
    return tls
  }

  it('A006: two Proxy-Authorization lines are 400, and neither identity is used', async () => {
    for (const pair of [
      ['s1', 's2'],
      ['s1', 's1'],
    ] as const) {
      const mark = bench.mark()
      const client = await bench.client()
      client.write(
        `${connectLine()}${await bench.broker.auth(pair[0])}${await bench.broker.auth(pair[1])}\r\n`,
      )
      expect((await client.response()).status).toBe(400)
      await client.closed()
      const [event] = await mark.decisions(1)
      expect(event).toMatchObject({ verdict: 'deny', reason: 'malformed' })
      expect(event?.agent).toBeUndefined()
      mark.nothingLeft()
    }
  })

  it('A008: the upstream sees neither Proxy-Authorization nor Proxy-Connection', async () => {
    const mark = bench.mark()
    const client = await bench.client()
    client.write(getPlain(`${await bench.broker.auth('s1')}Proxy-Connection: keep-alive\r\nX-Kept: 1\r\n`))
    expect((await client.response()).status).toBe(200)
    const inside = await bench.tunnel('s1', 'free.good.test')
    const login = await bench.broker.auth('s1')
    inside.write(
      `GET / HTTP/1.1\r\nHost: ${authority('free.good.test')}\r\n${login}Proxy-Connection: keep-alive\r\n\r\n`,
    )
    expect((await inside.response()).status).toBe(200)
    const events = await mark.decisions(2)
    expect(events.map(({ agent, verdict }) => `${agent} ${verdict}`)).toEqual(['a1 allow', 'a1 allow'])
    expect(mark.plain()).toContain('X-Kept: 1')
    expect(mark.plain() + mark.upstream()).not.toMatch(/proxy-/i)
  })

  it('A010: a connection that proved one sandbox cannot go on as another', async () => {
    const mark = bench.mark()
    const client = await bench.client()
    client.write(getPlain(await bench.broker.auth('s1')))
    expect((await client.response()).status).toBe(200)
    client.write(getPlain(await bench.broker.auth('s2')))
    const second = await client.response()
    expect(second.status).toBe(403)
    await client.closed()
    expect(mark.plain().match(/^GET /gm)).toHaveLength(1)
    const events = await mark.decisions(2)
    expect(events[1]).toMatchObject({ verdict: 'deny', reason: 'identity_mismatch' })
    expect(events[1]?.agent).toBeUndefined()
  })

  it('a connection that proved a sandbox still has to prove it for each request', async () => {
    const mark = bench.mark()
    const client = await bench.client()
    client.write(getPlain(await bench.broker.auth('s1')))
    expect((await client.response()).status).toBe(200)
    client.write(getPlain())
    expect((await client.response()).status).toBe(407)
    expect(mark.plain().match(/^GET /gm)).toHaveLength(1)
    expect((await mark.decisions(2))[1]).toMatchObject({ verdict: 'deny', reason: 'auth_missing' })
  })

  it('I6: a login sent inside a tunnel changes nobody: the request is judged and logged as the owner of the tunnel', async () => {
    const mark = bench.mark()
    const client = await bench.tunnel('s2', 'api.good.test')
    const login = await bench.broker.auth('s1')
    const handle = bench.placeholder('api')
    client.write(
      `GET /v1/x HTTP/1.1\r\nHost: ${authority()}\r\n${login}Authorization: Bearer ${handle}\r\n\r\n`,
    )
    const response = await client.response()
    expect(response.status).toBe(403)
    expect(response.statusLine).toContain('handle_unknown')
    const [event] = await mark.decisions(1)
    expect(event).toMatchObject({ agent: 'a2', sandbox: 's2', verdict: 'deny', note: 'handle_wrong_sandbox' })
    expect(mark.upstream()).toBe('')
  })

  it('A012: the admin token opens nothing on the proxy port', async () => {
    const mark = bench.mark()
    const client = await bench.client()
    client.write(
      `${connectLine()}Proxy-Authorization: Bearer ${'a'.repeat(43)}\r\nAuthorization: Bearer ${'a'.repeat(43)}\r\n\r\n`,
    )
    expect((await client.response()).status).toBe(407)
    expect((await mark.decisions(1))[0]).toMatchObject({ verdict: 'deny', reason: 'auth_invalid' })
    mark.nothingLeft()
  })

  it('A012: the password of a sandbox opens nothing on the admin port', async () => {
    const password = await bench.broker.token('s1')
    for (const authorization of [`Bearer ${password}`, basic('s1', password)]) {
      const client = await bench.own(() => rawClient(bench.broker.adminPort))
      client.write(
        `GET /v1/sandboxes HTTP/1.1\r\nHost: 127.0.0.1:${bench.broker.adminPort}\r\nAuthorization: ${authorization}\r\n\r\n`,
      )
      expect((await client.response()).status).toBe(401)
      client.destroy()
    }
  })

  it('A013: user information in the target is 400 and is logged nowhere', async () => {
    const password = await bench.broker.token('s1')
    bench.guard('userinfo', 'userinfo-canary-7Qm2x')
    for (const userinfo of [`s1:${password}`, 's1:userinfo-canary-7Qm2x', 'userinfo-canary-7Qm2x']) {
      const mark = bench.mark()
      const target = bench.url('plain.good.test').replace('://', `://${userinfo}@`)
      const { response } = await bench.ask('s1', `GET ${target}/ HTTP/1.1\r\nHost: plain.good.test\r\n\r\n`)
      expect(response.status).toBe(400)
      expect((await mark.decisions(1))[0]).toMatchObject({ verdict: 'deny', reason: 'malformed' })
      mark.nothingLeft()
    }
  })

  it('A014: the scheme is read in any case, and nothing but one exact password is taken', async () => {
    const password = await bench.broker.token('s1')
    const right = basic('s1', password).slice('Basic '.length)
    const other = basic('s2', await bench.broker.token('s2')).slice('Basic '.length)
    const answers: [string, number][] = [
      [`proxy-authorization:\tbAsIc  ${right}`, 403],
      [`Proxy-Authorization: Basic ${right}garbage`, 407],
      [`Proxy-Authorization: Basic ${right} garbage`, 407],
      [`Proxy-Authorization: Basic ${right}, Basic ${other}`, 407],
      [`Proxy-Authorization: Bearer ${password}`, 407],
      [`Proxy-Authorization: ${right}`, 407],
      [`Proxy-Authorization: Basic`, 407],
      [`Proxy-Authorization: ${basic('s1', password.slice(0, -1))}`, 407],
      [`Proxy-Authorization: ${basic('s1', `${password}x`)}`, 407],
      [`Proxy-Authorization: ${basic('s1', '')}`, 407],
      [`Proxy-Authorization: ${basic('S1', password)}`, 407],
      [`Proxy-Authorization: ${basic('s2', password)}`, 407],
      [`Proxy-Authorization: ${basic('s1\0', password)}`, 407],
    ]
    for (const [index, [line, status]] of answers.entries()) {
      const mark = bench.mark()
      const client = await bench.client()
      client.write(`${connectLine(`login${index}.good.test`)}${line}\r\n\r\n`)
      const answer = await client.response()
      // Those without a readable user name share one throttle.
      expect([line, answer.status === 429 ? 407 : answer.status]).toEqual([line, status])
      client.destroy()
      expect((await mark.decisions(1))[0]?.agent).toBe(status === 403 ? 'a1' : undefined)
      mark.nothingLeft()
    }
  })

  it('A015: fields by which a client could speak for another change nothing and do not reach the upstream', async () => {
    const mark = bench.mark()
    const forged = [
      'X-Agent-Id: a2',
      'X-Forwarded-For: 10.0.0.5',
      'X-Forwarded-Host: evil.test',
      'Forwarded: for=10.0.0.5',
      'Via: 1.1 x',
      'X-Real-IP: 10.0.0.5',
      'X_Forwarded_For: 10.0.0.5',
      'Proxy_Authorization: Basic eDp5',
      'True-Client-IP: 10.0.0.5',
    ]
    const client = await bench.client()
    client.write(getPlain(`${await bench.broker.auth('s1')}${forged.join('\r\n')}\r\n`))
    expect((await client.response()).status).toBe(200)
    const received = mark.plain()
    for (const line of forged)
      expect(received.toLowerCase()).not.toContain(`${line.split(':')[0]?.toLowerCase()}:`)
    const [event] = await mark.decisions(1)
    expect(event).toMatchObject({ agent: 'a1', sandbox: 's1', verdict: 'allow' })
    expect(JSON.stringify(event)).not.toContain('10.0.0.5')
  })

  it('A017: a sandbox made again under an old name takes neither the old password nor the old handle', async () => {
    const create = async (): Promise<{ id: string; token: string }> => {
      const { status, answer } = await bench.admin('POST', '/v1/sandboxes', {
        template: 'again',
        name: 'phoenix',
      })
      expect(status).toBe(201)
      const { sandbox, token } = answer as { sandbox: { id: string }; token: string }
      return { id: sandbox.id, token }
    }
    const first = await create()
    const oldHandle = bench.placeholder('api', 'phoenix')
    expect((await bench.admin('DELETE', '/v1/sandboxes/phoenix')).status).toBe(200)
    const second = await create()
    bench.guard('old phoenix', first.token)
    bench.guard('new phoenix', second.token)
    expect(second.id).not.toBe(first.id)
    expect(bench.placeholder('api', 'phoenix')).not.toBe(oldHandle)
    const mark = bench.mark()
    const client = await bench.client()
    client.write(
      `${connectLine('phoenix.good.test')}Proxy-Authorization: ${basic('phoenix', first.token)}\r\n\r\n`,
    )
    expect((await client.response()).status).toBe(407)
    const inside = await bench.tunnel('phoenix', 'api.good.test')
    inside.write(`GET /v1/x HTTP/1.1\r\nHost: ${authority()}\r\nAuthorization: Bearer ${oldHandle}\r\n\r\n`)
    const response = await inside.response()
    expect(response.statusLine).toMatch(/^HTTP\/1\.1 403 octroi handle_unknown /)
    const events = await mark.decisions(2)
    expect(events[1]).toMatchObject({
      sandbox: 'phoenix',
      reason: 'handle_unknown',
      note: 'handle_wrong_sandbox',
    })
    expect(mark.upstream()).toBe('')
    expect((await bench.admin('DELETE', '/v1/sandboxes/phoenix')).status).toBe(200)
  })

  it('A019: during a rotation both passwords are taken, after its overlap only the new one, and no request fails', async () => {
    const mark = bench.mark()
    const old = await bench.broker.token('s1')
    const askWith = async (password: string): Promise<number> => {
      const client = await bench.client()
      client.write(getPlain(`Proxy-Authorization: ${basic('s1', password)}\r\n`))
      const { status } = await client.response()
      client.destroy()
      return status
    }
    const before = Array.from({ length: 10 }, () => askWith(old))
    const { answer } = await bench.admin('POST', '/v1/sandboxes/s1/rotate-token', { overlap_ms: 400 })
    const { token } = answer as { token: string }
    bench.guard('rotated', token)
    expect(token).not.toBe(old)
    const both = [
      ...Array.from({ length: 5 }, () => askWith(old)),
      ...Array.from({ length: 5 }, () => askWith(token)),
    ]
    expect(new Set(await Promise.all([...before, ...both]))).toEqual(new Set([200]))
    await new Promise((resolve) => setTimeout(resolve, 450))
    expect(await askWith(old)).toBe(407)
    expect(await askWith(token)).toBe(200)
    const events = await mark.decisions(22)
    expect(events.filter(({ verdict }) => verdict === 'deny').map(({ reason }) => reason)).toEqual([
      'auth_invalid',
    ])
  })

  it('A020: hundreds of made-up users leave the owner of a real name alone', async () => {
    const mark = bench.mark()
    const client = await bench.client()
    for (let i = 0; i < 300; i++)
      client.write(
        `${connectLine('ghost.good.test')}Proxy-Authorization: ${basic(`ghost${i}`, 'x'.repeat(40))}\r\n\r\n`,
      )
    for (let i = 0; i < 300; i++) expect([407, 429]).toContain((await client.response()).status)
    const { response, client: owner } = await bench.connect('s2', authority())
    expect(response.status).toBe(200)
    owner.destroy()
    await until(() => mark.events().some(({ agent }) => agent === 'a2'), 'event of the owner')
    mark.tally(301)
    expect(mark.upstream()).toBe('')
    client.destroy()
  })
})
