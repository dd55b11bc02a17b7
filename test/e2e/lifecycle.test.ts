import { createServer, type AddressInfo, type Server, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { queryEvents } from '../../src/audit/query.ts'
import { OperatorError } from '../../src/core/errors.ts'
import { startApp } from '../../src/app.ts'
import { createLogger } from '../../src/logger.ts'
import { attackBench, until, type AttackBench } from '../helpers/attack-bench.ts'
import { startTestBroker } from '../helpers/broker.ts'
import { hastyClock } from '../helpers/hasty-clock.ts'
import { ok } from '../helpers/origin.ts'
import { proofCount } from '../helpers/proof-count.ts'
import { rawClient, type RawClient } from '../helpers/raw-client.ts'

/** Times in rows are recorded, never asserted; the hard limit is ten times the figure. */
const withinMs = 10_000

describe('revocation and new policies reach what is open', () => {
  let bench: AttackBench
  /** Ticks that an endless response has sent so far, by path. */
  const streams = new Map<string, Socket>()

  beforeAll(async () => {
    bench = await attackBench({
      onRequest: ({ head, body, socket }) => {
        const path = head.split(' ')[1] ?? ''
        if (!path.includes('/stream')) return void socket.write(ok(`${head}${body}`))
        streams.set(path, socket)
        socket.write(
          'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n',
        )
        const timer = setInterval(() => socket.write('6\r\n: up\n\n\r\n'), 10)
        socket.on('close', () => {
          clearInterval(timer)
          streams.delete(path)
        })
      },
      sandboxes: `
templates:
  worker:
    access: [api]
    allow:
      - { host: free.good.test, ports: [TLS], addresses: [127.0.0.0/8] }
      - { host: spliced.good.test, ports: [TLS], tls: splice, addresses: [127.0.0.0/8] }
      - { host: plain.good.test, scheme: http, ports: [PLAIN], addresses: [127.0.0.0/8] }
`,
      edit: (yaml, { tls, plain }) =>
        yaml.replaceAll('[TLS]', `[${tls}]`).replaceAll('[PLAIN]', `[${plain}]`),
    })
  })
  afterEach(() => bench.standing())
  afterAll(() => bench.stop())

  const get = (host: string, path: string, ...fields: string[]): string =>
    `GET ${path} HTTP/1.1\r\nHost: ${bench.at(host)}\r\n${fields.map((field) => `${field}\r\n`).join('')}\r\n`

  /** A sandbox with one of everything open: a kept plain connection, a kept tunnel, a spliced tunnel and a swapped stream. */
  const worker = async (name: string) => {
    const made = await bench.admin('POST', '/v1/sandboxes', {
      template: 'worker',
      name,
      agent: `agent-${name}`,
    })
    expect(made.status).toBe(201)
    bench.guard(`password of ${name}`, String(made.answer['token']))
    const login = await bench.broker.auth(name)
    const plainHost = `plain.good.test:${bench.plain.port}`
    const plainGet = `GET http://${plainHost}/ HTTP/1.1\r\nHost: ${plainHost}\r\n${login}\r\n`
    const plain = await bench.client()
    plain.write(plainGet)
    expect((await plain.response()).status).toBe(200)
    const tunnel = await bench.tunnel(name, 'free.good.test')
    tunnel.write(get('free.good.test', '/'))
    expect((await tunnel.response()).status).toBe(200)
    const { client: below } = await bench.connect(name, bench.at('spliced.good.test'))
    const spliced = await below.startTls({ servername: 'spliced.good.test', ca: bench.ca.cert })
    spliced.write('GET /spliced HTTP/1.1\r\nHost: spliced.good.test\r\n\r\n')
    expect((await spliced.response()).status).toBe(200)
    const bearer = `Authorization: Bearer ${bench.placeholder('api', name)}`
    const stream = await bench.tunnel(name, 'api.good.test')
    stream.write(get('api.good.test', `/v1/stream-${name}`, bearer))
    await stream.read((text) => text.includes(': up'))
    const swap = await bench.tunnel(name, 'api.good.test')
    swap.write(get('api.good.test', '/v1/x', bearer))
    expect((await swap.response()).status).toBe(200)
    return {
      plain,
      plainGet,
      tunnel,
      spliced,
      stream,
      swap,
      bearer,
      all: [plain, tunnel, spliced, stream, swap],
    }
  }

  /** How the exchange with that path ended; its decision was written when it began. */
  const endOf = (path: string): string | undefined =>
    queryEvents(bench.broker.stateFolder, {}).find((event) => event.path === path)?.end

  /** The next request on an open connection is refused with `reason`, or the connection is gone already. */
  const refusedNext = async (client: RawClient, request: string, reasons: string): Promise<void> => {
    client.write(request)
    await client.read((text) => client.isClosed || text.includes('\r\n\r\n'), withinMs)
    if (client.text !== '')
      expect(client.text).toMatch(new RegExp(`^HTTP/1\\.1 (403|407) octroi (${reasons}) `))
  }

  it('pausing a sandbox ends its streams and tunnels and refuses its next requests; resuming it serves them again', async () => {
    const open = await worker('pausing')
    const mark = bench.mark()
    const started = Date.now()
    expect((await bench.admin('POST', '/v1/sandboxes/pausing/pause')).status).toBe(200)
    await Promise.all([
      open.stream.closed(withinMs),
      open.spliced.closed(withinMs),
      open.tunnel.closed(withinMs),
    ])
    expect(Date.now() - started).toBeLessThan(withinMs)
    expect(open.stream.text.endsWith('0\r\n\r\n')).toBe(false)
    await refusedNext(open.plain, open.plainGet, 'sandbox_paused')
    await until(() => streams.size === 0, 'closed upstream')
    expect(mark.upstream()).not.toContain('/v1/x')
    await until(() => endOf('/v1/stream-pausing') === 'revoked', 'event of the stream')
    expect((await bench.admin('POST', '/v1/sandboxes/pausing/resume')).status).toBe(200)
    const again = await bench.tunnel('pausing', 'api.good.test')
    again.write(get('api.good.test', '/v1/again', open.bearer))
    expect((await again.response()).status).toBe(200)
    for (const one of [...open.all, again]) one.destroy()
  })

  it('destroying a sandbox ends everything it has open, and its password and placeholder are gone', async () => {
    const open = await worker('ending')
    const mark = bench.mark()
    expect((await bench.admin('DELETE', '/v1/sandboxes/ending')).status).toBe(200)
    await Promise.all([
      open.stream.closed(withinMs),
      open.spliced.closed(withinMs),
      open.tunnel.closed(withinMs),
      open.swap.closed(withinMs),
    ])
    await refusedNext(open.plain, open.plainGet, 'auth_missing|auth_invalid')
    expect(mark.upstream() + mark.plain()).not.toContain('GET ')
    await until(() => endOf('/v1/stream-ending') === 'revoked', 'event of the stream')
    await until(() => streams.size === 0, 'closed upstream')
    for (const one of open.all) one.destroy()
  })

  for (const kind of ['handle', 'credential', 'lease'] as const) {
    it(`A168, B061: a revoked ${kind} is not swapped again, and a stream that used it ends`, async () => {
      const name = `by-${kind}`
      const open = await worker(name)
      const lease = queryEvents(bench.broker.stateFolder, { sandbox: name }).find(
        (event) => event.lease !== undefined,
      )?.lease
      const target = { handle: bench.placeholder('api', name), credential: 'k1', lease: lease ?? '' }[kind]
      expect((await bench.admin('POST', '/v1/revoke', { kind, target })).status).toBe(200)
      const mark = bench.mark()
      open.swap.write(get('api.good.test', '/v1/after', open.bearer))
      await open.swap.read((text) => open.swap.isClosed || text.includes('\r\n\r\n'), withinMs)
      expect(open.swap.text).toMatch(/^(HTTP\/1\.1 (403|503) octroi |$)/)
      expect(mark.upstream()).not.toContain('/v1/after')
      expect(mark.upstream()).not.toContain(bench.secrets.k1)
      await open.stream.closed(withinMs)
      await until(() => endOf(`/v1/stream-${name}`) === 'revoked', 'event of the stream')
      // What does not need the handle goes on.
      open.tunnel.write(get('free.good.test', '/still'))
      expect((await open.tunnel.response()).status).toBe(200)
      if (kind !== 'handle')
        expect((await bench.admin('POST', '/v1/revoke', { kind, target, undo: true })).status).toBe(200)
      for (const one of open.all) one.destroy()
      await bench.admin('DELETE', `/v1/sandboxes/${name}`)
      await until(() => streams.size === 0, 'closed upstream')
    })
  }

  it('A168: no request that starts after a revocation is swapped, wherever a streamed body was', async () => {
    for (let round = 0; round < proofCount(10, 1_000); round++) {
      const name = `r${round}`
      const made = await bench.admin('POST', '/v1/sandboxes', { template: 'worker', name })
      bench.guard(`password of ${name}`, String(made.answer['token']))
      const bearer = `Authorization: Bearer ${bench.placeholder('api', name)}`
      const client = await bench.tunnel(name, 'api.good.test')
      client.write(
        `POST /v1/body HTTP/1.1\r\nHost: ${bench.at('api.good.test')}\r\n${bearer}\r\nContent-Length: 100\r\n\r\n`,
      )
      const next = await bench.tunnel(name, 'api.good.test')
      await sleep((round * 7) % 20)
      client.write('x'.repeat(50))
      const revoked = await bench.admin('POST', '/v1/revoke', {
        kind: 'handle',
        target: bench.placeholder('api', name),
      })
      expect(revoked.status).toBe(200)
      const mark = bench.mark()
      client.write('x'.repeat(50))
      next.write(get('api.good.test', '/v1/late', bearer))
      await next.read((text) => next.isClosed || text.includes('\r\n\r\n'), withinMs)
      expect(next.text).toMatch(/^(HTTP\/1\.1 403 octroi handle_unknown |$)/)
      expect(mark.upstream()).not.toContain(bench.secrets.k1)
      for (const one of [client, next]) one.destroy()
      await bench.admin('DELETE', `/v1/sandboxes/${name}`)
    }
  })

  it('B082: a rule that is taken away ends its tunnels and streams, and what is still allowed goes on', async () => {
    const before = await bench.config()
    const kept = await bench.tunnel('s1', 'free.good.test')
    kept.write(get('free.good.test', '/stream-kept'))
    await kept.read((text) => text.includes(': up'))
    const idle = await bench.tunnel('s1', 'good.cdn.test')
    idle.write(get('good.cdn.test', '/'))
    expect((await idle.response()).status).toBe(200)
    const running = await bench.tunnel('s1', 'good.cdn.test')
    running.write(get('good.cdn.test', '/stream-cdn'))
    await running.read((text) => text.includes(': up'))
    const mark = bench.mark()
    await bench.broker.reconfigure(before.replace(/.*host: good\.cdn\.test.*\n/, ''))
    await Promise.all([idle.closed(withinMs), running.closed(withinMs)])
    expect(running.text.endsWith('0\r\n\r\n')).toBe(false)
    const length = kept.text.length
    await kept.read((text) => text.length > length + 50)
    expect(kept.isClosed).toBe(false)
    const refused = await bench.connect('s1', bench.at('good.cdn.test'))
    expect(refused.response.statusLine).toContain('host_denied')
    await until(
      () =>
        mark
          .events()
          .some(
            ({ path, end, reason }) => path === '/stream-cdn' && end === 'revoked' && reason === 'revoked',
          ),
      'event of the stream',
    )
    await bench.broker.reconfigure(before)
    const back = await bench.connect('s1', bench.at('good.cdn.test'))
    expect(back.response.status).toBe(200)
    for (const one of [kept, idle, running, refused.client, back.client]) one.destroy()
    await until(() => streams.size === 0, 'closed upstream')
  })

  it('a sandbox whose time is over, and a rule whose date has come, end what they have open', async () => {
    const made = await bench.admin('POST', '/v1/sandboxes', {
      template: 'worker',
      name: 'brief',
      ttl_ms: 1_500,
    })
    expect(made.status).toBe(201)
    bench.guard('password of brief', String(made.answer['token']))
    const before = await bench.config()
    const date = new Date(Date.now() + 1_500).toISOString()
    const rules = ['good.cdn.test', 'dated.good.test, tls: splice'].map(
      (host) =>
        `- { host: ${host}, ports: [${bench.upstream.port}], addresses: [127.0.0.0/8], expires: ${date} }`,
    )
    await bench.broker.reconfigure(
      before.replace(/- \{ host: good\.cdn\.test.*\n/, `${rules.join('\n      ')}\n`),
    )
    const splice = async (sandbox: string, host: string): Promise<RawClient> => {
      const { client } = await bench.connect(sandbox, bench.at(host))
      const spliced = await client.startTls({ servername: host, ca: bench.ca.cert })
      spliced.write(`GET /stream-${sandbox} HTTP/1.1\r\nHost: ${host}\r\n\r\n`)
      await spliced.read((text) => text.includes(': up'))
      return spliced
    }
    const streaming = await bench.tunnel('s1', 'good.cdn.test')
    streaming.write(get('good.cdn.test', '/stream-dated'))
    await streaming.read((text) => text.includes(': up'))
    const open = [
      await splice('brief', 'spliced.good.test'),
      await splice('s1', 'dated.good.test'),
      streaming,
    ]
    await Promise.all(open.map((client) => client.closed(withinMs)))
    const late = await bench.connect('s1', bench.at('good.cdn.test'))
    expect(late.response.statusLine).toMatch(/ 403 octroi rule_expired /)
    await bench.broker.reconfigure(before)
    for (const one of [...open, late.client]) one.destroy()
    await until(() => streams.size === 0, 'closed upstream')
  })

  it('B082: a broken file changes nothing, and says so loudly', async () => {
    const before = await bench.config()
    const client = await bench.tunnel('s1', 'free.good.test')
    const lines = bench.broker.log.length
    for (const broken of [
      before.replace('agent: a1', 'agnet: a1'),
      `${before}\n  - [`,
      before.replace('access: [api, echo, git]', 'access: [nothing]'),
    ]) {
      await expect(bench.broker.reconfigure(broken)).rejects.toThrow(OperatorError)
      client.write(get('free.good.test', '/same'))
      expect((await client.response()).status).toBe(200)
    }
    await until(() => bench.broker.log.slice(lines).some((line) => line.includes('octroi.yaml')), 'log line')
    await bench.broker.reconfigure(before)
    client.destroy()
  })

  it('A293: under load each reload is all or nothing, and every event names the policy it was judged by', async () => {
    const before = await bench.config()
    const without = before.replace(
      /.*host: plain\.good\.test, scheme: http, ports: \[\d+\], addresses: \[127.*\n/,
      '',
    )
    expect(without).not.toBe(before)
    const login = await bench.broker.auth('s1')
    const host = `plain.good.test:${bench.plain.port}`
    const mark = bench.mark()
    let isDone = false
    const statuses = new Map<number, number>()
    const load = Array.from({ length: 2 }, async () => {
      while (!isDone) {
        const client = await bench.client()
        client.write(`GET http://${host}/ HTTP/1.1\r\nHost: ${host}\r\n${login}\r\n`)
        const { status } = await client.response().catch(() => ({ status: 0 }))
        statuses.set(status, (statuses.get(status) ?? 0) + 1)
        client.destroy()
        await sleep(10)
      }
    })
    const hashes = new Set<string>()
    for (let i = 0; i < proofCount(10, 100); i++) {
      await bench.broker.reconfigure(i % 2 === 0 ? without : before)
      hashes.add(bench.broker.app.holder.current().hash)
      const client = await bench.client()
      client.write(`GET http://${host}/ HTTP/1.1\r\nHost: ${host}\r\n${login}\r\n`)
      expect((await client.response()).status).toBe(i % 2 === 0 ? 403 : 200)
      client.destroy()
      await sleep(100)
    }
    isDone = true
    await Promise.all(load)
    await bench.broker.reconfigure(before)
    // A request in flight when its rule goes is refused; cut only if its answer had begun.
    expect([...statuses.keys()].filter((status) => ![200, 403, 0].includes(status))).toEqual([])
    expect(statuses.get(0) ?? 0).toBeLessThan(5)
    const judged = mark.events().filter(({ kind, sandbox }) => kind === 'exchange' && sandbox === 's1')
    expect(judged.length).toBeGreaterThan(20)
    expect(judged.every(({ policy }) => policy !== undefined && hashes.has(policy))).toBe(true)
    const verdicts = new Map<string, Set<string>>()
    for (const { policy = '', verdict = '', end } of judged) {
      if (end !== 'revoked') verdicts.set(policy, (verdicts.get(policy) ?? new Set()).add(verdict))
    }
    for (const found of verdicts.values()) expect(found.size).toBe(1)
  })
})

describe('upstreams that stall, and parts that fail', () => {
  let bench: AttackBench
  const servers: Server[] = []
  let silent = 0
  let trickle = 0
  let stalled = 0

  const listen = async (onConnection: (socket: Socket) => void): Promise<number> => {
    const server = createServer((socket) => {
      socket.on('error', () => undefined)
      onConnection(socket)
    })
    servers.push(server)
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    return (server.address() as AddressInfo).port
  }

  beforeAll(async () => {
    silent = await listen((socket) => void socket.resume())
    trickle = await listen((socket) => {
      const timer = setInterval(() => socket.write('H'), 100)
      socket.on('close', () => clearInterval(timer))
      socket.resume()
    })
    stalled = await listen((socket) => {
      socket.once('data', () => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf'))
    })
    bench = await attackBench({
      clock: hastyClock(10),
      limits: { firstByteMs: 5_000, stallMs: 7_000, headMs: 7_000 },
      allow: [silent, trickle, stalled].flatMap((port) => [
        `{ host: stall.good.test, scheme: http, ports: [${port}], addresses: [127.0.0.0/8] }`,
        `{ host: tls.wild.test, ports: [${port}], addresses: [127.0.0.0/8] }`,
      ]),
    })
    for (const port of [silent, trickle, stalled]) bench.mayDial.add(`127.0.0.1:${port}`)
  })
  afterEach(() => bench.standing())
  afterAll(async () => {
    await bench.stop()
    for (const server of servers) server.close()
  })

  const stall = async (port: number): Promise<string> => {
    const host = `stall.good.test:${port}`
    const client = await bench.client()
    client.write(`GET http://${host}/ HTTP/1.1\r\nHost: ${host}\r\n${await bench.broker.auth('s1')}\r\n`)
    await client.read((text) => client.isClosed || /\r\n\r\n.+/s.test(text), withinMs)
    if (port === stalled) await client.closed(withinMs)
    const { text } = client
    client.destroy()
    return text
  }

  it('A290: an upstream that accepts and is silent, or trickles its head, is 504', async () => {
    for (const port of [silent, trickle]) {
      const mark = bench.mark()
      expect(await stall(port)).toMatch(/^HTTP\/1\.1 504 octroi upstream_timeout /)
      expect((await mark.decisions(1))[0]).toMatchObject({
        agent: 'a1',
        reason: 'upstream_timeout',
        status: 504,
      })
    }
  })

  it('A290: a response body that stalls ends without looking whole', async () => {
    const mark = bench.mark()
    const text = await stall(stalled)
    expect(text).toMatch(/^HTTP\/1\.1 200 OK\r\n/)
    // The last characters could begin a secret, and are held for what never comes.
    expect(text).toMatch(/\r\n\r\nha?l?f?$/)
    expect((await mark.decisions(1))[0]).toMatchObject({ agent: 'a1', end: 'upstream_failed' })
  })

  it('A290: a request body that stalls frees its place', async () => {
    const mark = bench.mark()
    const host = `plain.good.test:${bench.plain.port}`
    const client = await bench.client()
    client.write(
      `POST http://${host}/ HTTP/1.1\r\nHost: ${host}\r\n${await bench.broker.auth('s1')}Content-Length: 100\r\n\r\nhalf`,
    )
    await client.closed(withinMs)
    const [event] = await mark.decisions(1)
    expect(event?.agent).toBe('a1')
    expect(mark.plain()).not.toMatch(/GET|100 OK/)
  })

  it('A290: a TLS handshake that stalls is 504 or 502, and another destination is served meanwhile', async () => {
    const client = await bench.tunnel('s1', `tls.wild.test:${silent}`)
    const mark = bench.mark()
    client.write(`GET / HTTP/1.1\r\nHost: tls.wild.test:${silent}\r\n\r\n`)
    const other = await bench.tunnel('s1', 'free.good.test')
    other.write(`GET / HTTP/1.1\r\nHost: ${bench.at('free.good.test')}\r\n\r\n`)
    expect((await other.response(2_000)).status).toBe(200)
    const response = await client.response(15_000)
    expect([502, 504]).toContain(response.status)
    const events = await mark.decisions(2)
    expect(events.at(-1)).toMatchObject({ host: 'tls.wild.test', verdict: 'deny' })
    for (const one of [client, other]) one.destroy()
  })
})

describe('starting, stopping and failing inside', () => {
  it('A295: a part that throws or rejects fails its own request only', async () => {
    const failures: Readonly<Record<string, () => Promise<readonly string[]>>> = {
      'throws.wild.test': () => {
        throw new TypeError('thrown in a test: internal-detail-9')
      },
      'rejects.wild.test': () => Promise.reject(new TypeError('rejected in a test: internal-detail-9')),
      'odd.wild.test': () => Promise.resolve(['not an address']),
      'none.wild.test': () => Promise.resolve([]),
    }
    const bench = await attackBench({
      resolver: { resolve: (host) => failures[host]?.() ?? Promise.resolve(['127.0.0.1']) },
    })
    for (const name of Object.keys(failures)) {
      const mark = bench.mark()
      const { client, response } = await bench.connect('s1', bench.at(name))
      expect([name, response.status]).toEqual([
        name,
        expect.toSatisfy((status) => [403, 500, 502].includes(Number(status))),
      ])
      expect(response.raw).not.toContain('internal-detail-9')
      expect((await mark.decisions(1))[0]).toMatchObject({ agent: 'a1', verdict: 'deny', host: name })
      client.destroy()
      const good = await bench.tunnel('s1', 'free.good.test')
      good.write(`GET / HTTP/1.1\r\nHost: ${bench.at('free.good.test')}\r\n\r\n`)
      const after = bench.mark()
      expect((await good.response()).status).toBe(200)
      await after.decisions(1)
      good.destroy()
    }
    await bench.stop()
  })

  it('A297: connections while starting are refused until everything stands', async () => {
    const probe = createServer()
    await new Promise<void>((resolve) => probe.listen(0, '127.0.0.1', resolve))
    const { port } = probe.address() as AddressInfo
    await new Promise((resolve) => probe.close(resolve))
    let isStarted = false
    const answers: string[] = []
    const knocking = (async () => {
      while (!isStarted) {
        const client = await rawClient(port).catch(() => undefined)
        if (client !== undefined) {
          client.write('CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n')
          answers.push((await client.response().catch(() => ({ statusLine: 'closed' }))).statusLine)
          client.destroy()
        }
        await sleep(1)
      }
    })()
    const broker = await startTestBroker({
      yaml: `listen: { proxy: 127.0.0.1:${port}, admin: 127.0.0.1:0 }\nsandboxes: { s1: { identity: [{ token: generated }] } }\n`,
    })
    isStarted = true
    await knocking
    expect(
      answers.filter(
        (line) => !/^(closed|HTTP\/1\.1 (407 octroi auth_missing|503 octroi not_ready) .*)$/.test(line),
      ),
    ).toEqual([])
    await broker.stop()
  })

  it('A298: a second broker on the same state folder, and one on a taken port, say what is in the way', async () => {
    const broker = await startTestBroker({ yaml: 'sandboxes: {}\n' })
    const log = createLogger({ destination: { write: () => undefined } })
    await expect(startApp({ configFile: `${broker.folder}/octroi.yaml`, env: {}, log })).rejects.toThrow(
      /another|already|taken|locked|running/i,
    )
    await expect(
      startTestBroker({
        yaml: `listen: { proxy: 127.0.0.1:${broker.port}, admin: 127.0.0.1:0 }\nsandboxes: {}\n`,
      }),
    ).rejects.toThrow(new RegExp(String(broker.port)))
    const client = await rawClient(broker.port)
    client.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n')
    expect((await client.response()).status).toBe(400)
    client.destroy()
    await broker.stop()
  })

  it('a graceful stop lets a request in flight finish, takes no new one, and loses no event', async () => {
    let release: (() => void) | undefined
    const bench = await attackBench({
      onRequest: ({ socket }) => {
        release = () => socket.write(ok('late but whole'))
      },
    })
    const client = await bench.tunnel('s1', 'free.good.test')
    client.write(`GET /drained HTTP/1.1\r\nHost: ${bench.at('free.good.test')}\r\n\r\n`)
    await until(() => release !== undefined, 'request upstream')
    const stopped = bench.broker.app.stop()
    await until(() => bench.broker.app.listeners.length > 0, 'listeners')
    const late = await bench.own(() => rawClient(bench.broker.port)).catch(() => undefined)
    if (late !== undefined) {
      late.write('CONNECT free.good.test:443 HTTP/1.1\r\nHost: free.good.test:443\r\n\r\n')
      await late.closed()
      expect(late.text).not.toMatch(/ 200 /)
    }
    release?.()
    expect((await client.response()).body).toBe('late but whole')
    await stopped
    expect(queryEvents(bench.broker.stateFolder, { host: 'free.good.test' })).toMatchObject([
      { path: '/drained', verdict: 'allow', end: 'complete', status: 200 },
    ])
    await bench.stop()
  })
})
