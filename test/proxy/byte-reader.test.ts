import { Duplex } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { ByteReader, lingerClose } from '../../src/proxy/byte-reader.ts'

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

/** A socket whose peer takes each write after `ms`. */
function slowSocket(ms: number): { socket: Duplex; taken: string[] } {
  const taken: string[] = []
  const socket = new Duplex({
    allowHalfOpen: true,
    read: () => undefined,
    write(chunk: Buffer, _, done) {
      setTimeout(() => {
        taken.push(chunk.toString())
        done()
      }, ms)
    },
  })
  socket.on('error', () => undefined)
  return { socket, taken }
}

describe('a connection that is closed after its answer', () => {
  it('gives a slow peer the time to take the answer, then ends', async () => {
    const { socket, taken } = slowSocket(120)
    socket.write('an answer')
    lingerClose(socket, 50)
    await pause(90)
    expect(socket.destroyed).toBe(false)
    await pause(180)
    expect([taken, socket.destroyed]).toEqual([['an answer'], true])
  })

  it('does not wait for the end of a peer that has none of it left to take', async () => {
    const { socket } = slowSocket(0)
    lingerClose(socket, 10_000)
    await pause(20)
    socket.push(null)
    await pause(20)
    expect(socket.destroyed).toBe(true)
  })

  it('goes on to write for a peer that has ended its side', async () => {
    const { socket, taken } = slowSocket(80)
    socket.write('an answer')
    lingerClose(socket, 20)
    socket.push(null)
    await pause(160)
    expect([taken, socket.destroyed]).toEqual([['an answer'], true])
  })
})

describe('a reader', () => {
  it('of a socket that is closed already says so at once', async () => {
    const { socket } = slowSocket(0)
    socket.destroy()
    await pause(5)
    const reader = new ByteReader(socket)
    await reader.more()
    expect(reader).toMatchObject({ ended: true, closed: true, finished: false })
  })

  it('takes what came byte by byte in large pieces', () => {
    const { socket } = slowSocket(0)
    const reader = new ByteReader(socket)
    for (let n = 0; n < 100_000; n++) socket.emit('data', Buffer.from('x'))
    expect([reader.take(65_536)?.length, reader.take(65_536)?.length, reader.take(1)]).toEqual([
      65_536,
      34_464,
      undefined,
    ])
  })

  it('of a socket whose end was read before says so at once', async () => {
    const { socket } = slowSocket(0)
    socket.resume()
    socket.push(null)
    await pause(5)
    const reader = new ByteReader(socket)
    await reader.more()
    expect(reader).toMatchObject({ ended: true, closed: false, finished: true })
  })
})
