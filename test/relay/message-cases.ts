import { expect } from 'vitest'
import { ok, type OnRequest } from '../helpers/origin.ts'
import { pause, type Bench } from './bench.ts'
import type { RelayCase } from './case.ts'
import { chunk, dechunk, split } from './chunks.ts'

/** Answers the first request of a connection with `first`, every other with `second`. */
const thenOk =
  (first: string): OnRequest =>
  ({ socket, index }) =>
    void socket.write(index === 0 ? first : ok('second'))

/** A second request on the same client connection is answered, over the same upstream connection. */
async function carriesAnother(bench: Bench, client: Awaited<ReturnType<Bench['client']>>): Promise<void> {
  client.write(bench.head('GET', '/second'))
  expect(await client.response()).toMatchObject({ status: 200, body: 'second' })
  expect(bench.origin.connections).toBe(1)
}

// Content that looks like framing, in chunks that cut it at bad places.
const tricky = ['a\r\n', '0\r\n\r\nGET /x', ' HTTP/1.1\r\n\r\n', '\r', '\n5\r\nhello', '\x00\xff'.repeat(300)]
const smuggled = 'GET /forbidden HTTP/1.1\r\nHost: plain.good.test\r\n\r\n'

/** Framing: what a message holds, and where it ends. */
export const messageCases: readonly RelayCase[] = [
  {
    key: 'head',
    name: 'keeps the length of a response to HEAD and both connections usable',
    async run(bench) {
      bench.script({ onRequest: thenOk('HTTP/1.1 200 OK\r\nContent-Length: 1234\r\nX-A: 1\r\n\r\n') })
      const client = await bench.client()
      client.write(bench.head('HEAD', '/head'))
      const { fields, raw } = await client.response(undefined, 'HEAD')
      expect(fields['content-length']).toBe('1234')
      expect(split(raw).body).toBe('')
      await carriesAnother(bench, client)
    },
  },
  {
    key: '204',
    name: 'passes a 204 on without content and keeps both connections usable',
    async run(bench) {
      bench.script({ onRequest: thenOk('HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n') })
      const client = await bench.client()
      client.write(bench.head('DELETE', '/thing'))
      const { status, fields } = await client.response()
      expect(status).toBe(204)
      expect(fields).not.toHaveProperty('content-length')
      expect(fields).not.toHaveProperty('transfer-encoding')
      await carriesAnother(bench, client)
    },
  },
  {
    key: '304',
    name: 'passes a 304 on with the length it declares and keeps both connections usable',
    async run(bench) {
      bench.script({
        onRequest: thenOk('HTTP/1.1 304 Not Modified\r\nETag: "a"\r\nContent-Length: 1234\r\n\r\n'),
      })
      const client = await bench.client()
      client.write(bench.head('GET', '/cached', ['If-None-Match: "a"']))
      const { status, fields } = await client.response()
      expect(status).toBe(304)
      expect(fields).toMatchObject({ etag: '"a"', 'content-length': '1234' })
      await carriesAnother(bench, client)
    },
  },
  {
    key: 'chunked-upload',
    name: 'brings a chunked upload to the upstream byte for byte',
    async run(bench) {
      bench.script({
        onConnection: (socket) => {
          let text = ''
          socket.on('data', (data: Buffer) => {
            text += data.toString('latin1')
            if (dechunk(split(text).body) !== undefined) socket.write(ok('whole'))
          })
        },
      })
      const client = await bench.client()
      client.write(bench.head('PUT', '/up', ['Transfer-Encoding: chunked']))
      for (const part of tricky) {
        client.write(Buffer.from(chunk(part), 'latin1'))
        await pause(3)
      }
      client.write('0\r\n\r\n')
      expect(await client.response()).toMatchObject({ status: 200, body: 'whole' })
      const { head, body } = split(bench.origin.received[0] ?? '')
      expect(head).toMatch(/\r\nTransfer-Encoding: chunked\r\n/i)
      expect(head).not.toMatch(/content-length/i)
      expect(dechunk(body)).toEqual({ content: tricky.join(''), trailers: [], rest: '' })
    },
  },
  {
    key: 'smuggling',
    name: 'frames DELETE and OPTIONS with a chunked body so that the body is never run as a request',
    async run(bench) {
      for (const method of ['DELETE', 'OPTIONS']) {
        const seen: { head: string; body: string }[] = []
        bench.script({
          onRequest: ({ head, body, socket }) => {
            seen.push({ head, body })
            socket.write(ok('done'))
          },
        })
        const client = await bench.client()
        client.write(bench.head(method, '/allowed', ['Transfer-Encoding: chunked']))
        client.write(`${chunk(smuggled)}0\r\n\r\n`)
        expect(await client.response()).toMatchObject({ status: 200 })
        client.write(bench.head('GET', '/next'))
        expect(await client.response()).toMatchObject({ status: 200 })
        const lines = seen.map(({ head }) => head.slice(0, head.indexOf(' HTTP/1.1')))
        expect(lines).toEqual([`${method} /allowed`, 'GET /next'])
        expect(seen[0]?.head).not.toMatch(/content-length/i)
        expect(dechunk(seen[0]?.body ?? '')).toMatchObject({ content: smuggled })
      }
    },
  },
  {
    key: 'get-body',
    name: 'passes a GET with a body on with the body',
    async run(bench) {
      bench.script({ onRequest: ({ body, socket }) => void socket.write(ok(`got ${body}`)) })
      const client = await bench.client()
      client.write(`${bench.head('GET', '/search', ['Content-Length: 5'])}query`)
      expect(await client.response()).toMatchObject({ status: 200, body: 'got query' })
      expect(bench.origin.received[0]).toMatch(/\r\nContent-Length: 5\r\n/i)
    },
  },
]
