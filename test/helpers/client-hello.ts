import { createServer } from 'node:net'
import type { AddressInfo } from 'node:net'
import { connect } from 'node:tls'
import type { ConnectionOptions } from 'node:tls'

const uint = (value: number, bytes: number): Buffer => {
  const out = Buffer.alloc(bytes)
  out.writeUIntBE(value, 0, bytes)
  return out
}

/** A vector with a length field of `bytes`. */
export const vector = (bytes: number, ...parts: readonly Uint8Array[]): Buffer => {
  const body = Buffer.concat(parts)
  return Buffer.concat([uint(body.length, bytes), body])
}

/** One extension. */
export const extension = (type: number, body: Uint8Array): Buffer =>
  Buffer.concat([uint(type, 2), vector(2, body)])

/** The server_name extension with these host names. */
export const serverNames = (...names: readonly string[]): Buffer =>
  extension(
    0,
    vector(2, ...names.map((name) => Buffer.concat([Buffer.of(0), vector(2, Buffer.from(name, 'latin1'))]))),
  )

/** A ClientHello handshake message; `extensions` absent leaves their length field out as well. */
export function helloMessage(
  extensions?: readonly Uint8Array[],
  sessionId: Uint8Array = Buffer.alloc(32),
): Buffer {
  const body = Buffer.concat([
    Buffer.of(3, 3),
    Buffer.alloc(32, 7),
    vector(1, sessionId),
    vector(2, Buffer.of(0x13, 0x01, 0x13, 0x02)),
    vector(1, Buffer.of(0)),
    ...(extensions ? [vector(2, ...extensions)] : []),
  ])
  return Buffer.concat([Buffer.of(1), vector(3, body)])
}

/** Cuts a handshake message into records of at most `size` payload bytes. */
export function toRecords(message: Uint8Array, size = 16_384): Buffer {
  const records: Buffer[] = []
  for (let at = 0; at < message.length; at += size) {
    records.push(Buffer.concat([Buffer.of(22, 3, 1), vector(2, message.subarray(at, at + size))]))
  }
  return Buffer.concat(records)
}

/** The handshake message inside one captured record. */
export const messageOf = (record: Buffer): Buffer => record.subarray(5)

/** The first flight of a real Node client. */
export async function captureHello(options: ConnectionOptions = {}): Promise<Buffer> {
  const { promise, resolve } = Promise.withResolvers<Buffer>()
  const server = createServer((socket) => {
    let seen = Buffer.alloc(0)
    socket.on('error', () => undefined)
    socket.on('data', (chunk) => {
      seen = Buffer.concat([seen, chunk])
      if (seen.length < 5 + seen.readUInt16BE(3)) return
      socket.destroy()
      resolve(seen)
    })
  })
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening))
  const client = connect({ host: '127.0.0.1', port: (server.address() as AddressInfo).port, ...options })
  client.on('error', () => undefined)
  try {
    return await promise
  } finally {
    client.destroy()
    server.close()
  }
}
