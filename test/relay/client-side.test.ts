import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import type { TestBroker } from '../helpers/broker.ts'
import { ok } from '../helpers/origin.ts'
import { eventually, startBrokerBench, type Bench } from './bench.ts'
import { chunk, dechunk, split } from './chunks.ts'

const originForms = (bench: Bench): string[] =>
  bench.origin.received.flatMap((text) =>
    [...text.matchAll(/^([A-Z]+ [^ ]+) HTTP\/1\.1\r$/gm)].map((match) => match[1] ?? ''),
  )

describe('the connection of a client', () => {
  let bench: Bench & { broker: TestBroker }

  beforeAll(async () => {
    bench = await startBrokerBench({ limits: { halfCloseMs: 500 } })
  })
  afterEach(() => bench.reset())
  afterAll(() => bench.stop())

  it('answers three requests of one segment in order, with one event for each', async () => {
    bench.script({
      onRequest: ({ head, socket }) => {
        const path = head.split(' ')[1] ?? ''
        // The first is the slowest: an answer out of order would overtake it.
        setTimeout(() => socket.write(ok(path)), path === '/pipe/1' ? 80 : 0)
      },
    })
    const client = await bench.client()
    client.write(['/pipe/1', '/pipe/2', '/pipe/3'].map((path) => bench.head('GET', path)).join(''))
    const bodies = [await client.response(), await client.response(), await client.response()].map(
      ({ body }) => body,
    )
    expect(bodies).toEqual(['/pipe/1', '/pipe/2', '/pipe/3'])
    expect(originForms(bench)).toEqual(['GET /pipe/1', 'GET /pipe/2', 'GET /pipe/3'])
    const isOurs = ({ path }: { path?: string | undefined }): boolean => path?.startsWith('/pipe/') ?? false
    const events = (await bench.broker.events((all) => all.filter(isOurs).length >= 3)).filter(isOurs)
    expect(events.map(({ path, status, end }) => [path, status, end])).toEqual([
      ['/pipe/1', 200, 'complete'],
      ['/pipe/2', 200, 'complete'],
      ['/pipe/3', 200, 'complete'],
    ])
  })

  it('finds the next request behind bodies that came in the same segment', async () => {
    bench.script({
      onRequest: ({ body, socket }) => void socket.write(ok(`<${body.replaceAll('\r\n', '|')}>`)),
    })
    const client = await bench.client()
    client.write(
      [
        `${bench.head('POST', '/a', ['Content-Length: 3'])}one`,
        `${bench.head('POST', '/b', ['Transfer-Encoding: chunked'])}${chunk('two')}0\r\n\r\n`,
        bench.head('GET', '/c'),
      ].join(''),
    )
    expect((await client.response()).body).toBe('<one>')
    expect((await client.response()).body).toBe('<3|two|0||>')
    expect((await client.response()).body).toBe('<>')
  })

  it('forwards the body of a client that expects 100 and does not wait for it', async () => {
    bench.script({
      onRequest: ({ body, socket }) => void socket.write(`HTTP/1.1 100 Continue\r\n\r\n${ok(body)}`),
    })
    const client = await bench.client()
    client.write(`${bench.head('POST', '/eager', ['Content-Length: 5', 'Expect: 100-continue'])}hello`)
    expect(await client.response()).toMatchObject({ status: 100 })
    expect(await client.response()).toMatchObject({ status: 200, body: 'hello' })
    client.write(bench.head('GET', '/next'))
    expect(await client.response()).toMatchObject({ status: 200 })
  })

  it('keeps a 100 that nobody asked for from the client', async () => {
    bench.script({
      onRequest: ({ socket }) => void socket.write(`HTTP/1.1 100 Continue\r\n\r\n${ok('final')}`),
    })
    const client = await bench.client()
    client.write(`${bench.head('POST', '/plain', ['Content-Length: 5'])}hello`)
    expect(await client.response()).toMatchObject({ status: 200, body: 'final' })
  })

  it('sends the head on while a chunk is announced but has not come', async () => {
    bench.script({ onConnection: (socket) => void socket.once('data', () => socket.write(ok('seen'))) })
    const client = await bench.client()
    client.write(`${bench.head('POST', '/slow', ['Transfer-Encoding: chunked'])}5\r\n`)
    expect(await client.response()).toMatchObject({ status: 200, body: 'seen' })
  })

  it('answers an HTTP/1.0 client by its rules: no chunks, no interim responses, then the end', async () => {
    bench.script({
      onRequest: ({ socket }) =>
        void socket.write(
          `HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${chunk('old')}${chunk(' client')}0\r\n\r\n`,
        ),
    })
    const client = await bench.client()
    client.write(bench.head('GET', '/old').replace('HTTP/1.1', 'HTTP/1.0'))
    const text = await client.closed()
    expect(text).toMatch(/^HTTP\/1\.1 200 OK\r\n/)
    expect(split(text).head).not.toMatch(/transfer-encoding/i)
    expect(split(text).body).toBe('old client')
    expect(bench.origin.received[0]).toMatch(/^GET \/old HTTP\/1\.1\r\n/)
  })

  it('gives an HTTP/1.0 client no clean end for a response that was cut', async () => {
    bench.script({
      onRequest: ({ socket }) => {
        socket.write(`HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${chunk('half')}`)
        setTimeout(() => socket.destroy(), 60)
      },
    })
    const client = await bench.client()
    const failure = new Promise<string>((resolve) => {
      client.socket.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? ''))
      client.socket.once('end', () => resolve('a clean end'))
    })
    client.write(bench.head('GET', '/old').replace('HTTP/1.1', 'HTTP/1.0'))
    expect(await failure).toBe('ECONNRESET')
    expect(client.text.endsWith('half')).toBe(true)
  })

  it('answers a client that ended its side right after the request', async () => {
    bench.script({ onRequest: ({ socket }) => void setTimeout(() => socket.write(ok('late')), 100) })
    const client = await bench.client()
    client.write(bench.head('GET', '/half'))
    client.end()
    expect(await client.response()).toMatchObject({ status: 200, body: 'late' })
    await client.closed()
  })

  it('answers every pipelined request of a client that ended its side, each with its own patience', async () => {
    bench.script({
      onRequest: ({ head, socket }) => void setTimeout(() => socket.write(ok(head.split(' ')[1] ?? '')), 200),
    })
    const client = await bench.client()
    client.write(['/1', '/2', '/3', '/4'].map((path) => bench.head('GET', path)).join(''))
    client.end()
    for (const path of ['/1', '/2', '/3', '/4']) expect((await client.response()).body).toBe(path)
    await client.closed()
  })

  it('delivers a long answer to a client that ended its side, as long as something comes', async () => {
    bench.script({
      onRequest: ({ socket }) => {
        socket.write('HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n')
        for (let i = 0; i < 8; i++) setTimeout(() => socket.write(String(i)), 100 * (i + 1))
      },
    })
    const client = await bench.client()
    client.write(bench.head('GET', '/long'))
    client.end()
    expect(await client.response()).toMatchObject({ status: 200, body: '01234567' })
  })

  it('lets go of a stream in which nothing comes once its client has ended its side', async () => {
    bench.script({
      onRequest: ({ socket }) =>
        void socket.write(
          `HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n${chunk('data: 1\n\n')}`,
        ),
    })
    const client = await bench.client()
    client.write(bench.head('GET', '/idle-stream'))
    await client.read((text) => text.includes('data: 1'))
    client.end()
    await eventually(() => bench.origin.sockets.size === 0, 'the upstream connection is closed')
  })

  it('says that it closes when the upstream answered before the whole body came', async () => {
    bench.script({ onConnection: (socket) => void socket.once('data', () => socket.write(ok('enough'))) })
    const client = await bench.client()
    client.write(`${bench.head('POST', '/early', ['Content-Length: 1000000'])}begin`)
    const response = await client.response()
    expect(response).toMatchObject({ status: 200, body: 'enough' })
    expect(response.fields['connection']).toBe('close')
    await client.closed()
  })

  it('keeps the connection after an upload that was large and came whole', async () => {
    bench.script({
      onConnection: (socket) => {
        let taken = 0
        socket.removeAllListeners('data')
        socket.on('data', (data: Buffer) => {
          taken += data.length
          if (taken > 3_000_000) {
            taken = 0
            socket.write(ok('stored'))
          }
        })
      },
    })
    const client = await bench.client()
    for (let round = 0; round < 5; round++) {
      client.write(`${bench.head('PUT', '/big', ['Content-Length: 3000000'])}${'x'.repeat(3_000_000)}`)
      const response = await client.response()
      expect(response).toMatchObject({ status: 200, body: 'stored' })
      expect(response.fields).not.toHaveProperty('connection')
    }
  })

  it('exchanges a body and a response that flow at the same time', async () => {
    bench.script({
      onConnection: (socket) => {
        let text = ''
        let echoed = 0
        socket.on('data', (data: Buffer) => {
          text += data.toString('latin1')
          const { body } = split(text)
          if (echoed === 0 && body !== '')
            socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n')
          for (const [line] of body.slice(echoed).matchAll(/ping [0-9]/g))
            socket.write(chunk(line.replace('i', 'o')))
          echoed = body.length
          if (dechunk(body) !== undefined) socket.write('0\r\n\r\n')
        })
      },
    })
    const client = await bench.client()
    client.write(bench.head('POST', '/duplex', ['Transfer-Encoding: chunked']))
    for (const number of ['1', '2', '3']) {
      client.write(chunk(`ping ${number}`))
      await client.read((text) => text.includes(`pong ${number}`))
    }
    client.write('0\r\n\r\n')
    expect((await client.response()).body).toBe('pong 1pong 2pong 3')
  })

  it('forwards a chunked body without content as one', async () => {
    const client = await bench.client()
    client.write(`${bench.head('POST', '/empty', ['Transfer-Encoding: chunked'])}0\r\n\r\n`)
    expect(await client.response()).toMatchObject({ status: 200 })
    expect(bench.origin.received[0]).toMatch(/\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n$/)
  })

  it('drops chunk extensions in both directions', async () => {
    bench.script({
      onRequest: ({ socket }) =>
        void socket.write(
          'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4;name="a b";x\r\nback\r\n0;last\r\n\r\n',
        ),
    })
    const client = await bench.client()
    client.write(
      `${bench.head('POST', '/ext', ['Transfer-Encoding: chunked'])}4;sign=ab\r\nsent\r\n0\r\n\r\n`,
    )
    const { raw } = await client.response()
    expect(split(raw).body).toBe('4\r\nback\r\n0\r\n\r\n')
    expect(split(bench.origin.received[0] ?? '').body).toBe('4\r\nsent\r\n0\r\n\r\n')
  })

  it('refuses an upgrade in words, before anything is sent upstream', async () => {
    const client = await bench.client()
    client.write(
      bench.head('GET', '/socket', [
        'Connection: Upgrade',
        'Upgrade: websocket',
        'Sec-WebSocket-Version: 13',
        'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
      ]),
    )
    const { status, statusLine, body } = await client.response()
    expect(status).toBe(501)
    expect(statusLine).toMatch(/^HTTP\/1\.1 501 octroi method_unsupported /)
    expect(body).toContain('WebSocket')
    expect(bench.origin.connections).toBe(0)
  })

  it('cuts a client that takes nothing of its answer for a whole period', async () => {
    const impatient = await startBrokerBench({ limits: { stallMs: 400 } })
    try {
      impatient.script({
        onRequest: ({ socket }) => {
          socket.write('HTTP/1.1 200 OK\r\nContent-Length: 30000000\r\n\r\n')
          socket.write(Buffer.alloc(30_000_000))
        },
      })
      const client = await impatient.client()
      client.socket.pause()
      client.write(impatient.head('GET', '/unread'))
      const events = await impatient.broker.events((all) => all.length > 0)
      expect(events[0]).toMatchObject({ path: '/unread', status: 200, end: 'client_gone' })
      await eventually(() => impatient.origin.sockets.size === 0, 'the upstream connection is closed')
    } finally {
      await impatient.stop()
    }
  })
})
