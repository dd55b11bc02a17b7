import { randomBytes } from 'node:crypto'
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { createServer, type AddressInfo } from 'node:net'
import { join } from 'node:path'
import { expect } from 'vitest'
import { exportHead, queryEvents, verifyEvents, type LoggedEvent } from '../../src/audit/query.ts'
import type { Clock } from '../../src/core/clock.ts'
import { Refusal } from '../../src/core/errors.ts'
import type { Resolver } from '../../src/net/port.ts'
import type { PlaneLimits } from '../../src/proxy/limits.ts'
import { standardYaml, type PolicyOptions } from './attack-policy.ts'
import { startTestBroker, type TestBroker } from './broker.ts'
import { captureHello } from './client-hello.ts'
import { tapDials } from './dial-tap.ts'
import { ok, startOrigin, type OnRequest, type Origin } from './origin.ts'
import { needlesOf, readableSecret } from './quick-scan.ts'
import { rawClient, rawUnixClient, type RawClient, type RawResponse } from './raw-client.ts'
import { createTestCa, type TestCa } from './test-ca.ts'

/** What has happened since a moment: bytes at the upstreams, lookups, dials, events. */
export interface Mark {
  upstream(): string
  plain(): string
  lookups(): string[]
  dials(): string[]
  /**
   * Exchanges since then (a decision and its outcome are one), once there are `count`; fails when there are more. Ids are
   * distinct, so that none is written twice.
   */
  decisions(count: number): Promise<LoggedEvent[]>
  events(): LoggedEvent[]
  alerts(): LoggedEvent[]
  /**
   * When the bench stops, the exchanges from the mark until now must be this many; floods of identical refusals share
   * an event with a `count`, which is written late.
   */
  tally(count: number): void
  /** Nothing left the broker: no lookup, no dial, no byte. */
  nothingLeft(): void
}

/** A broker under attack, with a tap on everything around it. */
export interface AttackBench {
  readonly broker: TestBroker
  readonly ca: TestCa
  /** TLS; answers for every name of the bench, allowed or not, with what it received. */
  readonly upstream: Origin
  /** Cleartext. */
  readonly plain: Origin
  readonly secrets: Readonly<Record<'k1' | 'k1e' | 'k1b' | 'k2', string>>
  /** Answers of names; everything below `test` that is not here is at 127.0.0.1. */
  readonly names: Map<string, () => readonly string[]>
  /** `host:port` of the TLS upstream. */
  at(host: string): string
  /** `http://host:port` of the cleartext upstream. */
  url(host: string): string
  client(): Promise<RawClient>
  unixClient(path: string): Promise<RawClient>
  /** TLS inside a tunnel to the TLS upstream (or to `authority`, if it has a port). */
  tunnel(sandbox: string, authority: string, servername?: string): Promise<RawClient>
  /** One CONNECT on a connection of its own and its answer. */
  connect(sandbox: string, authority: string): Promise<{ client: RawClient; response: RawResponse }>
  /** One cleartext request with the login of `sandbox`, on a connection of its own. */
  ask(sandbox: string, head: string): Promise<{ client: RawClient; response: RawResponse }>
  placeholder(access: string, sandbox?: string): string
  /** One call of the admin API over the owner's socket: the parsed answer. */
  admin(
    method: string,
    path: string,
    body?: object,
  ): Promise<{ status: number; answer: Record<string, unknown> }>
  mark(): Mark
  /** A secret that no output may hold, from now on. */
  guard(name: string, value: string): void
  /** `address:port` that the broker may dial besides the upstreams. */
  readonly mayDial: Set<string>
  /** `/readyz` on the admin listener. */
  ready(): Promise<{ status: number; body: string }>
  /** The first flight of a real TLS client for that name. */
  hello(servername: string): Promise<Buffer>
  /** The configuration as it is now. */
  config(): Promise<string>
  /** Runs `fn`; what it connects at once is the test's own dial. */
  own<T>(fn: () => T): T
  /** The standing oracle; run it after each case. */
  standing(): Promise<void>
  stop(): Promise<void>
}

