import { createServer, type AddressInfo, type Server, type Socket } from 'node:net'
import { createServer as createTlsServer } from 'node:tls'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { exportHead, queryEvents, verifyEvents, type LoggedEvent } from '../../src/audit/query.ts'
import { mutated } from '../fuzz/mutate.ts'
import { startTestBroker, type TestBroker } from '../helpers/broker.ts'
import { proofCount, runSeed } from '../helpers/proof-count.ts'
import { rawUnixClient, type RawClient } from '../helpers/raw-client.ts'
import { seeded, type Seeded } from '../helpers/seeded.ts'
import { createTestCa } from '../helpers/test-ca.ts'
import { framingWords, startLlhttp } from './http1-parsers.ts'
import { readMessages, type ReadMessage } from './reference-http1.ts'

const seed = runSeed()
const count = proofCount(1_000, 1_000_000)
const atOnce = 24
/** Connections after which upstream and log are compared. */
const perRound = 250

/** An upstream that reads by the strict reading of the RFC alone, and keeps every byte. */
interface StrictUpstream {
  readonly port: number
  /** What each connection has brought since the last call; the connections are closed. */
  take(): Buffer[]
  stop(): void
}

async function startUpstream(tls?: { cert: string; key: string }): Promise<StrictUpstream> {
  let connections: { bytes: Buffer; socket: Socket }[] = []
  const onConnection = (socket: Socket): void => {
    const connection = { bytes: Buffer.alloc(0), socket }
    connections.push(connection)
    let answered = 0
    let continued = 0
    socket.on('error', () => undefined)
    socket.on('data', (chunk: Buffer) => {
      connection.bytes = Buffer.concat([connection.bytes, chunk])
      const messages = readMessages(connection.bytes)
      for (; messages[answered]?.kind === 'whole'; answered++) socket.write(answerTo(messages[answered]))
      const next = messages[answered]
      if (next?.kind === 'broken' && next.why !== 'unfinished') socket.destroy()
      const expects =
        next?.kind === 'unfinished' && next.fields.some(([name]) => name.toLowerCase() === 'expect')
      if (expects && continued <= answered) {
        continued = answered + 1
        socket.write('HTTP/1.1 100 Continue\r\n\r\n')
      }
    })
  }
  const server: Server =
    tls === undefined
      ? createServer({ noDelay: true }, onConnection)
      : createTlsServer({ ...tls, noDelay: true, ALPNProtocols: ['http/1.1'] }, onConnection)
  server.on('tlsClientError', () => undefined)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const take = (): Buffer[] => {
    const taken = connections
    connections = []
    for (const { socket } of taken) socket.destroy()
    return taken.map(({ bytes }) => bytes)
  }
  const stop = (): void => {
    take()
    server.close()
  }
  return { port: (server.address() as AddressInfo).port, take, stop }
}

const answerTo = (message: ReadMessage | undefined): string =>
  `HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n${message?.kind === 'whole' && message.method === 'HEAD' ? '' : 'ok'}`

