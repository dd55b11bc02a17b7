import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { exportHead, queryEvents, rawLines, verifyEvents, type LoggedEvent } from '../../src/audit/query.ts'
import { attackBench, until, type AttackBench } from '../helpers/attack-bench.ts'
import { expectAllowed, expectRefused } from '../helpers/attack-cases.ts'
import { ok } from '../helpers/origin.ts'
import { proofCount, runSeed } from '../helpers/proof-count.ts'
import { basic } from '../helpers/raw-client.ts'
import { seeded } from '../helpers/seeded.ts'

const seed = runSeed()
const manyNames = Array.from({ length: 12 }, (_, i) => `m${i}`)

describe('one event for each decision, and what it says', () => {
  let bench: AttackBench
  let atUpstream: ((head: string) => void) | undefined

  beforeAll(async () => {
    bench = await attackBench({
      onRequest: ({ head, body, socket }) => {
        atUpstream?.(head)
        const path = head.split(' ')[1] ?? ''
        if (path.includes('/forbidden')) socket.write('HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno')
        else if (path.includes('/never')) return
        else socket.write(ok(body))
      },
      limits: { firstByteMs: 600 },
      sandboxes: manyNames
        .map(
          (name) =>
            `  ${name}:\n    agent: agent-${name}\n    allow: [{ host: shared.good.test, scheme: http, ports: [PLAIN], addresses: [127.0.0.0/8] }]\n`,
        )
        .join(''),
      allow: [
        '{ host: bad.wild.test, ports: [1], addresses: [127.0.0.0/8] }',
        '{ host: spliced.good.test, ports: [TLS], tls: splice, addresses: [127.0.0.0/8] }',
      ],
      edit: (yaml, { tls, plain }) =>
        yaml.replaceAll('[PLAIN]', `[${plain}]`).replaceAll('[TLS]', `[${tls}]`),
    })
    bench.mayDial.add('127.0.0.1:1')
  })
  afterEach(() => bench.standing())
  afterAll(() => bench.stop())

  const get = (host: string, path: string, ...fields: string[]): string =>
    `GET ${path} HTTP/1.1\r\nHost: ${bench.at(host)}\r\n${fields.map((field) => `${field}\r\n`).join('')}\r\n`
  const bearer = (): string => `Authorization: Bearer ${bench.placeholder('api')}`
  const plainGet = (path: string, login: string): string =>
    `GET ${bench.url('plain.good.test')}${path} HTTP/1.1\r\nHost: plain.good.test:${bench.plain.port}\r\n${login}\r\n`

  /** Ways to end a connection early or late, each of which is one decision; the verdict that its event must have. */
  type Act = (i: number) => Promise<'allow' | 'deny' | 'either'>
  const acts: Readonly<Record<string, Act>> = {
    allowed: async (i) => {
      const client = await bench.client()
      client.write(plainGet(`/ok${i}`, await bench.broker.auth('s1')))
      await client.response()
      client.destroy()
      return 'allow'
    },
    'denied host': async (i) => {
      const { client } = await bench.connect('s1', `no${i}.evil.test:443`)
      client.destroy()
      return 'deny'
    },
    'no login': async (i) => {
      const client = await bench.client()
      client.write(`CONNECT no${i}.login.test:443 HTTP/1.1\r\nHost: no${i}.login.test:443\r\n\r\n`)
      await client.response()
      client.destroy()
      return 'deny'
    },
    malformed: async (i) => {
      const client = await bench.client()
      client.write(`GET /${i} HTTP/1.1\nHost: x\n\n`)
      await client.closed()
      return 'deny'
    },
    'an empty tunnel': async () => {
      const { client } = await bench.connect('s1', bench.at('free.good.test'))
      client.destroy()
      return 'allow'
    },
    'no TLS': async () => {
      const { client } = await bench.connect('s1', bench.at('free.good.test'))
      client.write('\0\0\0\0\0\0')
      await client.closed()
      return 'deny'
    },
    'TLS that the client breaks off': async () => {
      const { client } = await bench.connect('s1', bench.at('free.good.test'))
      await client.startTls({ servername: 'free.good.test', ca: bench.ca.cert }).catch(() => undefined)
      client.destroy()
      return 'either'
    },
    'a request in a tunnel': async (i) => {
      const client = await bench.tunnel('s1', 'free.good.test')
      client.write(get('free.good.test', `/t${i}`))
      await client.response()
      client.destroy()
      return 'allow'
    },
    swapped: async (i) => {
      const client = await bench.tunnel('s1', 'api.good.test')
      client.write(get('api.good.test', `/v1/s${i}`, bearer()))
      await client.response()
      client.destroy()
      return 'allow'
    },
    'a body that the client cuts': async (i) => {
      const client = await bench.client()
      const login = await bench.broker.auth('s1')
      client.write(plainGet(`/cut${i}`, `${login}Content-Length: 100\r\n`).replace('GET', 'POST'))
      client.write('half')
      await new Promise((resolve) => setTimeout(resolve, 5))
      client.destroy()
      return 'either'
    },
    'an answer that the client does not wait for': async (i) => {
      const client = await bench.client()
      client.write(plainGet(`/never${i}`, await bench.broker.auth('s1')))
      await new Promise((resolve) => setTimeout(resolve, 5))
      client.destroy()
      return 'either'
    },
    'an upstream that is not there': async () => {
      const client = await bench.tunnel('s1', 'bad.wild.test:1')
      client.write('GET / HTTP/1.1\r\nHost: bad.wild.test:1\r\n\r\n')
      await client.response()
      client.destroy()
      return 'deny'
    },
  }

  const never: Act = () => Promise.reject(new TypeError('no such act'))

  it(`A244: mixed requests leave as many events as decisions, with the right verdicts (OCTROI_SEED=${seed})`, async () => {
    const random = seeded(seed)
    const mark = bench.mark()
    const count = proofCount(240, 100_000)
    const expected = { allow: 0, deny: 0, either: 0 }
    for (let i = 0; i < count; i += 8) {
      const names = Array.from({ length: 8 }, () => random.pick(Object.keys(acts)))
      const verdicts = await Promise.all(names.map((name, n) => (acts[name] ?? never)(i + n)))
      for (const verdict of verdicts) expected[verdict]++
    }
    const decisions = (): LoggedEvent[] =>
      mark.events().filter(({ kind, isOpen }) => kind === 'exchange' && isOpen !== true)
    await until(
      () => decisions().length >= count,
      `${count} decisions`,
      () => decisions().length,
    )
    const events = await mark.decisions(count)
    const allowed = events.filter(({ verdict }) => verdict === 'allow').length
    expect(allowed).toBeGreaterThanOrEqual(expected.allow)
    expect(allowed).toBeLessThanOrEqual(expected.allow + expected.either)
    expect(verifyEvents(bench.broker.stateFolder)).toMatchObject({ ok: true })
  })

  it('a connection that ends within its first head is no decision and leaves no event', async () => {
    const mark = bench.mark()
    for (const start of ['', 'G', 'GET / HTTP/1.1\r\nHost: x\r\n']) {
      const client = await bench.client()
      client.write(start)
      client.end()
      await client.closed()
      client.destroy()
    }
    await mark.decisions(0)
  })

  it('I4: the decision is in the log before the first swapped byte is upstream, and its outcome after', async () => {
    const kinds: string[] = []
    atUpstream = (head) => {
      if (!head.startsWith('GET /v1/i4')) return
      for (const event of queryEvents(bench.broker.stateFolder, { sandbox: 's1' })) {
        if (event.path === '/v1/i4') kinds.push(event.isOpen === true ? 'decision' : 'outcome')
      }
    }
    const client = await bench.tunnel('s1', 'api.good.test')
    const { event } = await expectAllowed(bench, client, get('api.good.test', '/v1/i4', bearer()))
    atUpstream = undefined
    expect(kinds).toEqual(['decision'])
    const rows = rawLines(bench.broker.stateFolder, {}).map(
      (line) => JSON.parse(line) as { id: string; kind: string; verdict?: string },
    )
    expect(rows.filter(({ id }) => id === event.id).map(({ kind }) => kind)).toEqual(['decision', 'outcome'])
    client.destroy()
  })

  it('a spliced tunnel has its decision in the log before its 200', async () => {
    const { client, response } = await bench.connect('s1', bench.at('spliced.good.test'))
    expect(response.status).toBe(200)
    const open = queryEvents(bench.broker.stateFolder, { host: 'spliced.good.test' })
    expect(open).toMatchObject([{ isOpen: true, verdict: 'allow', agent: 'a1', tls: { mode: 'opaque' } }])
    const mark = bench.mark()
    client.destroy()
    await until(
      () =>
        mark.events().length === 0 &&
        queryEvents(bench.broker.stateFolder, { host: 'spliced.good.test' })[0]?.isOpen !== true,
      'outcome',
    )
  })

  it('A245: while the log cannot be written, swaps and spliced tunnels are 503, nothing leaves for them, and it recovers', async () => {
    const swapping = await Promise.all([1, 2, 3].map(() => bench.tunnel('s1', 'api.good.test')))
    const reading = await bench.tunnel('s1', 'free.good.test')
    const mark = bench.mark()
    const lock = new DatabaseSync(join(bench.broker.stateFolder, 'events.db'))
    lock.exec('BEGIN IMMEDIATE')
    const started = Date.now()
    for (const client of swapping) {
      client.write(get('api.good.test', '/v1/unlogged', bearer()))
      expect((await client.response(3_000)).statusLine).toMatch(/^HTTP\/1\.1 503 octroi audit_unavailable /)
    }
    const again = await bench.connect('s1', bench.at('spliced.good.test'))
    expect(again.response.statusLine).toMatch(/^HTTP\/1\.1 503 octroi audit_unavailable /)
    expect(Date.now() - started).toBeLessThan(10_000)
    reading.write(get('free.good.test', '/goes-on'))
    expect((await reading.response()).status).toBe(200)
    const ready = await bench.ready()
    expect(ready).toMatchObject({ status: 503, body: expect.stringContaining('audit') as string })
    lock.exec('ROLLBACK')
    lock.close()
    expect(mark.upstream()).not.toContain('unlogged')
    expect(mark.upstream()).not.toContain(bench.secrets.k1)
    await until(() => mark.events().some(({ path }) => path === '/goes-on'), 'event that was queued')
    await until(() => mark.alerts().some(({ reason }) => reason === 'audit_gap'), 'alert about the gap')
    const client = await bench.tunnel('s1', 'api.good.test')
    client.write(get('api.good.test', '/v1/back', bearer()))
    expect((await client.response()).status).toBe(200)
    for (const one of [client, ...swapping, reading, again.client]) one.destroy()
  })

  it('A246: a query, a login in a URL, a body and a credential in a path are in no event, log line or file', async () => {
    const canary = 'canary-5Hq8Zt2Lw9Xc'
    const client = await bench.tunnel('s1', 'free.good.test')
    const mark = bench.mark()
    client.write(get('free.good.test', `/p?access_token=${canary}&x=${canary}`))
    await client.response()
    client.write(
      `POST /body HTTP/1.1\r\nHost: ${bench.at('free.good.test')}\r\nCookie: ${canary}\r\nContent-Length: ${canary.length}\r\n\r\n${canary}`,
    )
    await client.response()
    await mark.decisions(2)
    await expectRefused(bench, `GET http://u:${canary}@plain.good.test/ HTTP/1.1\r\nHost: x\r\n\r\n`, {
      status: 400,
      reason: 'malformed',
    })
    await expectRefused(bench, `GET http://plain.good.test/#${canary} HTTP/1.1\r\nHost: x\r\n\r\n`, {
      status: 400,
      reason: 'malformed',
    })
    for (const name of readdirSync(bench.broker.stateFolder)) {
      const path = join(bench.broker.stateFolder, name)
      if (statSync(path).isFile())
        expect([name, readFileSync(path, 'latin1').includes(canary)]).toEqual([name, false])
    }
    expect(bench.broker.log.join('')).not.toContain(canary)
    client.destroy()
  })

  it('A246, I3: a credential that a client puts into a path is a mark in the event', async () => {
    const client = await bench.tunnel('s1', 'free.good.test')
    const mark = bench.mark()
    client.write(
      `GET /p/${bench.secrets.k1}/${encodeURIComponent(Buffer.from(bench.secrets.k1).toString('base64'))} HTTP/1.1\r\nHost: ${bench.at('free.good.test')}\r\n\r\n`,
    )
    await client.response()
    const [event] = await mark.decisions(1)
    expect(event?.path).toBe('/p/[credential]/[credential]')
    expect(JSON.stringify(event)).not.toContain(bench.secrets.k1)
    client.destroy()
  })

  it('A248: control characters, escapes and fake rows stay inside one escaped value', async () => {
    const fake = encodeURIComponent('\r\n{"v":1,"kind":"exchange","verdict":"allow"}\x1b[31m\u2028\u202e\0')
    const client = await bench.tunnel('s1', 'free.good.test')
    const mark = bench.mark()
    client.write(get('free.good.test', `/${fake}`, 'User-Agent: \x1b[31mred', 'X: \xff\xfe'))
    await client.closed().catch(() => undefined)
    await mark.decisions(1)
    const again = await bench.tunnel('s1', 'free.good.test')
    const second = bench.mark()
    again.write(get('free.good.test', `/${fake}`, 'X: \xff\xfe'))
    expect((await again.response()).status).toBe(200)
    const [event] = await second.decisions(1)
    expect(event?.path).toBe(`/${fake}`)
    expect(rawLines(bench.broker.stateFolder, {}).join('')).not.toMatch(/[\u0000-\u001f\u007f\u2028\u202e]/)
    for (const one of [client, again]) one.destroy()
  })

  it('A250: a changed, deleted or moved row, and a tail cut behind an exported head, are found', async () => {
    await expectRefused(bench, 'CONNECT tamper.test:443 HTTP/1.1\r\nHost: tamper.test:443\r\n\r\n', {
      status: 403,
      reason: 'host_denied',
    })
    const head = exportHead(bench.broker.stateFolder)
    const [row] = queryEvents(bench.broker.stateFolder, { host: 'tamper.test' })
    const seq = row?.seq ?? 0
    const damages: readonly (readonly [string, number])[] = [
      [`UPDATE events SET body = replace(body, '"deny"', '"allow"') WHERE seq = ${seq}`, seq],
      [`DELETE FROM events WHERE seq = ${seq}`, seq],
      [`UPDATE events SET verdict = 'allow' WHERE seq = ${seq}`, seq],
    ]
    for (const [sql, bad] of damages) {
      const folder = mkdtempSync(join(tmpdir(), 'octroi-tamper-'))
      cpSync(bench.broker.stateFolder, folder, {
        recursive: true,
        filter: (path) => !path.endsWith('.sock') && !path.endsWith('sockets'),
      })
      const database = new DatabaseSync(join(folder, 'events.db'))
      database.exec(sql)
      database.close()
      const verdict = verifyEvents(folder)
      expect([sql, verdict.ok]).toEqual([sql, false])
      if (!verdict.ok) expect([sql, Math.abs(verdict.seq - bad) <= 1]).toEqual([sql, true])
      rmSync(folder, { recursive: true })
    }
    expect(verifyEvents(bench.broker.stateFolder, { head })).toMatchObject({ ok: true, exported: 'matches' })
    expect(verifyEvents(bench.broker.stateFolder, { head: { ...head, hash: 'f'.repeat(64) } }).ok).toBe(false)
  })

  it('A252: many sandboxes at one upstream are never confused', async () => {
    const mark = bench.mark()
    const rounds = proofCount(10, 8_000)
    const host = `shared.good.test:${bench.plain.port}`
    const clients = await Promise.all(
      manyNames.map(async (name) => ({
        name,
        client: await bench.client(),
        login: await bench.broker.auth(name),
      })),
    )
    for (let round = 0; round < rounds; round++) {
      await Promise.all(
        clients.map(async ({ name, client, login }) => {
          client.write(`GET http://${host}/${name}/${round} HTTP/1.1\r\nHost: ${host}\r\n${login}\r\n`)
          expect((await client.response()).status).toBe(200)
        }),
      )
    }
    for (const { client } of clients) client.destroy()
    const events = await mark.decisions(rounds * manyNames.length)
    expect(
      events.filter(
        ({ path, agent, sandbox }) =>
          `/agent-${sandbox}` !== `/${agent}` || path?.startsWith(`/${sandbox}/`) !== true,
      ),
    ).toEqual([])
  })

  it('A258: what the broker writes is owner-only and holds no body', async () => {
    const canary = 'body-canary-8Vd3Km1Rz'
    const client = await bench.tunnel('s1', 'free.good.test')
    const mark = bench.mark()
    client.write(
      `POST / HTTP/1.1\r\nHost: ${bench.at('free.good.test')}\r\nContent-Length: ${canary.length}\r\n\r\n${canary}`,
    )
    expect((await client.response()).body).toBe(canary)
    await mark.decisions(1)
    expect(statSync(bench.broker.stateFolder).mode & 0o077).toBe(0)
    for (const name of readdirSync(bench.broker.stateFolder, { recursive: true, encoding: 'utf8' })) {
      const path = join(bench.broker.stateFolder, name)
      if (!name.endsWith('.pem')) expect([name, statSync(path).mode & 0o077]).toEqual([name, 0])
      if (statSync(path).isFile())
        expect([name, readFileSync(path, 'latin1').includes(canary)]).toEqual([name, false])
    }
    client.destroy()
  })

  it('B086: an upstream’s 403 and ours differ, and each outcome has one full record', async () => {
    const client = await bench.tunnel('s1', 'free.good.test')
    const mark = bench.mark()
    client.write(get('free.good.test', '/forbidden'))
    const theirs = await client.response()
    expect(theirs).toMatchObject({ status: 403, body: 'no' })
    expect(theirs.fields['proxy-status']).toBeUndefined()
    client.write(get('free.good.test', '/never'))
    const late = await client.response(3_000)
    expect(late.statusLine).toMatch(/^HTTP\/1\.1 504 octroi upstream_timeout /)
    const { response: ours } = await bench.connect('s1', 'evil.test:443')
    expect(ours.fields['proxy-status']).toContain('octroi')
    const unknown = await bench.client()
    unknown.write(
      `CONNECT ${bench.at('free.good.test')} HTTP/1.1\r\nHost: ${bench.at('free.good.test')}\r\nProxy-Authorization: ${basic('s1', 'wrong')}\r\n\r\n`,
    )
    await unknown.response()
    const events = await mark.decisions(4)
    expect(events.map(({ agent, verdict, reason, status }) => [agent, verdict, reason, status])).toEqual([
      ['a1', 'allow', 'rule', 403],
      ['a1', 'deny', 'upstream_timeout', 504],
      ['a1', 'deny', 'host_denied', 403],
      [undefined, 'deny', 'auth_invalid', 407],
    ])
    for (const event of events) {
      expect(event).toMatchObject({
        id: expect.stringMatching(/^[0-9A-Z]{26}$/) as string,
        host: expect.any(String) as string,
        port: expect.any(Number) as number,
        method: expect.any(String) as string,
        policy: expect.any(String) as string,
      })
      expect(event.duration_ms).toBeGreaterThanOrEqual(0)
    }
    for (const one of [client, unknown]) one.destroy()
  })
})
