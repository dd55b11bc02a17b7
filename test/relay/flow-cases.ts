import { createHash } from 'node:crypto'
import type { Socket } from 'node:net'
import { expect } from 'vitest'
import { ok } from '../helpers/origin.ts'
import type { RawClient } from '../helpers/raw-client.ts'
import { eventually, pause, type Bench } from './bench.ts'
import type { RelayCase } from './case.ts'
import { chunk } from './chunks.ts'

const mebibyte = 1024 * 1024
/** More than this on the way means that somebody buffers without bound. */
const mostUnread = 16 * mebibyte
const whole = 24 * mebibyte

const pattern = Buffer.alloc(64 * 1024, '0123456789abcdef-')
const sha = (): ReturnType<typeof createHash> => createHash('sha256')

/** Writes `total` bytes as fast as `socket` takes them; `written` is what left this process or sits in the kernel. */
function pour(socket: Socket, total: number): { written(): number; digest: string } {
  const hash = sha()
  for (let at = 0; at < total; at += pattern.length) hash.update(pattern)
  let left = total
  const before = socket.bytesWritten
  const next = (): void => {
    while (left > 0 && !socket.destroyed) {
      left -= pattern.length
      if (!socket.write(pattern)) return void socket.once('drain', next)
    }
  }
  next()
  return { written: () => socket.bytesWritten - before - socket.writableLength, digest: hash.digest('hex') }
}

/** Waits until `count` does not grow any more. */
async function settled(count: () => number): Promise<number> {
  for (let last = -1; ;) {
    const now = count()
    if (now === last && now > 0) return now
    last = now
    await pause(150)
  }
}

/** Uploads 8 MiB without waiting for anybody, and resolves when an answer has begun. */
async function uploads(bench: Bench): Promise<RawClient> {
  const client = await bench.client()
  client.write(bench.head('POST', '/big', [`Content-Length: ${8 * mebibyte}`]))
  pour(client.socket, 8 * mebibyte)
  await client.read((text) => text.includes('\r\n\r\n'), 5_000)
  return client
}

const tooLarge = 'HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig'

/** The upstream refuses at once, closes with the upload unread and so resets the connection. */
export async function refusesAndCloses(bench: Bench): Promise<number> {
  bench.script({
    onConnection: (socket) => {
      socket.once('data', () => {
        socket.pause()
        socket.write(tooLarge, () => socket.destroy())
      })
    },
  })
  const client = await uploads(bench)
  const { status } = await client.response()
  await client.closed()
  return status
}

/** Data on its way: at once, no faster than it is taken, and early final answers. */
export const flowCases: readonly RelayCase[] = [
  {
    key: 'sse-event',
    name: 'passes the first event of a stream on at once',
    async run(bench) {
      bench.script({
        onRequest: ({ socket }) => {
          socket.write(
            'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n',
          )
          setTimeout(() => socket.write(chunk('data: one\n\n')), 100)
        },
      })
      const client = await bench.client()
      client.write(bench.head('GET', '/events'))
      await client.read((text) => text.includes('data: one\n\n'), 1_000)
    },
  },
  {
    key: 'sse-head',
    name: 'passes the head of a stream on at once, before any event',
    async run(bench) {
      bench.script({
        onRequest: ({ socket }) =>
          void socket.write(
            'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n',
          ),
      })
      const client = await bench.client()
      client.write(bench.head('GET', '/events'))
      await client.read((text) => text.includes('\r\n\r\n'), 500)
      expect(client.text).toMatch(/^HTTP\/1\.1 200 OK\r\n/)
    },
  },
  {
    key: 'upload-unread',
    name: 'stops a client whose upload the upstream does not read, and loses none of it',
    async run(bench) {
      const hash = sha()
      let upstream: Socket | undefined
      bench.script({
        onConnection: (socket) => {
          // Takes the place of the origin's own record, which 24 MiB would make slow.
          socket.removeAllListeners('data')
          socket.pause()
          upstream = socket
        },
      })
      const client = await bench.client()
      client.write(bench.head('POST', '/unread', [`Content-Length: ${whole}`]))
      await eventually(() => upstream !== undefined, 'the upstream is dialled')
      const { written, digest } = pour(client.socket, whole)
      const unread = await settled(written)
      expect(unread).toBeLessThan(mostUnread)
      let taken = 0
      let isHeadOver = false
      upstream?.on('data', (data: Buffer) => {
        const content = isHeadOver ? data : data.subarray(data.indexOf('\r\n\r\n') + 4)
        isHeadOver = true
        taken += content.length
        hash.update(content)
        if (taken === whole) upstream?.write(ok('all of it'))
      })
      upstream?.resume()
      expect(await client.response(10_000)).toMatchObject({ status: 200, body: 'all of it' })
      expect(hash.digest('hex')).toBe(digest)
    },
  },
  {
    key: 'download-unread',
    name: 'stops an upstream whose download the client does not read, and loses none of it',
    async run(bench) {
      let poured: ReturnType<typeof pour> | undefined
      bench.script({
        onRequest: ({ socket }) => {
          socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${whole}\r\n\r\n`)
          poured = pour(socket, whole)
        },
      })
      const client = await bench.client()
      client.socket.removeAllListeners('data')
      client.socket.pause()
      client.write(bench.head('GET', '/unread'))
      const unread = await settled(() => poured?.written() ?? 0)
      expect(unread).toBeLessThan(mostUnread)
      const hash = sha()
      let taken = 0
      let isHeadOver = false
      client.socket.on('data', (data: Buffer) => {
        const content = isHeadOver ? data : data.subarray(data.indexOf('\r\n\r\n') + 4)
        isHeadOver = true
        taken += content.length
        hash.update(content)
      })
      client.socket.resume()
      await eventually(() => taken === whole, 'the client receives all of it', 10_000)
      expect(hash.digest('hex')).toBe(poured?.digest)
    },
  },
  {
    key: 'early-413-close',
    name: 'brings an early 413 to the uploading client though the upstream closes at once',
    async run(bench) {
      expect(await refusesAndCloses(bench)).toBe(413)
    },
  },
  {
    key: 'early-413-reading',
    name: 'brings an early 413 to the uploading client while the upstream reads on',
    async run(bench) {
      bench.script({
        onConnection: (socket) => {
          socket.removeAllListeners('data')
          socket.resume()
          socket.once('data', () => socket.write(tooLarge))
        },
      })
      const client = await uploads(bench)
      expect(await client.response()).toMatchObject({ status: 413, body: 'big' })
    },
  },
]
