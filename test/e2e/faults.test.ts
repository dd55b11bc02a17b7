import { createServer, type AddressInfo, type Server, type Socket } from 'node:net'
import { createServer as createTlsServer } from 'node:tls'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { attackBench, type AttackBench } from '../helpers/attack-bench.ts'
import { hastyClock } from '../helpers/hasty-clock.ts'
import { ok } from '../helpers/origin.ts'

const withinMs = 10_000
/** Limits are seconds on a clock that runs ten times as fast. */
const hurry = 10

/** What an upstream does with one connection; `secured` is called when TLS stands, `sent` with what came so far. */
interface Behaviour {
  /** On the bare connection, before TLS. */
  accepted?(socket: Socket): void
  secured?(socket: Socket): void
  received?(socket: Socket, text: string): void
}

/** The connection below the TLS of the exchange at hand: a reset has to be its own. */
let bare: Socket | undefined
const reset = (): void => void bare?.resetAndDestroy()
const headIn = (text: string): boolean => text.includes('\r\n\r\n')
const once = (act: (socket: Socket) => void): Behaviour => {
  const done = new WeakSet<Socket>()
  return {
    received(socket, text) {
      if (!headIn(text) || done.has(socket)) return
      done.add(socket)
      act(socket)
    },
  }
}
/** Writes a text and resets once it is on its way. */
const partThenReset = (text: string): Behaviour =>
  once((socket) => socket.write(text, () => setTimeout(reset, 20)))

const resets: Readonly<Record<string, Behaviour>> = {
  'as it accepts': { accepted: reset },
  'when TLS stands': { secured: reset },
  'at the first byte of the request': { received: reset },
  'after the head of the request': once(reset),
  'in the status line': partThenReset('HTTP/1.1 2'),
  'in the head': partThenReset('HTTP/1.1 200 OK\r\nX-A: 1\r\nX-'),
  'after an informational response': partThenReset('HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n'),
  'after the head': partThenReset('HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n'),
  'in a body with a length': partThenReset('HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfive!'),
  'in the size of a chunk': partThenReset('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5'),
  'in a chunk': partThenReset('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfiv'),
  'before the last chunk': partThenReset(
    'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfive!\r\n',
  ),
  'in the trailers': partThenReset(
    'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfive!\r\n0\r\nX-T: 1',
  ),
  'in a body that ends with the connection': partThenReset('HTTP/1.1 200 OK\r\n\r\nfive!'),
}

