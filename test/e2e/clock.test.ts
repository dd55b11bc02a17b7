import type { TLSSocket } from 'node:tls'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { queryEvents, verifyEvents } from '../../src/audit/query.ts'
import { attackBench, until, type AttackBench } from '../helpers/attack-bench.ts'
import { systemClock, type Clock } from '../../src/core/clock.ts'
import { ok } from '../helpers/origin.ts'
import type { RawClient } from '../helpers/raw-client.ts'

const day = 86_400_000
const year = 365 * day
const withinMs = 10_000

/** The real time, with a date that can be stepped as NTP or an operator does. */
function steppedClock(): Clock & { step(ms: number): void; readonly off: number } {
  let off = 0
  return {
    now: () => systemClock.now() + off,
    monotonic: () => systemClock.monotonic(),
    after: (ms, fn) => systemClock.after(ms, fn),
    step: (ms) => void (off += ms),
    get off() {
      return off
    },
  }
}

describe('a wall clock that jumps', () => {
  let bench: AttackBench
  const clock = steppedClock()
  const { step } = clock

  beforeAll(async () => {
    bench = await attackBench({
      clock,
      onRequest: ({ head, socket }) => {
        if (!head.includes('/stream')) return void socket.write(ok(head))
        socket.write(
          'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n',
        )
        const timer = setInterval(() => socket.write('6\r\n: up\n\n\r\n'), 10)
        socket.on('close', () => clearInterval(timer))
      },
      sandboxes: `
templates:
  brief:
    access: [api]
    allow: [{ host: free.good.test, ports: [TLS], addresses: [127.0.0.0/8] }]
    max_ttl: 30d
`,
      edit: (yaml, { tls }) => yaml.replace('[TLS]', `[${tls}]`),
    })
  })
  afterEach(async () => {
    step(-clock.off)
    await bench.standing()
  })
  afterAll(() => bench.stop())

  const get = (host: string, path: string, ...fields: string[]): string =>
    `GET ${path} HTTP/1.1\r\nHost: ${bench.at(host)}\r\n${fields.map((field) => `${field}\r\n`).join('')}\r\n`
  const status = async (
    sandbox: string,
    host: string,
    path = '/v1/x',
    ...fields: string[]
  ): Promise<number> => {
    const client = await bench.tunnel(sandbox, host)
    client.write(get(host, path, ...fields))
    const response = await client.response()
    client.destroy()
    return response.status
  }
  /** Dates of the leaf that a client is shown, whatever it thinks of them. */
  const leafOf = async (host: string): Promise<{ from: number; to: number }> => {
    const { client } = await bench.connect('s1', bench.at(host))
    const inside: RawClient = await client.startTls({ servername: host, rejectUnauthorized: false })
    // `as`: `startTls` wraps the socket of the handshake.
    const { valid_from: from, valid_to: to } = (inside.socket as TLSSocket).getPeerCertificate()
    inside.destroy()
    return { from: Date.parse(from), to: Date.parse(to) }
  }

  it('four years ahead and back again leave a leaf that clients accept', async () => {
    const host = 'ahead.wild.test'
    step(4 * year)
    expect((await leafOf(host)).from).toBeGreaterThan(Date.now() + 3 * year)
    step(-4 * year)
    expect(await status('s1', host)).toBe(200)
    const { from, to } = await leafOf(host)
    expect(from).toBeLessThanOrEqual(clock.now())
    expect(to).toBeGreaterThan(clock.now())
  })

  it('a leaf is made anew when its time has passed, and when the clock stands before it', async () => {
    const host = 'again.wild.test'
    const first = await leafOf(host)
    step(8 * day)
    const second = await leafOf(host)
    expect(second.from).toBeGreaterThan(first.from + 7 * day)
    expect(second.to).toBeGreaterThan(clock.now())
    step(-8 * day)
    const third = await leafOf(host)
    expect(third.from).toBeLessThanOrEqual(clock.now())
    expect(await status('s1', host)).toBe(200)
  })

  it('a year back: what was allowed is served, a swap is logged before it leaves, and the chain verifies', async () => {
    const tunnel = await bench.tunnel('s1', 'api.good.test')
    const mark = bench.mark()
    step(-year)
    const bearer = `Authorization: Bearer ${bench.placeholder('api')}`
    for (const path of ['/v1/one', '/v1/two']) {
      tunnel.write(get('api.good.test', path, bearer))
      expect((await tunnel.response()).status).toBe(200)
    }
    tunnel.destroy()
    const events = await mark.decisions(2)
    expect(events.map(({ ts }) => ts < Date.now() - 300 * day)).toEqual([true, true])
    step(11 * year)
    const later = await bench.connect('s3', bench.at('free.good.test'))
    expect(later.response.status).toBe(403)
    later.client.destroy()
    await mark.decisions(3)
    expect(verifyEvents(bench.broker.stateFolder)).toMatchObject({ ok: true })
  })

  it('a sandbox whose time was over by the clock stays gone when the clock goes back, with its password and placeholder', async () => {
    const made = await bench.admin('POST', '/v1/sandboxes', { template: 'brief', name: 'over' })
    expect(made.status).toBe(201)
    bench.guard('password of over', String(made.answer['token']))
    const login = await bench.broker.auth('over')
    const placeholder = bench.placeholder('api', 'over')
    const stream = await bench.tunnel('over', 'free.good.test')
    stream.write(get('free.good.test', '/stream'))
    await stream.read((text) => text.includes(': up'))
    step(10 * year)
    await stream.closed(withinMs)
    step(-11 * year)
    const client = await bench.client()
    const authority = bench.at('free.good.test')
    client.write(`CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n${login}\r\n`)
    expect((await client.response()).status).toBe(407)
    client.destroy()
    step(year)
    await bench.standing()
    const mark = bench.mark()
    expect(await status('s1', 'api.good.test', '/v1/x', `Authorization: Bearer ${placeholder}`)).toBe(403)
    expect((await mark.decisions(1))[0]).toMatchObject({ reason: 'handle_unknown' })
    expect(mark.upstream()).toBe('')
    expect((await bench.admin('POST', '/v1/sandboxes/over/resume')).status).toBe(404)
    stream.destroy()
  })

  it('a password that was rotated away and a placeholder that was revoked do not come back with the clock', async () => {
    const made = await bench.admin('POST', '/v1/sandboxes', { template: 'brief', name: 'turned' })
    bench.guard('password of turned', String(made.answer['token']))
    const old = await bench.broker.auth('turned')
    const placeholder = bench.placeholder('api', 'turned')
    const rotated = await bench.admin('POST', '/v1/sandboxes/turned/rotate-token', { overlap_ms: 60_000 })
    expect(rotated.status).toBe(200)
    bench.guard('new password of turned', String(rotated.answer['token']))
    expect((await bench.admin('POST', '/v1/revoke', { kind: 'handle', target: placeholder })).status).toBe(
      200,
    )
    const knock = async (login: string): Promise<number> => {
      const client = await bench.client()
      const authority = bench.at('free.good.test')
      client.write(`CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n${login}\r\n`)
      const { status: answer } = await client.response()
      client.destroy()
      return answer
    }
    expect(await knock(old)).toBe(200)
    step(day)
    expect(await knock(old)).toBe(407)
    await until(() => bench.broker.app.holder.current().sandboxes.get('turned')?.tokens.length === 1, 'sweep')
    step(-year)
    expect(await knock(old)).toBe(407)
    expect(await knock(await bench.broker.auth('turned'))).toBe(200)
    step(year - day)
    const client = await bench.tunnel('turned', 'api.good.test')
    client.write(get('api.good.test', '/v1/x', `Authorization: Bearer ${placeholder}`))
    expect((await client.response()).statusLine).toMatch(/ 403 octroi handle_unknown /)
    client.destroy()
  })

  it('time limits of connections follow the monotonic clock: a jump ends nothing', async () => {
    const stream = await bench.tunnel('s1', 'free.good.test')
    stream.write(get('free.good.test', '/stream'))
    await stream.read((text) => text.includes(': up'))
    for (const jump of [10 * year, -11 * year]) {
      step(jump)
      const { length } = stream.text
      await until(() => stream.text.length > length + 50, 'more of the stream')
    }
    expect(stream.isClosed).toBe(false)
    stream.destroy()
  })
})

