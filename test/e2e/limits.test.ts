import type { Socket } from 'node:net'
import { brotliCompressSync, constants, gzipSync, zstdCompressSync } from 'node:zlib'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { queryEvents } from '../../src/audit/query.ts'
import { attackBench, until, type AttackBench } from '../helpers/attack-bench.ts'
import { expectAllowed, expectRefusedInside } from '../helpers/attack-cases.ts'
import { ok } from '../helpers/origin.ts'
import { proofCount } from '../helpers/proof-count.ts'

type Answer = (socket: Socket, head: string) => void

/** Bodies that grow a thousandfold when they are decoded. */
const zeros = Buffer.alloc(48 * 1024 * 1024)
const bombs: readonly (readonly [string, () => Buffer])[] = [
  ['gzip', () => gzipSync(zeros)],
  ['br', () => brotliCompressSync(zeros, { params: { [constants.BROTLI_PARAM_QUALITY]: 1 } })],
  ['zstd', () => zstdCompressSync(zeros)],
  ['gzip, gzip', () => gzipSync(gzipSync(zeros))],
]

describe('bounds on what a client or an upstream may take', () => {
  let bench: AttackBench
  const answers = new Map<string, Answer>()
  let requests = 0

  beforeAll(async () => {
    bench = await attackBench({
      limits: { headMs: 700, handshakeMs: 700 },
      onRequest: ({ head, socket, body }) => {
        const path = head.split(' ')[1] ?? ''
        const found = answers.get(path)
        if (found === undefined) socket.write(ok(`${head.slice(0, 2_000)}${body.length}`))
        else found(socket, head)
      },
      sandboxes: `
  capped:
    agent: capped
    allow: [{ host: free.good.test, ports: [TLS], addresses: [127.0.0.0/8] }]
    limits: { tunnels: 8, requests: 4, body: 100KB, response: 100KB }
  slow:
    agent: slow
    allow: [{ host: free.good.test, ports: [TLS], addresses: [127.0.0.0/8] }]
    limits: { requests_per_minute: 5 }
`,
      edit: (yaml, { tls }) => yaml.replaceAll('TLS]', `${tls}]`),
    })
  })
  afterEach(() => bench.standing())
  afterAll(() => bench.stop())

  const free = (): string => bench.at('free.good.test')
  const get = (path: string, ...fields: string[]): string =>
    `GET ${path} HTTP/1.1\r\nHost: ${free()}\r\n${fields.map((field) => `${field}\r\n`).join('')}\r\n`
  const answered = (answer: Answer): string => {
    const path = `/r${requests++}`
    answers.set(path, answer)
    return path
  }
  /** Another sandbox is served as ever. */
  const neighbour = async (): Promise<void> => {
    const client = await bench.tunnel('s2', 'api.good.test')
    client.write(`GET /v1/probe HTTP/1.1\r\nHost: ${bench.at('api.good.test')}\r\n\r\n`)
    expect((await client.response(2_000)).status).toBe(200)
    client.destroy()
  }

  it('A224: a head over a limit is 431 or 414 and goes nowhere', async () => {
    const cases: readonly (readonly [string, number])[] = [
      [get('/', ...Array.from({ length: 17 }, (_, i) => `X-${i}: ${'v'.repeat(1_000)}`)), 431],
      [get('/', ...Array.from({ length: 101 }, (_, i) => `X-${i}: 1`)), 431],
      [get('/', `X-Long: ${'v'.repeat(100 * 1024)}`), 431],
      [get(`/${'p'.repeat(8 * 1024)}`), 414],
    ]
    for (const [request, status] of cases) {
      const client = await bench.tunnel('s1', 'free.good.test')
      await expectRefusedInside(bench, client, { request, status, reason: 'too_large' })
      client.destroy()
    }
    const client = await bench.tunnel('s1', 'free.good.test')
    await expectAllowed(
      bench,
      client,
      get(`/${'p'.repeat(8_000)}`, ...Array.from({ length: 90 }, (_, i) => `X-${i}: 1`)),
    )
  })

  it('A225: connections that send a head byte by byte are closed, and others are served meanwhile', async () => {
    const slow = await Promise.all(Array.from({ length: proofCount(40, 1_000) }, () => bench.client()))
    const timer = setInterval(() => slow.forEach((client) => client.write('G')), 50)
    for (const client of slow) client.write('G')
    await neighbour()
    await Promise.all(slow.map((client) => client.closed(8_000)))
    clearInterval(timer)
    for (const client of slow) expect(client.text).toMatch(/^(HTTP\/1\.1 4|$)/)
  })

  it('A225, B039: a tunnel in which nothing is said, or half a ClientHello, is closed', async () => {
    const hello = await bench.hello('free.good.test')
    for (const opening of [Buffer.alloc(0), hello.subarray(0, 40), Buffer.from('GE')]) {
      const mark = bench.mark()
      const { client } = await bench.connect('s1', free())
      if (opening.length > 0) client.write(opening)
      await client.closed(8_000)
      expect((await mark.decisions(1))[0]).toMatchObject({ agent: 'a1', method: 'CONNECT' })
      expect(mark.upstream()).toBe('')
    }
  })

  for (const [coding, make] of bombs) {
    it(`A227: a ${coding} bomb is stopped, at a bound destination and at any other`, async () => {
      const bytes = make()
      const path = answered(
        (socket) =>
          void socket.write(ok(bytes.toString('latin1'), [`Content-Encoding: ${coding}`]), 'latin1'),
      )
      const before = process.memoryUsage().rss
      for (const [host, prefix] of [
        ['api.good.test', '/v1'],
        ['free.good.test', ''],
      ] as const) {
        answers.set(`/v1${path}`, answers.get(path) ?? (() => undefined))
        const client = await bench.tunnel('s1', host)
        const mark = bench.mark()
        client.write(`GET ${prefix}${path} HTTP/1.1\r\nHost: ${bench.at(host)}\r\n\r\n`)
        await Promise.race([client.closed(10_000), client.response(10_000)])
        const [event] = await mark.decisions(1)
        expect([host, event]).toMatchObject([host, { agent: 'a1', verdict: 'deny', reason: 'bomb' }])
        client.destroy()
      }
      expect(process.memoryUsage().rss - before).toBeLessThan(256 * 1024 * 1024)
    })
  }

  it('A229, B080: a tunnel too many is 429, and the places come back when tunnels close', async () => {
    for (let round = 0; round < 2; round++) {
      const open = await Promise.all(
        Array.from({ length: 8 }, () => bench.tunnel('capped', 'free.good.test')),
      )
      const mark = bench.mark()
      const { client, response } = await bench.connect('capped', free())
      expect(response.statusLine).toMatch(/^HTTP\/1\.1 429 octroi rate_limited /)
      expect(response.fields['retry-after']).toMatch(/^[0-9]+$/)
      client.destroy()
      expect((await mark.decisions(1))[0]).toMatchObject({
        agent: 'capped',
        verdict: 'deny',
        reason: 'rate_limited',
      })
      await neighbour()
      const closing = bench.mark()
      for (const one of open) one.destroy()
      await until(
        () => closing.events().filter(({ agent }) => agent === 'capped').length >= 8,
        'eight closed tunnels',
      )
    }
  })

  it('requests in flight past the limit are 429, and the next one is served when they are done', async () => {
    const waiting: Socket[] = []
    const path = answered((socket) => void waiting.push(socket))
    const clients = await Promise.all(
      Array.from({ length: 5 }, () => bench.tunnel('capped', 'free.good.test')),
    )
    for (const client of clients.slice(0, 4)) client.write(get(path))
    await until(() => waiting.length === 4, 'four requests upstream')
    const [last] = clients.slice(4)
    if (last === undefined) throw new TypeError('no client')
    await expectRefusedInside(bench, last, {
      request: get('/'),
      status: 429,
      reason: 'rate_limited',
      agent: 'capped',
    })
    for (const socket of waiting) socket.write(ok('late'))
    for (const client of clients.slice(0, 4)) expect((await client.response()).body).toBe('late')
    last.write(get('/'))
    expect((await last.response()).status).toBe(200)
    for (const client of clients) client.destroy()
  })

  it('a rate per minute is kept across tunnels', async () => {
    const statuses: number[] = []
    for (let i = 0; i < 7; i++) {
      const client = await bench.tunnel('slow', 'free.good.test')
      client.write(get('/'))
      statuses.push((await client.response()).status)
      client.destroy()
    }
    expect(statuses).toEqual([200, 200, 200, 200, 200, 429, 429])
  })

  it('B084: a request body over its limit is 413, known or found on the way, and never arrives whole', async () => {
    const declared = await bench.tunnel('capped', 'free.good.test')
    const request = `POST / HTTP/1.1\r\nHost: ${free()}\r\nContent-Length: 100001\r\n\r\n`
    await expectRefusedInside(bench, declared, { request, status: 413, reason: 'too_large', agent: 'capped' })
    const streamed = await bench.tunnel('capped', 'free.good.test')
    const mark = bench.mark()
    streamed.write(`POST / HTTP/1.1\r\nHost: ${free()}\r\nTransfer-Encoding: chunked\r\n\r\n`)
    for (let i = 0; i < 12; i++) streamed.write(`2710\r\n${'b'.repeat(10_000)}\r\n`)
    streamed.write('0\r\n\r\n')
    expect((await streamed.response()).status).toBe(413)
    expect(mark.upstream().endsWith('0\r\n\r\n')).toBe(false)
    expect((await mark.decisions(1))[0]).toMatchObject({
      agent: 'capped',
      verdict: 'deny',
      reason: 'too_large',
    })
  })

  it('B084: a response over its limit is 502 when that is known, and cut when it is found on the way', async () => {
    const declared = answered((socket) => void socket.write(ok('x'.repeat(100_001))))
    const streamed = answered((socket) => {
      socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n')
      for (let i = 0; i < 12; i++) socket.write(`2710\r\n${'b'.repeat(10_000)}\r\n`)
      socket.write('0\r\n\r\n')
    })
    const died = answered((socket) => {
      socket.write('HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf')
      setTimeout(() => socket.destroy(), 30)
    })
    const closing = answered((socket) => {
      socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n')
      setTimeout(() => socket.destroy(), 30)
    })
    for (const path of [declared, streamed, died, closing]) {
      const client = await bench.tunnel('capped', 'free.good.test')
      const mark = bench.mark()
      client.write(get(path))
      await client.closed(5_000)
      if (path === declared) expect(client.text).toMatch(/^HTTP\/1\.1 502 /)
      else expect([path, client.text]).toEqual([path, expect.not.stringMatching(/0\r\n\r\n$/)])
      expect([path, (await mark.decisions(1))[0]]).toMatchObject([
        path,
        { agent: 'capped', reason: 'upstream_failed', end: 'upstream_failed' },
      ])
      client.destroy()
    }
  })

  it('A239: a client that does not read holds the upstream back, and a large body passes whole', async () => {
    const size = 32 * 1024 * 1024
    let written = 0
    const path = answered((socket) => {
      socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${size}\r\n\r\n`)
      const block = Buffer.alloc(256 * 1024, 'b')
      const pump = (): void => {
        while (written < size) {
          written += block.length
          if (!socket.write(block)) return void socket.once('drain', pump)
        }
      }
      pump()
    })
    const { client: below } = await bench.connect('s1', free())
    const client = await below.startTls({ servername: 'free.good.test', ca: bench.broker.ca })
    const mark = bench.mark()
    client.socket.pause()
    client.write(get(path))
    await until(() => written > 0, 'first bytes')
    let before = -1
    while (written !== before) {
      before = written
      await new Promise((resolve) => setTimeout(resolve, 150))
    }
    expect(written).toBeLessThan(size / 2)
    let received = 0
    client.socket.on('data', (chunk: Buffer) => (received += chunk.length))
    client.socket.resume()
    await until(() => received > size, 'the whole body')
    expect((await mark.decisions(1))[0]).toMatchObject({
      agent: 'a1',
      status: 200,
      bytes_down: size,
      end: 'complete',
    })
    client.destroy()
  })

  it('A241: a response head over the limits is 502', async () => {
    const heads = [
      `HTTP/1.1 200 OK\r\n${'Set-Cookie: a=1\r\n'.repeat(10_000)}Content-Length: 0\r\n\r\n`,
      `HTTP/1.1 200 ${'x'.repeat(1_000_000)}\r\nContent-Length: 0\r\n\r\n`,
      `HTTP/1.1 200 OK\r\nX: ${'x'.repeat(1_000_000)}\r\nContent-Length: 0\r\n\r\n`,
      'HTTP/1.1 100 Continue\r\n\r\n'.repeat(1_000),
    ]
    for (const head of heads) {
      const path = answered((socket) => void socket.write(head))
      const client = await bench.tunnel('s1', 'free.good.test')
      const mark = bench.mark()
      client.write(get(path))
      expect((await client.response()).statusLine).toMatch(/^HTTP\/1\.1 502 octroi upstream_failed /)
      expect((await mark.decisions(1))[0]).toMatchObject({ agent: 'a1', reason: 'upstream_failed' })
      client.destroy()
    }
  })

  it('A242: an upstream that always hangs up is dialled at most twice for a request', async () => {
    const path = answered((socket) => void socket.destroy())
    for (let i = 0; i < 10; i++) {
      const own = await bench.tunnel('s1', 'free.good.test')
      const mark = bench.mark()
      own.write(get(path))
      expect((await own.response()).status).toBe(502)
      expect(mark.dials().length).toBeLessThanOrEqual(2)
      expect(mark.lookups().length).toBeLessThanOrEqual(2)
      await mark.decisions(1)
      own.destroy()
    }
  })

  it('B013: a kept connection that its server has closed does not fail the next request, and no POST runs twice', async () => {
    const once = answered((socket) => {
      socket.write(ok('closing'))
      setTimeout(() => socket.end(), 5)
    })
    for (let i = 0; i < 10; i++) {
      const client = await bench.tunnel('s1', 'free.good.test')
      const before = bench.mark()
      client.write(get(once))
      expect((await client.response()).body).toBe('closing')
      await before.decisions(1)
      await new Promise((resolve) => setTimeout(resolve, 30))
      const mark = bench.mark()
      client.write(`POST /run${i} HTTP/1.1\r\nHost: ${free()}\r\nContent-Length: 2\r\n\r\n{}`)
      expect((await client.response()).status).toBe(200)
      expect(mark.upstream().match(new RegExp(`POST /run${i} `, 'g'))).toHaveLength(1)
      await mark.decisions(1)
      client.destroy()
    }
  })

  it('B011: a client that leaves ends its upstream request', async () => {
    const live = new Set<Socket>()
    const path = answered((socket) => {
      live.add(socket)
      const timer = setInterval(() => socket.write('6\r\nhello\n\r\n'), 5)
      socket.on('close', () => {
        clearInterval(timer)
        live.delete(socket)
      })
      socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n')
    })
    const mark = bench.mark()
    const clients = await Promise.all(Array.from({ length: 20 }, () => bench.tunnel('s1', 'free.good.test')))
    for (const client of clients) client.write(get(path))
    await Promise.all(clients.map((client) => client.read((text) => text.includes('hello'))))
    expect(live.size).toBe(20)
    for (const client of clients) client.destroy()
    await until(() => live.size === 0, 'closed upstream connections')
    const events = await mark.decisions(20)
    expect(events.every(({ agent, end }) => agent === 'a1' && end === 'client_gone')).toBe(true)
  })

  it('A243: a flood of identical refusals is few events and no lost count', async () => {
    const count = proofCount(1_000, 100_000)
    const mark = bench.mark()
    const client = await bench.client()
    const line = `CONNECT flood.test:443 HTTP/1.1\r\nHost: flood.test:443\r\n${await bench.broker.auth('s1')}\r\n`
    for (let sent = 0; sent < count; sent += 100) {
      client.write(line.repeat(100))
      for (let i = 0; i < 100; i++) expect((await client.response()).status).toBe(403)
    }
    client.destroy()
    mark.tally(count)
    const rows = queryEvents(bench.broker.stateFolder, { host: 'flood.test' })
    expect(rows.length).toBeLessThan(count / 10)
  })

  it('A243: a flood of different refusals loses none, and a neighbour is served meanwhile', async () => {
    const count = proofCount(2_000, 1_000_000)
    const mark = bench.mark()
    const login = await bench.broker.auth('s1')
    const flood = Array.from({ length: 4 }, async (_, n) => {
      const client = await bench.client()
      for (let sent = 0; sent < count / 4; sent += 50) {
        const hosts = Array.from({ length: 50 }, (_host, i) => `h${n}-${sent + i}.flood.test:443`)
        client.write(
          hosts.map((host) => `CONNECT ${host} HTTP/1.1\r\nHost: ${host}\r\n${login}\r\n`).join(''),
        )
        for (const host of hosts)
          expect((await client.response()).statusLine).toContain(` host_denied ${host} `)
      }
      client.destroy()
    })
    await neighbour()
    await Promise.all(flood)
    await until(
      () => mark.events().filter(({ host }) => host?.endsWith('.flood.test')).length >= count,
      'every refusal',
    )
    expect(mark.lookups().filter((name) => name.endsWith('.flood.test'))).toEqual([])
  })

  it('A229: places come back however an exchange or a tunnel ends', async () => {
    const never = answered(() => undefined)
    for (let round = 0; round < 3; round++) {
      const mark = bench.mark()
      const clients = await Promise.all(
        Array.from({ length: 4 }, () => bench.tunnel('capped', 'free.good.test')),
      )
      for (const client of clients)
        client.write(
          round === 1
            ? get(never).replace('GET', 'POST').replace('\r\n\r\n', '\r\nContent-Length: 9\r\n\r\nhalf')
            : get(never),
        )
      const shells = await Promise.all(Array.from({ length: 4 }, () => bench.connect('capped', free())))
      for (const { client } of shells.slice(0, 2))
        client.write((await bench.hello('free.good.test')).subarray(0, 100))
      await new Promise((resolve) => setTimeout(resolve, 20))
      for (const client of [...clients, ...shells.map(({ client: own }) => own)]) client.destroy()
      await until(
        () => mark.events().filter(({ agent }) => agent === 'capped').length >= 8,
        'eight ended',
        () => mark.events(),
      )
    }
    const clients = await Promise.all(
      Array.from({ length: 4 }, () => bench.tunnel('capped', 'free.good.test')),
    )
    for (const client of clients) client.write(get('/'))
    for (const client of clients) expect((await client.response()).status).toBe(200)
    for (const client of clients) client.destroy()
  })
})
