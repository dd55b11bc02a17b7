import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import type { TestBroker } from '../helpers/broker.ts'
import { ok, type OnRequest } from '../helpers/origin.ts'
import { eventually, pause, startBrokerBench, type Bench } from './bench.ts'

/** Heads of requests with this line start that the origin received, over all connections. */
const countOf = (bench: Bench, start: string): number =>
  bench.origin.received.join('\n').split(start).length - 1

/** A connection answers its first request and hangs up at its second. */
const hangsUpAtSecond: OnRequest = ({ socket, index }) => {
  if (index === 0) socket.write(ok('first'))
  else socket.destroy()
}

describe('connections to upstreams', () => {
  let bench: Bench & { broker: TestBroker }

  beforeAll(async () => {
    bench = await startBrokerBench()
  })
  afterEach(() => bench.reset())
  afterAll(() => bench.stop())

  const get = async (path: string, fields?: readonly string[]) => {
    const client = await bench.client()
    client.write(bench.head('GET', path, fields))
    return client.response()
  }

  it('carry sequential requests, of several clients of one sandbox too', async () => {
    for (const path of ['/1', '/2', '/3']) expect(await get(path)).toMatchObject({ status: 200 })
    expect(bench.origin.connections).toBe(1)
  })

  it('are never shared by two sandboxes', async () => {
    await get('/of-s1')
    const client = await bench.client()
    const auth = await bench.broker.auth('s2')
    client.write(`GET http://${bench.authority}/of-s2 HTTP/1.1\r\nHost: ${bench.authority}\r\n${auth}\r\n`)
    expect(await client.response()).toMatchObject({ status: 200 })
    expect(bench.origin.received.map((text) => text.split(' ')[1])).toEqual(['/of-s1', '/of-s2'])
  })

  it('gather no listeners while they are reused', async () => {
    const warnings: string[] = []
    const onWarning = (warning: Error): void => void warnings.push(warning.message)
    process.on('warning', onWarning)
    const client = await bench.client()
    for (let round = 0; round < 30; round++) {
      client.write(bench.head('GET', `/${round}`))
      await client.response()
    }
    await pause(10)
    process.off('warning', onWarning)
    expect(warnings).toEqual([])
    expect(bench.origin.connections).toBe(1)
  })

  it('are not reused after the server closed them while idle, whatever the method', async () => {
    bench.script({ onRequest: ({ socket }) => void socket.write(ok('once'), () => socket.end()) })
    await get('/1')
    await pause(30)
    const client = await bench.client()
    client.write(`${bench.head('POST', '/2', ['Content-Length: 4'])}body`)
    expect(await client.response()).toMatchObject({ status: 200 })
    expect(bench.origin.connections).toBe(2)
  })

  it('that turn out to be stale lose no GET: it runs again, once, on a new connection', async () => {
    bench.script({ onRequest: hangsUpAtSecond })
    await get('/first')
    expect(await get('/second')).toMatchObject({ status: 200, body: 'first' })
    expect(bench.origin.connections).toBe(2)
    expect(countOf(bench, 'GET /second')).toBe(2)
  })

  it('that fail twice are given up', async () => {
    let served = 0
    bench.script({
      onRequest: ({ socket }) => {
        if (served++ === 0) socket.write(ok('first'))
        else socket.destroy()
      },
    })
    await get('/first')
    expect(await get('/second')).toMatchObject({ status: 502 })
    expect(countOf(bench, 'GET /second')).toBe(2)
  })

  it.each([
    ['a POST', 'POST', ['Content-Length: 4'], 'body'],
    ['a POST without content', 'POST', ['Content-Length: 0'], ''],
    ['a GET with a body', 'GET', ['Content-Length: 4'], 'body'],
    ['a DELETE', 'DELETE', [], ''],
  ])('that turn out to be stale never run %s twice', async (_, method, fields, body) => {
    bench.script({ onRequest: hangsUpAtSecond })
    await get('/first')
    const client = await bench.client()
    client.write(`${bench.head(method, '/second', fields)}${body}`)
    expect(await client.response()).toMatchObject({ status: 502 })
    expect(countOf(bench, `${method} /second`)).toBe(1)
  })

  it.each([
    ['a second response', ok('stolen'), 0],
    ['a second response that comes later', ok('stolen'), 30],
    ['bytes after the body', 'stolen', 0],
  ])('that bring %s never give it to another request', async (_, extra, ms) => {
    bench.script({
      onRequest: ({ head, socket }) => {
        if (!head.startsWith('GET /poison ')) return void socket.write(ok('honest'))
        socket.write(ms === 0 ? `${ok('poisoned')}${extra}` : ok('poisoned'))
        if (ms > 0) setTimeout(() => socket.write(extra), ms)
      },
    })
    const client = await bench.client()
    client.write(bench.head('GET', '/poison'))
    expect((await client.response()).body).toBe('poisoned')
    await pause(ms * 2)
    client.write(bench.head('GET', '/victim'))
    expect((await client.response()).body).toBe('honest')
    expect(client.text).toBe('')
    expect(bench.origin.connections).toBe(2)
  })

  it.each([
    ['says it closes', 'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok'],
    ['is of HTTP/1.0', 'HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok'],
    ['gives it no time', 'HTTP/1.1 200 OK\r\nKeep-Alive: timeout=1\r\nContent-Length: 2\r\n\r\nok'],
  ])('are not reused after a response that %s', async (_, answer) => {
    bench.script({ onRequest: ({ socket }) => void socket.write(answer) })
    expect((await get('/1')).body).toBe('ok')
    expect((await get('/2')).body).toBe('ok')
    expect(bench.origin.connections).toBe(2)
  })

  it('never bring content of a response that has none to the client or to the next request', async () => {
    bench.script({
      onRequest: ({ head, socket }) => {
        const isHead = head.startsWith('HEAD ')
        socket.write(
          isHead || head.startsWith('GET /none')
            ? `HTTP/1.1 ${isHead ? '200 OK' : '204 No Content'}\r\nContent-Length: 6\r\n\r\nstolen`
            : ok('honest'),
        )
      },
    })
    for (const method of ['HEAD', 'GET']) {
      const client = await bench.client()
      client.write(bench.head(method, '/none'))
      const none = await client.response(undefined, method)
      // A 204 has no length; that of a response to HEAD is what GET would bring.
      expect(none.fields['content-length']).toBe(method === 'HEAD' ? '6' : undefined)
      client.write(bench.head('GET', '/next'))
      expect((await client.response()).body).toBe('honest')
      expect(client.text).toBe('')
    }
  })

  it('end a response without a length, and the client still learns where it ends', async () => {
    bench.script({
      onRequest: ({ socket }) => {
        socket.write('HTTP/1.1 200 OK\r\nX-A: 1\r\n\r\nuntil ')
        setTimeout(() => socket.end('close'), 40)
      },
    })
    const client = await bench.client()
    for (let round = 0; round < 2; round++) {
      client.write(bench.head('GET', '/close'))
      const response = await client.response()
      expect(response).toMatchObject({ status: 200, body: 'until close' })
      expect(response.fields['transfer-encoding']).toBe('chunked')
    }
  })

  it('give a response without a length no clean end when they are reset', async () => {
    bench.script({
      onRequest: ({ socket }) => {
        socket.write('HTTP/1.1 200 OK\r\n\r\nhalf')
        setTimeout(() => socket.resetAndDestroy(), 60)
      },
    })
    const client = await bench.client()
    client.write(bench.head('GET', '/close'))
    const text = await client.closed()
    expect(text).toContain('half')
    expect(text).not.toContain('\r\n0\r\n')
  })

  it('of which the first byte never comes lead to a 502 that names the reason', async () => {
    bench.script({ onRequest: ({ socket }) => socket.destroy() })
    const response = await get('/nothing')
    expect(response.statusLine).toMatch(/^HTTP\/1\.1 502 octroi upstream_failed plain\.good\.test:[0-9]+ id=/)
  })
})