it('ten years ahead the CA is over, which is said and ends with the jump; what needs no leaf goes on', async () => {
  const clock = steppedClock()
  const bench = await attackBench({ clock })
  const host = `plain.good.test:${bench.plain.port}`
  const plain = async (): Promise<number> => {
    const { client, response } = await bench.ask(
      's1',
      `GET http://${host}/ HTTP/1.1\r\nHost: ${host}\r\n\r\n`,
    )
    client.destroy()
    return response.status
  }
  const terminated = async (): Promise<number> => {
    const client = await bench.tunnel('s1', 'free.good.test')
    client.write(`GET / HTTP/1.1\r\nHost: ${bench.at('free.good.test')}\r\n\r\n`)
    const { status } = await client.response()
    client.destroy()
    return status
  }
  clock.step(10 * year)
  expect(await plain()).toBe(200)
  await expect(terminated()).rejects.toThrow()
  const ready = await bench.ready()
  expect(ready.status).toBe(503)
  expect(ready.body).toContain('ca')
  clock.step(-10 * year)
  expect(await terminated()).toBe(200)
  expect(await plain()).toBe(200)
  expect(await bench.ready()).toMatchObject({ status: 200 })
  const noted = queryEvents(bench.broker.stateFolder, { host: 'free.good.test' }).map(({ note }) => note)
  expect(noted.join()).toMatch(/CA of the broker expired/)
  await bench.stop()
})
