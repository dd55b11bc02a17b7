import { expect } from 'vitest'
import { ok } from '../helpers/origin.ts'
import { eventually, pause, type Bench } from './bench.ts'
import type { RelayCase } from './case.ts'
import { chunk } from './chunks.ts'

const closesUpstream = (bench: Bench): Promise<void> =>
  eventually(() => bench.origin.sockets.size === 0, 'the upstream connection is closed')

const hasReached = (bench: Bench, text: string): Promise<void> =>
  eventually(
    () => bench.origin.received[0]?.includes(text) ?? false,
    `the origin receives ${JSON.stringify(text)}`,
  )

/** What becomes of the other side when one side goes away. */
export const leavingCases: readonly RelayCase[] = [
  {
    key: 'leave-silent',
    name: 'closes the upstream connection when the client leaves while the upstream is silent',
    async run(bench) {
      bench.script({ onConnection: () => undefined })
      const client = await bench.client()
      client.write(bench.head('GET', '/silent'))
      await hasReached(bench, '\r\n\r\n')
      client.destroy()
      await closesUpstream(bench)
    },
  },
  {
    key: 'leave-upload',
    name: 'closes the upstream connection when the client leaves in the middle of an upload',
    async run(bench) {
      bench.script({ onConnection: () => undefined })
      for (const framing of ['Content-Length: 100000', 'Transfer-Encoding: chunked']) {
        bench.origin.received.length = 0
        const client = await bench.client()
        client.write(bench.head('POST', '/up', [framing]))
        client.write(framing.startsWith('T') ? chunk('first part') : 'first part')
        await hasReached(bench, 'first part')
        client.destroy()
        await closesUpstream(bench)
        // Half a request must not look whole.
        expect(bench.origin.received[0]).not.toContain('\r\n0\r\n')
      }
    },
  },
  {
    key: 'leave-download',
    name: 'closes the upstream connection when the client leaves in the middle of a download',
    async run(bench) {
      bench.script({
        onRequest: ({ socket }) => {
          socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n')
          const timer = setInterval(() => socket.write(chunk('x'.repeat(1000))), 5)
          socket.on('close', () => clearInterval(timer))
        },
      })
      const client = await bench.client()
      client.write(bench.head('GET', '/down'))
      await client.read((text) => text.includes('xxx'))
      client.destroy()
      await closesUpstream(bench)
    },
  },
  {
    key: 'death-length',
    name: 'tells the client when the upstream dies in a response with a length',
    async run(bench) {
      for (const isReset of [false, true]) {
        bench.script({
          onRequest: ({ socket }) => {
            socket.write('HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n0123456789')
            setTimeout(() => (isReset ? socket.resetAndDestroy() : socket.end()), 60)
          },
        })
        const client = await bench.client()
        client.write(bench.head('GET', '/dies'))
        const text = await client.closed()
        expect(text).toMatch(/^HTTP\/1\.1 200 OK\r\n/)
        expect(text).toMatch(/\r\nContent-Length: 1000\r\n/i)
        expect(text.endsWith('\r\n\r\n0123456789')).toBe(true)
      }
    },
  },
  {
    key: 'death-chunked',
    name: 'gives a chunked response no clean end when the upstream dies in it',
    async run(bench) {
      for (const isReset of [false, true]) {
        bench.script({
          onRequest: ({ socket }) => {
            socket.write(`HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${chunk('0123456789')}`)
            setTimeout(() => (isReset ? socket.resetAndDestroy() : socket.end()), 60)
          },
        })
        const client = await bench.client()
        client.write(bench.head('GET', '/dies'))
        const text = await client.closed()
        expect(text).toContain('0123456789')
        expect(text).not.toContain('\r\n0\r\n')
      }
    },
  },
  {
    key: 'refused',
    name: 'answers 502 when the upstream refuses the connection',
    async run(bench) {
      const client = await bench.client()
      client.write(bench.headTo(bench.deadAuthority, 'GET', '/'))
      expect(await client.response()).toMatchObject({ status: 502 })
    },
  },
]

/** Not in the table of the trials, but seen beside it: the leak that shows only in numbers. */
export async function leavesNothingOpen(bench: Bench, count: number): Promise<void> {
  bench.script({
    onRequest: ({ socket }) => void socket.write('HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nbegin'),
  })
  const clients = await Promise.all(Array.from({ length: count }, () => bench.client()))
  for (const client of clients) client.write(bench.head('GET', '/down'))
  await Promise.all(clients.map((client) => client.read((text) => text.endsWith('begin'), 10_000)))
  expect(bench.origin.sockets.size).toBe(count)
  for (const [index, client] of clients.entries()) {
    if (index % 2 === 0) client.socket.resetAndDestroy()
    else client.destroy()
  }
  await closesUpstream(bench)
  await pause(20)
  bench.script({ onRequest: ({ socket }) => void socket.write(ok('still here')) })
  const client = await bench.client()
  client.write(bench.head('GET', '/after'))
  expect(await client.response()).toMatchObject({ status: 200, body: 'still here' })
}
