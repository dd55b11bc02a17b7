import { expect } from 'vitest'
import type { RelayCase } from './case.ts'
import { split } from './chunks.ts'

const lines = (head: string, name: string): string[] =>
  head.split('\r\n').filter((line) => line.toLowerCase().startsWith(`${name.toLowerCase()}:`))

const path = '/a//b/{x}|y%2Fz/%7Euser/;v=1?q=c//d&r={|}&s=%zz'

/** Request target and fields: what passes as it came, and what stays here. */
export const fieldCases: readonly RelayCase[] = [
  {
    key: 'path',
    name: 'passes the path and query on byte for byte',
    async run(bench) {
      const client = await bench.client()
      client.write(bench.head('GET', path))
      await client.response()
      expect(bench.origin.received[0]?.split('\r\n')[0]).toBe(`GET ${path} HTTP/1.1`)
    },
  },
  {
    key: 'request-hop-by-hop',
    name: 'keeps the fields of the client connection, the proxy credentials among them, from the upstream',
    async run(bench) {
      const client = await bench.client()
      client.write(
        bench.head('GET', '/hop', [
          'Connection: keep-alive, X-Private',
          'X-Private: 1',
          'Keep-Alive: timeout=5',
          'Proxy-Connection: keep-alive',
          'Proxy-Authenticate: Basic',
          'TE: trailers, deflate',
          'Upgrade-Insecure-Requests: 1',
          'X-End: 1',
        ]),
      )
      expect(await client.response()).toMatchObject({ status: 200 })
      const head = bench.origin.received[0] ?? ''
      for (const name of [
        'X-Private',
        'Keep-Alive',
        'Proxy-Connection',
        'Proxy-Authorization',
        'Proxy-Authenticate',
        'TE',
      ]) {
        expect(lines(head, name), name).toEqual([])
      }
      expect(lines(head, 'Upgrade-Insecure-Requests')).toHaveLength(1)
      expect(lines(head, 'X-End')).toHaveLength(1)
    },
  },
  {
    key: 'response-hop-by-hop',
    name: 'keeps the fields of the upstream connection from the client and two Set-Cookie apart',
    async run(bench) {
      bench.script({
        onRequest: ({ socket }) =>
          void socket.write(
            [
              'HTTP/1.1 200 OK',
              'Connection: X-Private, keep-alive',
              'X-Private: 1',
              'Keep-Alive: timeout=77',
              'Proxy-Authenticate: Basic realm="theirs"',
              'Upgrade: h2c',
              'Set-Cookie: a=1; Path=/',
              'X-End: 1',
              'Set-Cookie: b=2; Path=/',
              'Content-Length: 2',
              '',
              'ok',
            ].join('\r\n'),
          ),
      })
      const client = await bench.client()
      client.write(bench.head('GET', '/hop'))
      const { raw } = await client.response()
      const { head } = split(raw)
      for (const name of ['X-Private', 'Proxy-Authenticate', 'Upgrade'])
        expect(lines(head, name), name).toEqual([])
      expect(head).not.toContain('timeout=77')
      expect(lines(head, 'Set-Cookie').map((line) => line.slice(11).trim())).toEqual([
        'a=1; Path=/',
        'b=2; Path=/',
      ])
      expect(lines(head, 'X-End')).toHaveLength(1)
    },
  },
  {
    key: 'duplicates',
    name: 'keeps repeated request fields apart and in order',
    async run(bench) {
      const client = await bench.client()
      client.write(
        bench.head('GET', '/twice', ['X-Dup: a', 'Accept: x/1', 'X-Dup: b', 'Accept: y/2', 'X-Dup: a']),
      )
      expect(await client.response()).toMatchObject({ status: 200 })
      const head = bench.origin.received[0] ?? ''
      expect(lines(head, 'X-Dup')).toEqual(['X-Dup: a', 'X-Dup: b', 'X-Dup: a'])
      expect(lines(head, 'Accept')).toEqual(['Accept: x/1', 'Accept: y/2'])
    },
  },
]
