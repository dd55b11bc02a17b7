import { expect } from 'vitest'
import { ok } from '../helpers/origin.ts'
import { eventually, pause } from './bench.ts'
import type { RelayCase } from './case.ts'
import { chunk, dechunk, split } from './chunks.ts'

/** Trailers, and what an upstream says before its final response. */
export const interimCases: readonly RelayCase[] = [
  {
    key: 'response-trailers',
    name: 'passes response trailers on',
    async run(bench) {
      bench.script({
        onRequest: ({ socket }) =>
          void socket.write(
            `HTTP/1.1 200 OK\r\nTrailer: X-Sum, X-Count\r\nTransfer-Encoding: chunked\r\n\r\n${chunk('body')}0\r\nX-Sum: abc\r\nX-Count: 1\r\n\r\n`,
          ),
      })
      const client = await bench.client()
      client.write(bench.head('GET', '/trailers', ['TE: trailers']))
      const { raw, fields } = await client.response()
      expect(fields['trailer']).toBe('X-Sum, X-Count')
      expect(dechunk(split(raw).body)).toEqual({
        content: 'body',
        trailers: ['X-Sum: abc', 'X-Count: 1'],
        rest: '',
      })
    },
  },
  {
    key: 'request-trailers',
    name: 'passes request trailers on',
    async run(bench) {
      const client = await bench.client()
      bench.script({ onRequest: ({ socket }) => void socket.write(ok('got them')) })
      client.write(bench.head('POST', '/trailers', ['Trailer: X-Sum', 'Transfer-Encoding: chunked']))
      client.write(`${chunk('body')}0\r\nX-Sum: abc\r\n\r\n`)
      expect(await client.response()).toMatchObject({ status: 200 })
      const { head, body } = split(bench.origin.received[0] ?? '')
      expect(head).toMatch(/\r\nTrailer: X-Sum\r\n/i)
      expect(dechunk(body)).toEqual({ content: 'body', trailers: ['X-Sum: abc'], rest: '' })
    },
  },
  {
    key: 'expect-100',
    name: 'lets the upstream itself say 100 to a client that expects it',
    async run(bench) {
      let received = ''
      bench.script({
        onConnection: (socket) => {
          socket.on('data', (data: Buffer) => {
            received += data.toString('latin1')
            if (received.endsWith('hello')) socket.write(ok('thanks'))
          })
        },
      })
      const client = await bench.client()
      client.write(bench.head('POST', '/expect', ['Content-Length: 5', 'Expect: 100-continue']))
      await eventually(() => received.includes('\r\n\r\n'), 'the head arrives before the body is asked for')
      await pause(60)
      expect(client.text).toBe('')
      expect(received).toMatch(/\r\nExpect: 100-continue\r\n/i)
      expect(split(received).body).toBe('')
      for (const socket of bench.origin.sockets) socket.write('HTTP/1.1 100 Please Do\r\n\r\n')
      expect(await client.response()).toMatchObject({ status: 100 })
      client.write('hello')
      expect(await client.response()).toMatchObject({ status: 200, body: 'thanks' })
      expect(split(received).body).toBe('hello')
    },
  },
  {
    key: 'expect-417',
    name: 'brings a refused expectation to the client and never sends the body',
    async run(bench) {
      bench.script({
        onConnection: (socket) => {
          socket.once('data', () => socket.write('HTTP/1.1 417 Not Today\r\nContent-Length: 2\r\n\r\nno'))
        },
      })
      const client = await bench.client()
      client.write(bench.head('POST', '/expect', ['Content-Length: 5', 'Expect: 100-continue']))
      const response = await client.response()
      expect(response).toMatchObject({ status: 417, body: 'no' })
      expect(response.raw).not.toContain('100 ')
      // The next request could not be told from the body that was announced.
      await client.closed()
      expect(split(bench.origin.received[0] ?? '').body).toBe('')
    },
  },
  {
    key: 'early-hints',
    name: 'passes 103 early hints on as they come',
    async run(bench) {
      const hints =
        'HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nLink: </b.js>; rel=preload\r\n\r\n'
      bench.script({
        onRequest: ({ socket }) => {
          socket.write(hints)
          setTimeout(() => socket.write(ok('page')), 80)
        },
      })
      const client = await bench.client()
      client.write(bench.head('GET', '/hints'))
      await client.read((text) => text.endsWith('\r\n\r\n'))
      expect(client.text).toBe(hints)
      expect(await client.response()).toMatchObject({ status: 103 })
      expect(await client.response()).toMatchObject({ status: 200, body: 'page' })
    },
  },
]