describe('what an upstream may not send', () => {
  let bench: Bench & { broker: TestBroker }

  beforeAll(async () => {
    bench = await startBrokerBench()
  })
  afterEach(() => bench.reset())
  afterAll(() => bench.stop())

  const fields = (count: number, bytes: number): string =>
    Array.from({ length: count }, (_, index) => `X-${index}: ${'v'.repeat(bytes)}\r\n`).join('')

  it.each([
    [
      'more interim responses than anybody needs',
      'HTTP/1.1 103 Early Hints\r\nX-A: 1\r\n\r\n'.repeat(40) + ok('late'),
    ],
    ['a switch of protocols that nobody asked for', 'HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n'],
    [
      'a head over its limit that comes whole',
      `HTTP/1.1 200 OK\r\n${fields(100, 1_000)}Content-Length: 2\r\n\r\nok`,
    ],
    ['a head over its limit that never ends', `HTTP/1.1 200 OK\r\n${fields(100, 1_000)}`],
    ['too many fields', `HTTP/1.1 200 OK\r\n${fields(201, 1)}Content-Length: 2\r\n\r\nok`],
    ['a status line that never ends', `HTTP/1.1 200 ${'O'.repeat(5_000)}`],
    ['another protocol', 'SSH-2.0-OpenSSH_9.2\r\n\r\n'],
    ['another version', 'HTTP/2 200 OK\r\nContent-Length: 2\r\n\r\nok'],
    ['line breaks of its own', 'HTTP/1.1 200 OK\nContent-Length: 2\n\nok'],
    ['a folded field', 'HTTP/1.1 200 OK\r\nX-A: 1\r\n 2\r\nContent-Length: 2\r\n\r\nok'],
    ['two lengths', 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok'],
    [
      'a length and chunks',
      'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
    ],
    ['a coding that is not chunked', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n'],
    ['chunks in HTTP/1.0', 'HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n'],
    [
      'a chunk size that is none',
      'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x2\r\nok\r\n0\r\n\r\n',
    ],
    ['a part of a head', 'HTTP/1.1 200 OK\r\nContent-'],
  ])('%s ends in 502', async (_, answer) => {
    bench.script({
      onRequest: ({ socket }) => void socket.write(answer, () => setTimeout(() => socket.end(), 100)),
    })
    const client = await bench.client()
    client.write(bench.head('GET', '/bad'))
    for (;;) {
      const response = await client.response()
      if (response.status < 200) continue
      expect(response).toMatchObject({ status: 502 })
      expect(response.statusLine).toContain('octroi upstream_failed')
      break
    }
    await eventually(() => bench.origin.sockets.size === 0, 'the upstream connection is closed')
  })

  it('leaves a head of 60 KiB alone', async () => {
    bench.script({
      onRequest: ({ socket }) =>
        void socket.write(`HTTP/1.1 200 OK\r\n${fields(60, 1_000)}Content-Length: 2\r\n\r\nok`),
    })
    const client = await bench.client()
    client.write(bench.head('GET', '/long'))
    expect(await client.response()).toMatchObject({ status: 200, body: 'ok' })
  })

  it('cuts a body whose chunks break after the head has gone', async () => {
    bench.script({
      onRequest: ({ socket }) => {
        socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ngood\r\n')
        setTimeout(() => socket.write('4\r\ntoo long\r\n0\r\n\r\n'), 60)
      },
    })
    const client = await bench.client()
    client.write(bench.head('GET', '/bad'))
    const text = await client.closed()
    expect(text).toContain('good')
    expect(text).not.toContain('\r\n0\r\n')
  })
})
