import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { startTestBroker, type TestBroker } from '../helpers/broker.ts'
import { serverNames, helloMessage, toRecords } from '../helpers/client-hello.ts'
import { ok, startOrigin, type Origin, type OriginOptions } from '../helpers/origin.ts'
import type { RawClient } from '../helpers/raw-client.ts'
import { createTestCa } from '../helpers/test-ca.ts'
import { eventually } from './bench.ts'

type Script = { -readonly [key in keyof OriginOptions]: OriginOptions[key] }

describe('tunnels', () => {
  const plainScript: Script = {}
  const tlsScript: Script = {}
  const splicedScript: Script = {}
  let ca: Awaited<ReturnType<typeof createTestCa>>
  let plain: Origin
  let tls: Origin
  let spliced: Origin
  let strange: Origin
  let broker: TestBroker
  let auth: string

  beforeAll(async () => {
    ca = await createTestCa()
    const { cert, key } = await ca.issue({ names: ['tls.good.test', 'splice.good.test'] })
    const other = await (await createTestCa()).issue({ names: ['strange.good.test'] })
    plain = await startOrigin(plainScript)
    tls = await startOrigin(Object.assign(tlsScript, { tls: { cert, key } }))
    // Takes bytes as they are: what a spliced tunnel brings is TLS that nobody here reads.
    spliced = await startOrigin(splicedScript)
    strange = await startOrigin({ tls: { cert: other.cert, key: other.key } })
    broker = await startTestBroker({
      files: { 'root.pem': ca.cert },
      limits: { halfCloseMs: 200 },
      yaml: `
resolver:
  hosts:
    plain.good.test: [127.0.0.1]
    tls.good.test: [127.0.0.1]
    splice.good.test: [127.0.0.1]
    strange.good.test: [127.0.0.1]
trust: { system: false, ca: [root.pem] }
sandboxes:
  s1:
    identity: [{ token: generated }]
    allow:
      - { host: plain.good.test, scheme: http, ports: [${plain.port}], addresses: [127.0.0.0/8] }
      - { host: tls.good.test, ports: [${tls.port}, ${strange.port}], addresses: [127.0.0.0/8] }
      - { host: strange.good.test, ports: [${strange.port}], addresses: [127.0.0.0/8] }
      - { host: splice.good.test, ports: [${spliced.port}, ${tls.port}], addresses: [127.0.0.0/8], tls: splice }
`,
    })
    auth = await broker.auth('s1')
  })

  afterEach(async () => {
    const origins = [plain, tls, spliced, strange]
    for (const { sockets } of origins) for (const socket of sockets) socket.destroy()
    await eventually(
      () => origins.every(({ sockets }) => sockets.size === 0),
      'the origins let go of their connections',
    )
    for (const { received } of origins) received.length = 0
    for (const script of [plainScript, tlsScript, splicedScript]) {
      script.onRequest = undefined
      script.onConnection = undefined
    }
  })

  afterAll(async () => {
    await broker.stop()
    for (const origin of [plain, tls, spliced, strange]) await origin.stop()
  })

  async function connect(authority: string, more: string | Buffer = ''): Promise<RawClient> {
    const client = await broker.client()
    const head = Buffer.from(`CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n${auth}\r\n`)
    client.write(Buffer.concat([head, Buffer.from(more)]))
    expect(await client.response()).toMatchObject({ status: 200 })
    return client
  }

  const ask = (authority: string, path: string): string =>
    `GET ${path} HTTP/1.1\r\nHost: ${authority}\r\n\r\n`

  it('carry cleartext HTTP where a rule has it, each request judged by itself', async () => {
    const authority = `plain.good.test:${plain.port}`
    // The first request comes with the CONNECT, before the client can know that it is allowed.
    const client = await connect(authority, ask(authority, '/1'))
    expect(await client.response()).toMatchObject({ status: 200, body: 'ok' })
    client.write(ask(authority, '/2'))
    expect(await client.response()).toMatchObject({ status: 200, body: 'ok' })
    client.write(ask('elsewhere.test', '/3'))
    expect(await client.response()).toMatchObject({ status: 421 })
    expect(plain.received).toEqual([ask(authority, '/1') + ask(authority, '/2')])
    client.destroy()
  })

  it('carry nothing but TLS to a port without a rule for cleartext', async () => {
    const client = await connect(`tls.good.test:${tls.port}`)
    client.write(ask(`tls.good.test:${tls.port}`, '/'))
    const { statusLine } = await client.response()
    expect(statusLine).toMatch(/^HTTP\/1\.1 403 octroi non_tls /)
    await client.closed()
    expect(tls.connections).toBe(0)
  })

  it('carry no TLS to a port with a rule for cleartext only', async () => {
    const client = await connect(`plain.good.test:${plain.port}`)
    client.write(toRecords(helloMessage([serverNames('plain.good.test')])))
    expect(await client.closed()).toBe('')
    expect(plain.connections).toBe(0)
  })

  it('that are terminated carry 50 requests over one upstream connection, with an event for each', async () => {
    tlsScript.onRequest = ({ head, socket }) => void socket.write(ok(head.split(' ')[1] ?? ''))
    const authority = `tls.good.test:${tls.port}`
    const client = await broker.tunnel('s1', authority)
    for (let number = 0; number < 50; number++) {
      client.write(ask(authority, `/fifty/${number}`))
      expect((await client.response()).body).toBe(`/fifty/${number}`)
    }
    expect(tls.connections).toBe(1)
    client.destroy()
    const paths = (events: Awaited<ReturnType<typeof broker.events>>): string[] =>
      events.flatMap(({ path }) => (path?.startsWith('/fifty/') ? [path] : []))
    const events = await broker.events((all) => paths(all).length >= 50)
    expect(paths(events)).toEqual(Array.from({ length: 50 }, (_, number) => `/fifty/${number}`))
  })

  it('that are terminated carry an upload and its early refusal', async () => {
    tlsScript.onConnection = (socket) => {
      socket.once('data', () => {
        socket.pause()
        socket.write('HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig', () => socket.destroy())
      })
    }
    const authority = `tls.good.test:${tls.port}`
    const statuses = new Set<number>()
    for (let round = 0; round < 10; round++) {
      const client = await broker.tunnel('s1', authority)
      client.write(`POST /big HTTP/1.1\r\nHost: ${authority}\r\nContent-Length: 4000000\r\n\r\n`)
      client.write(Buffer.alloc(4_000_000))
      statuses.add((await client.response()).status)
      client.destroy()
    }
    expect([...statuses]).toEqual([413])
  })

  it('are not needed for an https URL: it is dialled over verified TLS', async () => {
    const authority = `tls.good.test:${tls.port}`
    const client = await broker.client()
    client.write(`GET https://${authority}/a?b HTTP/1.1\r\nHost: ${authority}\r\n${auth}\r\n`)
    expect(await client.response()).toMatchObject({ status: 200, body: 'ok' })
    expect(tls.received).toEqual([`GET /a?b HTTP/1.1\r\nHost: ${authority}\r\n\r\n`])
    client.destroy()
  })

  it.each([
    ['an authority that is not trusted', 'strange.good.test'],
    ['another name', 'tls.good.test'],
  ])('lead to no upstream with a certificate of %s', async (_, host) => {
    const authority = `${host}:${strange.port}`
    const client = await broker.client()
    client.write(`GET https://${authority}/ HTTP/1.1\r\nHost: ${authority}\r\n${auth}\r\n`)
    const { statusLine } = await client.response()
    expect(statusLine).toMatch(/^HTTP\/1\.1 502 octroi upstream_tls /)
    expect(strange.received.join('')).toBe('')
  })

  it('that are spliced bring the client to the upstream itself', async () => {
    const authority = `splice.good.test:${tls.port}`
    const client = await (await connect(authority)).startTls({ servername: 'splice.good.test', ca: ca.cert })
    client.write(ask('anything.at.all', '/unread'))
    expect(await client.response()).toMatchObject({ status: 200, body: 'ok' })
    expect(tls.received).toEqual([ask('anything.at.all', '/unread')])
    client.end()
    const isOurs = ({ host, end }: { host?: string | undefined; end?: string | undefined }): boolean =>
      host === 'splice.good.test' && end !== undefined
    const events = await broker.events((all) => all.some(isOurs))
    expect(events.find(isOurs)).toMatchObject({ end: 'complete', tls: { mode: 'opaque' } })
    expect(events.find(isOurs)?.bytes_up).toBeGreaterThan(200)
  })

  it.each([
    ['another name', toRecords(helloMessage([serverNames('evil.test')]))],
    ['no name', toRecords(helloMessage([]))],
    ['no TLS at all', Buffer.from('SSH-2.0-OpenSSH_9.2\r\n')],
  ])('that are spliced are cut before a byte goes upstream when the client says %s', async (_, bytes) => {
    const client = await connect(`splice.good.test:${spliced.port}`, bytes)
    expect(await client.closed()).toBe('')
    await eventually(() => spliced.sockets.size === 0, 'the upstream connection is closed')
    expect(spliced.received.join('')).toBe('')
  })

  it('that are spliced relay the ClientHello byte for byte and the end of one direction as that', async () => {
    const hello = toRecords(helloMessage([serverNames('splice.good.test')]), 40)
    splicedScript.onConnection = (socket) => {
      socket.allowHalfOpen = true
      socket.once('end', () => setTimeout(() => socket.end('last words'), 500))
    }
    const client = await connect(`splice.good.test:${spliced.port}`)
    for (const at of [0, 30, 90]) {
      client.write(hello.subarray(at, at === 90 ? undefined : at === 0 ? 30 : 90))
      await new Promise((resolve) => setTimeout(resolve, 10))
    }
    client.end()
    expect(await client.closed()).toBe('last words')
    expect(spliced.received).toEqual([hello.toString('latin1')])
  })
})
