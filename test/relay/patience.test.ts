import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import type { TestBroker } from '../helpers/broker.ts'
import { ok } from '../helpers/origin.ts'
import { eventually, pause, startBrokerBench, type Bench } from './bench.ts'
import { chunk } from './chunks.ts'

describe('how long an upstream is waited for', () => {
  let bench: Bench & { broker: TestBroker }

  beforeAll(async () => {
    bench = await startBrokerBench({ limits: { firstByteMs: 300, stallMs: 1_200 } })
  })
  afterEach(() => bench.reset())
  afterAll(() => bench.stop())

  it('ends in 504 when nothing comes after the request', async () => {
    bench.script({ onConnection: () => undefined })
    const client = await bench.client()
    client.write(bench.head('GET', '/silent'))
    const { statusLine } = await client.response()
    expect(statusLine).toMatch(/^HTTP\/1\.1 504 octroi upstream_timeout /)
    await eventually(() => bench.origin.sockets.size === 0, 'the upstream connection is closed')
    const [event] = await bench.broker.events((all) => all.length > 0)
    expect(event).toMatchObject({
      path: '/silent',
      status: 504,
      reason: 'upstream_timeout',
      end: 'upstream_failed',
    })
  })

  it('counts from the end of the request: a client may take its time with the body', async () => {
    bench.script({ onRequest: ({ body, socket }) => void socket.write(ok(body)) })
    const client = await bench.client()
    client.write(`${bench.head('POST', '/slow', ['Content-Length: 4'])}a`)
    for (const byte of 'bcd') {
      await pause(700)
      client.write(byte)
    }
    expect(await client.response()).toMatchObject({ status: 200, body: 'abcd' })
  })

  it('lets a stream be silent for longer than its head may take', async () => {
    bench.script({
      onRequest: ({ socket }) => {
        socket.write(
          'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n',
        )
        setTimeout(() => socket.write(`${chunk('data: late\n\n')}0\r\n\r\n`), 900)
      },
    })
    const client = await bench.client()
    client.write(bench.head('GET', '/events'))
    expect((await client.response()).body).toBe('data: late\n\n')
  })

  it('cuts a response in which nothing comes any more', async () => {
    bench.script({
      onRequest: ({ socket }) => void socket.write('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegin'),
    })
    const client = await bench.client()
    client.write(bench.head('GET', '/stalls'))
    expect((await client.closed()).endsWith('begin')).toBe(true)
    const isOurs = ({ path }: { path?: string | undefined }): boolean => path === '/stalls'
    const events = await bench.broker.events((all) => all.some(isOurs))
    expect(events.find(isOurs)).toMatchObject({
      status: 200,
      reason: 'upstream_timeout',
      end: 'upstream_failed',
    })
  })
})
