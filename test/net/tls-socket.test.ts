import { createServer } from 'node:net'
import type { AddressInfo, Socket } from 'node:net'
import { connect, createSecureContext, TLSSocket } from 'node:tls'
import type { SecureContext } from 'node:tls'
import { beforeAll, describe, expect, it } from 'vitest'
import { guardDestroy } from '../../src/net/tls-socket.ts'
import { createTestCa } from '../helpers/test-ca.ts'

let context: SecureContext
let ca: string
beforeAll(async () => {
  const root = await createTestCa()
  const leaf = await root.issue({ names: ['a.test'] })
  context = createSecureContext({ cert: leaf.chain, key: leaf.key })
  ca = root.cert
})

/** Makes tunnels, lets the server end each in its own way, and resolves when all are closed on both sides. */
async function endMany(rounds: number, end: (raw: Socket, tls: TLSSocket) => void): Promise<number> {
  let closed = 0
  const server = createServer((raw) => {
    raw.on('error', () => undefined)
    const tls = new TLSSocket(raw, { isServer: true, secureContext: context })
    guardDestroy(tls, raw)
    tls.on('error', () => undefined)
    tls.once('close', () => (closed += 1))
    tls.once('secure', () => {
      tls.write('hello')
      end(raw, tls)
    })
  })
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  const { port } = server.address() as AddressInfo
  for (let round = 0; round < rounds; round += 1) {
    const client = connect({ host: '127.0.0.1', port, ca, servername: 'a.test' })
    client.on('error', () => undefined)
    await new Promise((done) => client.once('close', done))
  }
  await new Promise((done) => server.close(done))
  return closed
}

describe('a guarded TLS socket', () => {
  it.each([
    {
      name: 'after the one below it',
      end: (raw: Socket, tls: TLSSocket) => void tls.destroy(raw.destroy().errored ?? undefined),
    },
    {
      name: 'before the one below it',
      end: (raw: Socket, tls: TLSSocket) => void raw.destroy(tls.destroy().errored ?? undefined),
    },
    {
      name: 'with an error after the one below it',
      end: (raw: Socket, tls: TLSSocket) => {
        raw.destroy()
        tls.destroy(new TypeError('revoked'))
      },
    },
    { name: 'alone', end: (_raw: Socket, tls: TLSSocket) => void tls.destroy() },
    { name: 'by the one below it', end: (raw: Socket) => void raw.destroy() },
  ])('can be destroyed $name, in one turn, and closes', async ({ end }) => {
    expect(await endMany(50, end)).toBe(50)
  })
})