describe('upstreams that fail in the middle', () => {
  let bench: AttackBench
  let behaviour: Behaviour = {}
  let port = 0
  let connections = 0
  const servers: Server[] = []
  /** Requests read whole or in part, one text for each connection. */
  const seen: string[] = []

  beforeAll(async () => {
    bench = await attackBench({
      clock: hastyClock(hurry),
      limits: { firstByteMs: 5_000, stallMs: 7_000, headMs: 7_000 },
      edit: (yaml, { tls }) =>
        yaml
          .replaceAll(`port: ${tls}`, 'port: PORT')
          .replaceAll(`ports: [${tls}]`, 'ports: [PORT, TLS]')
          .replaceAll('PORT', '65000')
          .replaceAll('TLS', String(tls)),
    })
    const { cert, key } = await bench.ca.issue({ names: ['*.good.test', '*.wild.test'] })
    const inner = createTlsServer({ cert, key, ALPNProtocols: ['http/1.1'] }, (socket) => {
      const index = seen.push('') - 1
      socket.on('error', () => undefined)
      behaviour.secured?.(socket)
      socket.on('data', (chunk: Buffer) => {
        seen[index] += chunk.toString('latin1')
        behaviour.received?.(socket, seen[index] ?? '')
      })
    })
    inner.on('tlsClientError', () => undefined)
    const outer = createServer((socket) => {
      connections++
      bare = socket
      socket.on('error', () => undefined)
      behaviour.accepted?.(socket)
      if (!socket.destroyed) inner.emit('connection', socket)
    })
    servers.push(outer, inner)
    await new Promise<void>((resolve) => outer.listen(0, '127.0.0.1', resolve))
    port = (outer.address() as AddressInfo).port
    bench.mayDial.add(`127.0.0.1:${port}`)
    const yaml = await bench.config()
    await bench.broker.reconfigure(yaml.replaceAll('65000', String(port)))
  })
  afterEach(async () => {
    behaviour = {}
    await bench.standing()
  })
  afterAll(async () => {
    await bench.stop()
    for (const server of servers) server.close()
  })

  const at = (host: string): string => `${host}:${port}`
  const bearer = (): string => `Authorization: Bearer ${bench.placeholder('api')}\r\n`
  const head = (line: string, host: string, more = ''): string =>
    `${line} HTTP/1.1\r\nHost: ${at(host)}\r\n${more}\r\n`
  /** Everything that one request on a connection of its own brings, and how the connection ended. */
  const bytesOf = async (host: string, request: string): Promise<string> => {
    const client = await bench.tunnel('s1', at(host))
    client.write(request)
    await client.read((text) => client.isClosed || / 50[24] octroi [^]*\}$/.test(text), withinMs)
    const { text } = client
    client.destroy()
    return text
  }
  const isWhole = (text: string): boolean => {
    const [top = '', body = ''] = text.split(/\r\n\r\n([^]*)/)
    if (/transfer-encoding: chunked/i.test(top)) return body.endsWith('0\r\n\r\n')
    const length = /content-length: (\d+)/i.exec(top)?.[1]
    return top !== '' && length !== undefined && body.length >= Number(length)
  }

  for (const [phase, how] of Object.entries(resets)) {
    it(`a reset ${phase} is 502 or a cut answer, asked once, and the next request is served`, async () => {
      for (const [host, swap] of [
        ['free.good.test', ''],
        ['api.good.test', bearer()],
      ] as const) {
        behaviour = how
        const before = connections
        const mark = bench.mark()
        const text = await bytesOf(host, head('POST /v1/x', host, `${swap}Content-Length: 0\r\n`))
        const isRefused =
          /^(HTTP\/1\.1 103 [^]*?\r\n\r\n)?HTTP\/1\.1 502 octroi (upstream_failed|upstream_unreachable|upstream_tls) /.test(
            text,
          )
        expect([phase, host, text, isRefused || !isWhole(text)]).toEqual([phase, host, text, true])
        const [event] = await mark.decisions(1)
        expect([phase, event]).toMatchObject([
          phase,
          { agent: 'a1', verdict: 'deny', end: 'upstream_failed' },
        ])
        expect(connections - before).toBe(1)
        // Closed, so that each case has connections of its own.
        behaviour = once((socket) => void socket.end(ok('fine', ['Connection: close'])))
        const after = await bench.tunnel('s1', at(host))
        after.write(head('GET /v1/x', host, swap))
        expect((await after.response()).body).toBe('fine')
        after.destroy()
        await mark.decisions(2)
      }
    })
  }

  it('a reset in the middle of an upload ends the upload with 502', async () => {
    behaviour = {
      received: (_, text) => {
        if (text.includes('half')) reset()
      },
    }
    for (const framing of ['Content-Length: 1000000\r\n', 'Transfer-Encoding: chunked\r\n']) {
      const client = await bench.tunnel('s1', at('free.good.test'))
      const mark = bench.mark()
      client.write(head('POST /up', 'free.good.test', framing))
      client.write(framing.startsWith('C') ? 'half' : '4\r\nhalf\r\n')
      await client.read((text) => client.isClosed || text.endsWith('}'), withinMs)
      expect(client.text).toMatch(/^HTTP\/1\.1 502 octroi upstream_failed /)
      expect((await mark.decisions(1))[0]).toMatchObject({
        reason: 'upstream_failed',
        end: 'upstream_failed',
      })
      client.destroy()
    }
  })

  it('a second answer, at once or late, is no answer to what is asked next, and never to another sandbox', async () => {
    const second = 'HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison'
    const answers: readonly ((socket: Socket) => void)[] = [
      (socket) => void socket.write(`${ok('first')}${second}`),
      (socket) => {
        socket.write(ok('first'))
        setTimeout(() => socket.write(second), 20)
      },
      (socket) => {
        socket.write(ok('first').slice(0, -2))
        setTimeout(() => socket.write(`st${second}`), 20)
      },
    ]
    for (const [round, act] of answers.entries()) {
      const answered = new WeakMap<Socket, number>()
      behaviour = {
        received: (socket, text) => {
          const heads = text.split('\r\n\r\n').slice(0, -1)
          if (heads.length === (answered.get(socket) ?? 0)) return
          answered.set(socket, heads.length)
          const path = heads.at(-1)?.split(' ')[1] ?? ''
          if (path.startsWith('/v1/first')) act(socket)
          else socket.write(ok(`answer to ${path}`))
        },
      }
      const client = await bench.tunnel('s1', at('api.good.test'))
      client.write(head('GET /v1/first', 'api.good.test', bearer()))
      expect((await client.response()).body).toBe('first')
      const other = await bench.tunnel('s2', at('api.good.test'))
      other.write(head(`GET /v1/other${round}`, 'api.good.test'))
      expect((await other.response()).body).toBe(`answer to /v1/other${round}`)
      await sleep(50)
      client.write(head(`GET /v1/next${round}`, 'api.good.test', bearer()))
      expect((await client.response()).body).toBe(`answer to /v1/next${round}`)
      for (const one of [client, other]) one.destroy()
    }
  })

  it('an answer that trickles byte by byte passes, however long it takes in all', async () => {
    const answer = ok('slow and whole')
    behaviour = once((socket) => {
      void (async () => {
        const body = answer.indexOf('slow')
        socket.write(answer.slice(0, body))
        for (const byte of answer.slice(body)) {
          await sleep(80)
          socket.write(byte)
        }
      })()
    })
    const client = await bench.tunnel('s1', at('free.good.test'))
    client.write(head('GET /slow', 'free.good.test'))
    const started = Date.now()
    expect((await client.response(withinMs)).body).toBe('slow and whole')
    // Longer than `stallMs`, which is for each pause.
    expect(Date.now() - started).toBeGreaterThan(7_000 / hurry)
    client.destroy()
  })

  it('a head that trickles is 504 however often a byte comes, and so is a TLS handshake that does', async () => {
    behaviour = once((socket) => {
      const timer = setInterval(() => socket.write('H'), 20)
      socket.on('close', () => clearInterval(timer))
    })
    const mark = bench.mark()
    expect(await bytesOf('free.good.test', head('GET /', 'free.good.test'))).toMatch(
      /^HTTP\/1\.1 50[24] octroi upstream_(timeout|failed) /,
    )
    behaviour = {
      accepted(socket) {
        const timer = setInterval(() => socket.write('\x16'), 20)
        socket.on('close', () => clearInterval(timer))
      },
    }
    expect(await bytesOf('free.good.test', head('GET /', 'free.good.test'))).toMatch(
      /^HTTP\/1\.1 50[24] octroi upstream_/,
    )
    const events = await mark.decisions(2)
    expect(events.every(({ verdict, end }) => verdict === 'deny' && end === 'upstream_failed')).toBe(true)
  })

  it('an upstream that reads nothing of an upload holds it back, then it is ended, and memory stays as it was', async () => {
    behaviour = { secured: (socket) => void socket.pause() }
    const client = await bench.tunnel('s1', at('free.good.test'))
    const mark = bench.mark()
    client.write(head('POST /up', 'free.good.test', 'Content-Length: 1000000000\r\n'))
    const piece = Buffer.alloc(64 * 1024, 'x')
    const before = process.memoryUsage().rss
    let sent = 0
    const pump = (): void => {
      while (!client.socket.destroyed && client.socket.write(piece)) sent += piece.length
    }
    client.socket.on('drain', pump)
    pump()
    await client.read((text) => client.isClosed || text.includes('octroi'), withinMs)
    expect(client.text === '' || /^HTTP\/1\.1 504 octroi upstream_timeout /.test(client.text)).toBe(true)
    expect(sent).toBeLessThan(64 * 1024 * 1024)
    expect(process.memoryUsage().rss - before).toBeLessThan(256 * 1024 * 1024)
    expect((await mark.decisions(1))[0]).toMatchObject({ agent: 'a1', verdict: 'deny' })
    client.destroy()
  })
})