/** How the bench of one file differs from the standard one. */
export interface AttackBenchOptions extends PolicyOptions {
  readonly limits?: Partial<PlaneLimits>
  readonly clock?: Clock
  /** Changes the configuration before the broker starts. */
  readonly edit?: (yaml: string, ports: { tls: number; plain: number }) => string
  /** What the upstreams answer; default the request itself. */
  readonly onRequest?: OnRequest
  readonly resolver?: Resolver | 'configured'
  readonly env?: Record<string, string>
  /** More SAN entries of the TLS upstream. */
  readonly certNames?: readonly string[]
  readonly files?: Record<string, string>
}

const certNames = [
  '*.good.test',
  '*.wild.test',
  '*.cdn.test',
  'wild.test',
  'evil.test',
  '*.evil.test',
  'evilwild.test',
]

const echo: OnRequest = ({ head, body, socket }) =>
  void socket.write(ok(`${head}${body}`, ['Content-Type: text/plain']))

/** A new secret in each run, of a shape that no placeholder has. */
export const freshSecret = (): string =>
  `tk-${randomBytes(24).toString('base64url').replaceAll(/[-_]/g, 'x')}`

export async function attackBench(options: AttackBenchOptions = {}): Promise<AttackBench> {
  const ca = await createTestCa()
  const { cert, key } = await ca.issue({ names: [...certNames, ...(options.certNames ?? [])] })
  const onRequest = options.onRequest ?? echo
  const upstream = await startOrigin({ tls: { cert, key }, onRequest })
  const plain = await startOrigin({ onRequest })
  const secrets = { k1: freshSecret(), k1e: freshSecret(), k1b: freshSecret(), k2: freshSecret() }
  const lookups: string[] = []
  const names = new Map<string, () => readonly string[]>()
  const resolver: Resolver = {
    resolve(host) {
      lookups.push(host)
      const found = names.get(host)?.() ?? (host.endsWith('.test') ? ['127.0.0.1'] : [])
      return found.length > 0 ? Promise.resolve(found) : Promise.reject(new Refusal('dns_failed'))
    },
  }
  const listen = /^listen:/m.test(options.more ?? '')
    ? ''
    : `listen: { proxy: 127.0.0.1:0, admin: 127.0.0.1:${await freePort()} }\n`
  const ports = { tls: upstream.port, plain: plain.port }
  const yaml = `${listen}${standardYaml(ports, options)}`
  const broker = await startTestBroker({
    yaml: options.edit?.(yaml, ports) ?? yaml,
    files: { 'root.pem': ca.cert, ...options.files },
    env: { K1: secrets.k1, K1E: secrets.k1e, K1B: secrets.k1b, K2: secrets.k2, ...options.env },
    ...(options.resolver === 'configured' ? {} : { resolver: options.resolver ?? resolver }),
    ...(options.clock === undefined ? {} : { clock: options.clock }),
    ...(options.limits === undefined ? {} : { limits: options.limits }),
  })
  const tap = tapDials()
  const mayDial = new Set([`127.0.0.1:${upstream.port}`, `127.0.0.1:${plain.port}`])
  const guarded = new Map<string, readonly string[]>()
  const guard = (name: string, value: string): void => void guarded.set(name, needlesOf(value))
  for (const [name, value] of Object.entries(secrets)) guard(name, value)
  for (const sandbox of ['s1', 's2', 's3']) guard(`password of ${sandbox}`, await broker.token(sandbox))

  const received: { text: string }[] = []
  const watched = (client: RawClient): RawClient => {
    const bytes = { text: '' }
    received.push(bytes)
    client.socket.on('data', (chunk: Buffer) => (bytes.text += chunk.toString('latin1')))
    return client
  }
  const at = (host: string): string => (/:[0-9]+$/.test(host) ? host : `${host}:${upstream.port}`)
  let clients = 0
  // An address of its own for each client: identical refusals of one source share an event once they come in numbers.
  const client = async (): Promise<RawClient> => {
    const from = `127.1.${(clients >> 8) & 255}.${clients++ & 255}`
    return watched(await tap.own(() => rawClient(broker.port, '127.0.0.1', from)))
  }
  let seen = { seq: 0, log: 0 }
  const warnings: string[] = []
  const onWarning = (warning: Error): void => void warnings.push(`${warning.name}: ${warning.message}`)
  process.on('warning', onWarning)
  const tallies: { start: number; end: number; count: number }[] = []

  const health = async (path: string): Promise<{ status: number; body: string }> => {
    const own = await tap.own(() => rawClient(broker.adminPort))
    own.write(`GET ${path} HTTP/1.1\r\nHost: 127.0.0.1:${broker.adminPort}\r\nConnection: close\r\n\r\n`)
    const { status, body } = await own.response(5_000)
    own.destroy()
    return { status, body }
  }

  const bench: AttackBench = {
    broker,
    ca,
    upstream,
    plain,
    secrets,
    names,
    mayDial,
    guard,
    at,
    client,
    ready: () => health('/readyz'),
    async hello(servername) {
      const before = tap.dials.length
      const bytes = await captureHello({ servername })
      tap.dials.length = before
      return bytes
    },
    config: () => readFile(join(broker.folder, 'octroi.yaml'), 'utf8'),
    own: (fn) => tap.own(fn),
    url: (host) => `http://${host}:${plain.port}`,
    unixClient: async (path) => watched(await tap.own(() => rawUnixClient(path))),
    async tunnel(sandbox, authority, name = at(authority).slice(0, at(authority).lastIndexOf(':'))) {
      const { client: own, response } = await bench.connect(sandbox, at(authority))
      if (response.status !== 200) throw new Error(`CONNECT was refused: ${response.statusLine}`)
      return watched(await own.startTls({ servername: name, host: name, ca: broker.ca }))
    },
    async connect(sandbox, authority) {
      const own = await client()
      own.write(`CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n${await broker.auth(sandbox)}\r\n`)
      return { client: own, response: await own.response() }
    },
    async ask(sandbox, head) {
      const own = await client()
      const end = head.indexOf('\r\n') + 2
      own.write(`${head.slice(0, end)}${await broker.auth(sandbox)}${head.slice(end)}`)
      return { client: own, response: await own.response() }
    },
    placeholder: (access, sandbox = 's1') => broker.placeholder(sandbox, access),
    async admin(method, path, body) {
      const own = await tap.own(() => rawUnixClient(join(broker.stateFolder, 'admin.sock')))
      const text = body === undefined ? '' : JSON.stringify(body)
      const type = body === undefined ? '' : 'Content-Type: application/json\r\n'
      const length = `Content-Length: ${Buffer.byteLength(text)}\r\n`
      own.write(
        `${method} ${path} HTTP/1.1\r\nHost: octroi\r\n${type}${length}Connection: close\r\n\r\n${text}`,
      )
      const response = await own.response()
      own.destroy()
      return { status: response.status, answer: JSON.parse(response.body) as Record<string, unknown> }
    },
    mark() {
      const from = {
        upstream: lengths(upstream),
        plain: lengths(plain),
        dials: tap.dials.length,
        lookups: lookups.length,
      }
      const seq = exportHead(broker.stateFolder).seq
      const start = Date.now()
      const since = (): LoggedEvent[] => queryEvents(broker.stateFolder, { afterSeq: seq })
      const isDecision = ({ kind, isOpen }: LoggedEvent): boolean => kind === 'exchange' && isOpen !== true
      const mark: Mark = {
        upstream: () => suffixes(upstream, from.upstream),
        plain: () => suffixes(plain, from.plain),
        lookups: () => lookups.slice(from.lookups),
        dials: () => tap.dials.slice(from.dials),
        async decisions(count) {
          await until(() => since().filter(isDecision).length >= count, `${count} decisions`, since)
          await barrier(broker)
          const decided = since().filter(({ kind }) => kind === 'exchange')
          expect(decided.map(({ id }) => id)).toHaveLength(count)
          expect(new Set(decided.map(({ id }) => id)).size).toBe(count)
          return decided
        },
        events: since,
        alerts: () => since().filter(({ kind }) => kind === 'alert'),
        tally: (count) => void tallies.push({ start, end: Date.now(), count }),
        nothingLeft() {
          expect(mark.dials()).toEqual([])
          expect(mark.lookups()).toEqual([])
          expect(mark.upstream() + mark.plain()).toBe('')
        },
      }
      return mark
    },
    async standing() {
      expect((await health('/healthz')).status).toBe(200)
      await barrier(broker)
      const events = queryEvents(broker.stateFolder, { afterSeq: seen.seq })
      const lines = broker.log.slice(seen.log)
      seen = { seq: events.at(-1)?.seq ?? seen.seq, log: broker.log.length }
      for (const { text } of received) expect(readableSecret(text, guarded)).toBeUndefined()
      for (const text of [JSON.stringify(events), ...lines])
        expect(readableSecret(text, guarded)).toBeUndefined()
      received.length = 0
      expect(lines.filter((line) => /inside the broker|unhandled|could not be started/.test(line))).toEqual(
        [],
      )
      expect(events.filter(({ reason }) => reason === 'internal')).toEqual([])
      expect(warnings.filter((warning) => !warning.startsWith('ExperimentalWarning'))).toEqual([])
      expect(tap.dials.filter((dial) => !mayDial.has(dial))).toEqual([])
    },
    async stop() {
      await broker.app.stop()
      expect(verifyEvents(broker.stateFolder)).toMatchObject({ ok: true })
      tap.stop()
      process.off('warning', onWarning)
      for (const { start, end, count } of tallies) {
        const all = queryEvents(broker.stateFolder, { kind: 'exchange' }).filter(
          ({ ts }) => ts >= start && ts <= end,
        )
        expect(all.reduce((sum, event) => sum + (event.count ?? 1), 0)).toBe(count)
      }
      for (const [path, bytes] of filesBelow(broker.stateFolder)) {
        expect([path, readableSecret(bytes.toString('latin1'), guarded)]).toEqual([path, undefined])
      }
      await broker.stop()
      await Promise.all([upstream.stop(), plain.stop()])
    },
  }
  return bench
}

async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  await new Promise((resolve) => server.close(resolve))
  return port
}

const lengths = (origin: Origin): number[] => origin.received.map((text) => text.length)

const suffixes = (origin: Origin, from: readonly number[]): string =>
  origin.received.map((text, index) => text.slice(from[index] ?? 0)).join('')

/** Everything that was queued for the event log is written. */
async function barrier(broker: TestBroker): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve))
  const { foundation } = broker.app
  await foundation.events.appendDurable({
    id: foundation.newId(),
    ts: Date.now(),
    kind: 'admin',
    note: 'barrier',
  })
}

/** Resolves once `isTrue`; rejects after `ms` with what `shown` says. */
export async function until(
  isTrue: () => boolean,
  what: string,
  shown: () => unknown = () => '',
): Promise<void> {
  const end = Date.now() + 5_000
  while (!isTrue()) {
    if (Date.now() > end) throw new Error(`no ${what}: ${JSON.stringify(shown(), null, 1)}`)
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}

function filesBelow(folder: string): [string, Buffer][] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .map((name) => join(folder, name))
    .filter((path) => statSync(path).isFile())
    .map((path) => [path, readFileSync(path)])
}