/** One client's bytes: some requests, one of which is damaged where framing is decided. */
function streamFor(random: Seeded, number: number, base: string): Buffer {
  const authority = base.replace(/^[a-z]+:\/\//, '')
  const target = (name: string): string => `${random.below(2) === 0 ? base : ''}/${number}${name}`
  const start = (method: string, name: string): string =>
    `${method} ${base === '' || base.startsWith('https') ? target(name) : `${base}/${number}${name}`} HTTP/1.1\r\nHost: ${authority}\r\n`
  const hidden = `GET ${base}/${number}/hidden HTTP/1.1\r\nHost: ${authority}\r\n\r\n`
  const templates = [
    `${start('GET', '/a')}Accept: */*\r\n\r\n`,
    `${start('POST', '/b')}Content-Length: ${hidden.length}\r\n\r\n${hidden}`,
    `${start('PUT', '/c?x=y')}X: 1\r\nTransfer-Encoding: chunked\r\n\r\n${hidden.length.toString(16)}\r\n${hidden}\r\n0\r\n\r\n`,
    `${start('DELETE', '/d')}Content-Length: 4\r\n\r\nbody`,
    `${start('PUT', '/e')}Transfer-Encoding: chunked\r\n\r\n2;x=y\r\nab\r\n00\r\nX-A: 1\r\n\r\n`,
    `${start('HEAD', '/f')}\r\n`,
  ].map((text) => Buffer.from(text, 'latin1'))
  const clean = Array.from({ length: random.below(2) }, () => random.pick(templates))
  const dirty = mutated({ pool: templates, dictionary: framingWords, maxBytes: 2_000 }, random)
  const last = Buffer.from(`${start('GET', '/last')}Connection: close\r\n\r\n`)
  return Buffer.concat([...clean, dirty, last])
}

describe(`requests upstream and requests in the log, OCTROI_SEED=${seed}`, () => {
  let broker: TestBroker
  let plain: StrictUpstream
  let tls: StrictUpstream
  const llhttp = startLlhttp()

  beforeAll(async () => {
    const ca = await createTestCa()
    plain = await startUpstream()
    tls = await startUpstream(await ca.issue({ names: ['tls.good.test'] }))
    broker = await startTestBroker({
      yaml: `
trust: { system: false, ca: [root.pem] }
audit: { sync: normal }
sandboxes:
  s1:
    agent: a1
    identity: [{ socket: own.sock }]
    allow:
      - { host: plain.good.test, scheme: http, ports: [${plain.port}], addresses: [127.0.0.0/8] }
      - { host: tls.good.test, ports: [${tls.port}], addresses: [127.0.0.0/8] }
`,
      files: { 'root.pem': ca.cert },
      resolver: { resolve: () => Promise.resolve(['127.0.0.1']) },
    })
  })
  afterAll(async () => {
    await broker.stop()
    plain.stop()
    tls.stop()
    llhttp.close()
  })

  const connect = (): Promise<RawClient> => rawUnixClient(join(broker.folder, 'own.sock'))

  async function tunnel(): Promise<RawClient> {
    const client = await connect()
    const authority = `tls.good.test:${tls.port}`
    client.write(`CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n\r\n`)
    await client.response()
    return client.startTls({ servername: 'tls.good.test', host: 'tls.good.test', ca: broker.ca })
  }

  /** Writes a stream and waits until the broker has closed, or has nothing more to say. */
  async function send(number: number): Promise<void> {
    const random = seeded(seed + number)
    const isInside = random.below(10) === 0
    const client = isInside ? await tunnel() : await connect()
    const base = isInside ? `https://tls.good.test:${tls.port}` : `http://plain.good.test:${plain.port}`
    client.write(streamFor(random, number, base))
    for (let seen = -1; !client.isClosed && seen !== client.text.length;) {
      seen = client.text.length
      await client.closed(60).catch(() => undefined)
    }
    client.end()
    await client.closed(500).catch(() => undefined)
    client.destroy()
  }

  it(`are the same over ${count} damaged streams`, { timeout: 4 * 3_600_000 }, async () => {
    let compared = 0
    for (let from = 0; from < count; from += perRound) {
      const seq = exportHead(broker.stateFolder).seq
      const numbers = Array.from({ length: Math.min(perRound, count - from) }, (_, n) => from + n)
      const next = numbers.values()
      await Promise.all(
        Array.from({ length: atOnce }, async () => {
          for (const number of next) await send(number)
        }),
      )
      await settled(broker, seq)
      const raw = [...plain.take(), ...tls.take()]
      const events = queryEvents(broker.stateFolder, { afterSeq: seq, kind: 'exchange' }).filter(
        ({ verdict }) => verdict === 'allow',
      )
      compared += await compare(raw, events)
    }
    expect(compared).toBeGreaterThan(count / 2)
    expect(verifyEvents(broker.stateFolder)).toMatchObject({ ok: true })
  })

  /** Every request that an upstream has read is one event, and every event with an answer is one request. */
  async function compare(raw: readonly Buffer[], events: readonly LoggedEvent[]): Promise<number> {
    const upstream: string[] = []
    const whole: string[] = []
    for (const bytes of raw) {
      const messages = readMessages(bytes)
      for (const message of messages) {
        if (message.kind === 'broken') {
          // A connection may end inside a head, never in something that is no head.
          if (message.why !== 'unfinished')
            expect.fail(
              `upstream got ${JSON.stringify({ seed, why: message.why, bytes: bytes.toString('latin1') })}`,
            )
          continue
        }
        const key = `${message.method} ${message.target.split('?')[0]}`
        upstream.push(key)
        if (message.kind === 'whole') whole.push(key)
      }
      const theirs = await llhttp.read(bytes)
      theirs.forEach((read, n) => {
        const ours = messages[n]
        if (ours === undefined || ours.kind === 'broken')
          expect.fail(`llhttp reads more: ${bytes.toString('latin1')}`)
        expect([read.method, read.target]).toEqual([ours.method, ours.target])
        if (read.isWhole) expect(read.body).toBe(ours.body)
      })
    }
    const logged = events.map(({ method, path }) => `${method} ${path}`)
    const answered = events.filter(({ status, end }) => status === 200 && end === 'complete')
    expect({ seed, missing: without(upstream, logged) }).toEqual({ seed, missing: [] })
    const missing = without(
      answered.map(({ method, path }) => `${method} ${path}`),
      whole,
    )
    expect({ seed, missing }).toEqual({ seed, missing: [] })
    // Each request that came whole was answered, and the log says so.
    expect({ seed, whole: whole.length, logged: logged.length >= whole.length }).toEqual({
      seed,
      whole: whole.length,
      logged: true,
    })
    return whole.length
  }
})

/** What is in the first list more often than in the second. */
function without(first: readonly string[], second: readonly string[]): string[] {
  const left = new Map<string, number>()
  for (const key of second) left.set(key, (left.get(key) ?? 0) + 1)
  return first.filter((key) => {
    const times = left.get(key) ?? 0
    left.set(key, times - 1)
    return times <= 0
  })
}

/** Nothing more comes into the log. */
async function settled(broker: TestBroker, seq: number): Promise<void> {
  let last = -1
  for (let quiet = 0; quiet < 3;) {
    await new Promise((resolve) => setTimeout(resolve, 30))
    const { foundation } = broker.app
    await foundation.events.appendDurable({
      id: foundation.newId(),
      ts: Date.now(),
      kind: 'admin',
      note: 'barrier',
    })
    const { length } = queryEvents(broker.stateFolder, { afterSeq: seq, kind: 'exchange' })
    quiet = length === last ? quiet + 1 : 0
    last = length
  }
}
