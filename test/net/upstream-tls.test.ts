import { constants, X509Certificate } from 'node:crypto'
import { connect as connectSocket, createServer as createPlainServer } from 'node:net'
import type { AddressInfo, Socket } from 'node:net'
import { createServer } from 'node:tls'
import type { Server, TlsOptions, TLSSocket } from 'node:tls'
import { afterEach, beforeAll, describe, expect, it } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import { Refusal } from '../../src/core/errors.ts'
import { createUpstreamTls } from '../../src/net/upstream-tls.ts'
import type { ConnectTlsOptions, UpstreamTls } from '../../src/net/upstream-tls.ts'
import { createClientHelloReader } from '../../src/tls/client-hello.ts'
import { manualClock } from '../helpers/manual-clock.ts'
import { createTestCa } from '../helpers/test-ca.ts'
import type { Issued, IssueOptions, TestCa } from '../helpers/test-ca.ts'

const day = 86_400_000
const host = 'api.good.test'
const never = new AbortController().signal

let root: TestCa
let stranger: TestCa
let good: Issued
let upstream: UpstreamTls
beforeAll(async () => {
  root = await createTestCa()
  stranger = await createTestCa()
  good = await root.issue({ names: [host] })
  upstream = trusting(root)
})

const trusting = (ca: TestCa, clock = systemClock): UpstreamTls =>
  createUpstreamTls({ systemRoots: false, ca: [ca.cert], ownFingerprints: [], clock })

interface Served {
  readonly port: number
  /** What requests the server has read. */
  readonly received: string[]
  readonly server: Server
}

const closers: (() => void)[] = []
afterEach(() => {
  for (const close of closers.splice(0)) close()
})

async function serve(options: TlsOptions): Promise<Served> {
  const received: string[] = []
  const server = createServer(options, (socket) => {
    socket.on('error', () => undefined)
    socket.on('data', (chunk) => received.push(chunk.toString()))
    socket.write('hello')
  })
  server.on('tlsClientError', () => undefined)
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  closers.push(() => server.close())
  return { port: (server.address() as AddressInfo).port, received, server }
}

const serveIssued = (issued: Issued, options: TlsOptions = {}): Promise<Served> =>
  serve({ cert: issued.chain, key: issued.key, ...options })

async function dial(port: number): Promise<Socket> {
  const socket = connectSocket({ host: '127.0.0.1', port, allowHalfOpen: true })
  await new Promise((done, failed) => socket.once('connect', done).once('error', failed))
  return socket
}

async function connectTo(
  { port }: { port: number },
  options: Partial<ConnectTlsOptions> & { via?: UpstreamTls } = {},
): Promise<TLSSocket> {
  const { via = upstream, ...rest } = options
  const tls = await via.connectTls(await dial(port), { servername: host, signal: never, ...rest })
  closers.push(() => tls.destroy())
  return tls
}

/** The refusal of a connection that has to fail, after a check that the upstream read nothing. */
async function refusalOf(
  served: Served,
  options: Partial<ConnectTlsOptions> & { via?: UpstreamTls } = {},
): Promise<Refusal> {
  const outcome: unknown = await connectTo(served, options).catch((error: unknown) => error)
  expect(outcome).toBeInstanceOf(Refusal)
  expect(served.received).toEqual([])
  return outcome as Refusal
}

describe('a verified upstream', () => {
  it('is connected by TLS 1.3 with the name in SNI and http/1.1 in ALPN', async () => {
    const served = await serveIssued(good, { ALPNProtocols: ['http/1.1'] })
    const seen = new Promise<TLSSocket>((resolve) => served.server.once('secureConnection', resolve))
    const tls = await connectTo(served)
    expect([tls.authorized, tls.getProtocol(), tls.alpnProtocol]).toEqual([true, 'TLSv1.3', 'http/1.1'])
    expect((await seen).servername).toBe(host)
  })

  it('may speak TLS 1.2, know nothing of ALPN, and send an intermediate', async () => {
    const issued = await (await root.intermediate({ pathLength: 0 })).issue({ names: ['*.good.test'] })
    const tls = await connectTo(await serveIssued(issued, { maxVersion: 'TLSv1.2' }))
    expect([tls.authorized, tls.getProtocol(), tls.alpnProtocol]).toEqual([true, 'TLSv1.2', false])
  })

  it.each(['127.0.0.1', '::1'])(
    'named by its address %s gets no SNI and is verified by the address',
    async (address) => {
      const served = await serveIssued(await root.issue({ ips: ['127.0.0.1', '::1'] }))
      const seen = new Promise<TLSSocket>((resolve) => served.server.once('secureConnection', resolve))
      expect((await connectTo(served, { servername: address })).authorized).toBe(true)
      expect((await seen).servername).toBe(false)
    },
  )

  it('that ends the connection is not left half open', async () => {
    const served = await serveIssued(good)
    const peer = new Promise<TLSSocket>((resolve) => served.server.once('secureConnection', resolve))
    const tls = await connectTo(served)
    const closed = new Promise((resolve) => tls.once('close', resolve))
    tls.resume()
    ;(await peer).end()
    await closed
  })
})

describe('a certificate that is not accepted', () => {
  const rows: readonly { name: string; code: string; issue: () => Promise<Issued> }[] = [
    {
      name: 'that has expired',
      code: 'CERT_HAS_EXPIRED',
      issue: () => root.issue({ names: [host], notBefore: Date.now() - 9 * day, notAfter: Date.now() - day }),
    },
    {
      name: 'that is not valid yet',
      code: 'CERT_NOT_YET_VALID',
      issue: () => root.issue({ names: [host], notBefore: Date.now() + day }),
    },
    {
      name: 'for another host',
      code: 'ERR_TLS_CERT_ALTNAME_INVALID',
      issue: () => root.issue({ names: ['other.test'] }),
    },
    {
      name: 'with the name as common name only',
      code: 'ERR_TLS_CERT_ALTNAME_INVALID',
      issue: () => root.issue({ commonName: host }),
    },
    {
      name: 'with the name as common name and an address',
      code: 'ERR_TLS_CERT_ALTNAME_INVALID',
      issue: () => root.issue({ commonName: host, ips: ['127.0.0.1'] }),
    },
    {
      name: 'with a NUL after the name',
      code: 'ERR_TLS_CERT_ALTNAME_INVALID',
      issue: () => root.issue({ names: [`${host}\0.evil.test`] }),
    },
    {
      name: 'with a wildcard of part of a label',
      code: 'ERR_TLS_CERT_ALTNAME_INVALID',
      issue: () => root.issue({ names: ['a*.good.test'] }),
    },
    {
      name: 'with a wildcard of two labels',
      code: 'ERR_TLS_CERT_ALTNAME_INVALID',
      issue: () => root.issue({ names: ['*.test'] }),
    },
    {
      name: 'of an unknown root',
      code: 'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
      issue: () => stranger.issue({ names: [host] }),
    },
    {
      name: 'for clients only',
      code: 'INVALID_PURPOSE',
      issue: () => root.issue({ names: [host], usages: ['1.3.6.1.5.5.7.3.2'] }),
    },
    {
      name: 'of an issuer that is no CA',
      code: 'key usage does not include certificate signing',
      issue: async () => (await root.intermediate({ isCa: false })).issue({ names: [host] }),
    },
    {
      name: 'beyond the path length',
      code: 'PATH_LENGTH_EXCEEDED',
      issue: async () =>
        (await (await root.intermediate({ pathLength: 0 })).intermediate()).issue({ names: [host] }),
    },
    {
      name: 'outside the name constraint',
      code: 'permitted subtree violation',
      issue: async () => (await root.intermediate({ permittedDns: 'other.test' })).issue({ names: [host] }),
    },
    {
      name: 'without its intermediate',
      code: 'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
      issue: async () => {
        const issued = await (await root.intermediate()).issue({ names: [host] })
        return { ...issued, chain: issued.cert }
      },
    },
    {
      name: 'of an expired intermediate',
      code: 'CERT_HAS_EXPIRED',
      issue: async () =>
        (await root.intermediate({ notBefore: Date.now() - 9 * day, notAfter: Date.now() - day })).issue({
          names: [host],
        }),
    },
  ]

  it.each(rows)('is one $name', async ({ issue, code }) => {
    const refusal = await refusalOf(await serveIssued(await issue()))
    expect(refusal).toMatchObject({ reason: 'upstream_tls', detail: expect.stringContaining(code) as string })
  })

  it('is a self-signed one, and one whose root is sent along', async () => {
    const selfSigned = await createTestCa({ name: host, isCa: false })
    const alone = await refusalOf(await serve({ cert: selfSigned.cert, key: selfSigned.key }))
    expect(alone.detail).toContain('DEPTH_ZERO_SELF_SIGNED_CERT')
    const issued = await stranger.issue({ names: [host] })
    const whole = await refusalOf(await serve({ cert: issued.cert + stranger.cert, key: issued.key }))
    expect(whole.detail).toContain('SELF_SIGNED_CERT_IN_CHAIN')
  })

  it('is one signed with SHA-1', async () => {
    const issued = await root.issue({ names: [host], hash: 'SHA-1' })
    const served = await serveIssued(issued, { ciphers: 'DEFAULT:@SECLEVEL=0' })
    expect((await refusalOf(served)).reason).toBe('upstream_tls')
  })

  it('is a wildcard one for a name two labels below', async () => {
    const served = await serveIssued(await root.issue({ names: ['*.good.test'] }))
    const refusal = await refusalOf(served, { servername: 'a.b.good.test' })
    expect(refusal.detail).toContain('ERR_TLS_CERT_ALTNAME_INVALID')
  })

  it('is one for the name where an address is dialled, and for the address as a name', async () => {
    const served = await serveIssued(await root.issue({ names: ['127.0.0.1', host] }))
    expect((await refusalOf(served, { servername: '127.0.0.1' })).reason).toBe('upstream_tls')
  })

  it("is one of the broker's own CA, though the operator lists it", async () => {
    const other = createUpstreamTls({
      systemRoots: false,
      ca: [root.cert, stranger.cert],
      ownFingerprints: [root.fingerprint],
      clock: systemClock,
    })
    expect((await refusalOf(await serveIssued(good), { via: other })).reason).toBe('upstream_tls')
  })

  it('gives the client a sentence about the cause and nothing of the certificate', async () => {
    const served = await serveIssued(await root.issue({ names: ['secret-internal.test'] }))
    const refusal = await refusalOf(served)
    expect(refusal.hint).toBe('The certificate of the upstream is for another name.')
    expect(refusal.detail).toContain('secret-internal.test')
  })
})

describe('a handshake that fails', () => {
  it.each([
    {
      name: 'old versions only',
      options: { minVersion: 'TLSv1', maxVersion: 'TLSv1.1', ciphers: 'ALL:@SECLEVEL=0' },
    },
    {
      name: 'a cipher without forward secrecy only',
      options: { maxVersion: 'TLSv1.2', ciphers: 'AES128-GCM-SHA256' },
    },
    {
      name: 'an anonymous cipher only',
      options: { maxVersion: 'TLSv1.2', ciphers: 'AECDH-AES128-SHA:@SECLEVEL=0' },
    },
    { name: 'h2 only', options: { ALPNProtocols: ['h2'] } },
  ] as const)('is upstream_tls for an upstream with $name', async ({ options }) => {
    const served = await serveIssued(await root.issue({ names: [host], keyKind: 'rsa2048' }), options)
    const refusal = await refusalOf(served)
    expect(refusal).toMatchObject({
      reason: 'upstream_tls',
      hint: 'The TLS handshake with the upstream failed.',
    })
  })

  /** An upstream that treats the connection as the function says. */
  async function serveRaw(onSocket: (socket: Socket) => void): Promise<Served> {
    const sockets = new Set<Socket>()
    const server = createPlainServer((socket) => {
      sockets.add(socket)
      socket.on('error', () => undefined)
      onSocket(socket)
    })
    await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
    closers.push(() => {
      for (const socket of sockets) socket.destroy()
      server.close()
    })
    return { port: (server.address() as AddressInfo).port, received: [], server: server as Server }
  }

  it.each([
    { name: 'closes', onSocket: (socket: Socket) => socket.end() },
    { name: 'resets', onSocket: (socket: Socket) => socket.once('data', () => socket.resetAndDestroy()) },
    { name: 'speaks HTTP', onSocket: (socket: Socket) => socket.write('HTTP/1.1 400 Bad Request\r\n\r\n') },
  ])('is upstream_tls for an upstream that $name', async ({ onSocket }) => {
    expect((await refusalOf(await serveRaw((socket) => void onSocket(socket)))).reason).toBe('upstream_tls')
  })

  it('is upstream_timeout for an upstream that is silent, and closes the connection', async () => {
    const clock = manualClock()
    const socket = await dial((await serveRaw(() => undefined)).port)
    const handshake = trusting(root, clock).connectTls(socket, { servername: host, signal: never })
    clock.advance(10_000)
    await expect(handshake).rejects.toMatchObject({ reason: 'upstream_timeout' })
    expect([socket.destroyed, clock.pending]).toEqual([true, 0])
  })

  it('ends with the reason of an abort, before and during', async () => {
    const silent = await serveRaw(() => undefined)
    const leaving = new AbortController()
    const socket = await dial(silent.port)
    const handshake = upstream.connectTls(socket, { servername: host, signal: leaving.signal })
    leaving.abort(new TypeError('gone'))
    await expect(handshake).rejects.toThrow('gone')
    expect(socket.destroyed).toBe(true)
    const late = await dial(silent.port)
    await expect(upstream.connectTls(late, { servername: host, signal: leaving.signal })).rejects.toThrow(
      'gone',
    )
    expect(late.destroyed).toBe(true)
  })

  it('survives an owner that destroys the socket and aborts in one turn', async () => {
    const served = await serveIssued(good)
    for (let round = 0; round < 20; round += 1) {
      const leaving = new AbortController()
      const socket = await dial(served.port)
      const handshake = upstream.connectTls(socket, { servername: host, signal: leaving.signal })
      await new Promise((resolve) => setTimeout(resolve, round % 5))
      socket.destroy()
      leaving.abort(new TypeError('gone'))
      await handshake.catch((error: unknown) => expect(error).toMatchObject({ message: 'gone' }))
    }
  })

  it('is upstream_tls for a socket that is closed already', async () => {
    const socket = await dial((await serveRaw(() => undefined)).port)
    socket.destroy()
    await expect(upstream.connectTls(socket, { servername: host, signal: never })).rejects.toMatchObject({
      reason: 'upstream_tls',
    })
  })
})

describe('a session', () => {
  /** Reads until the upstream's greeting has come, and with it the tickets of TLS 1.3. */
  const greeted = async (tls: TLSSocket): Promise<TLSSocket> => {
    await new Promise((resolve) => tls.once('data', resolve))
    return tls
  }

  it.each(['TLSv1.2', 'TLSv1.3'] as const)('is resumed with the same upstream: %s', async (version) => {
    const via = trusting(root)
    const served = await serveIssued(good, { minVersion: version, maxVersion: version })
    expect((await greeted(await connectTo(served, { via }))).isSessionReused()).toBe(false)
    const second = await greeted(await connectTo(served, { via }))
    expect([second.isSessionReused(), second.authorized]).toEqual([true, true])
  })

  it('is not resumed under another name, whose certificate would not be looked at again', async () => {
    const via = trusting(root)
    const served = await serveIssued(good)
    await greeted(await connectTo(served, { via }))
    const refusal = await refusalOf({ ...served, received: [] }, { via, servername: 'other.test' })
    expect(refusal.detail).toContain('ERR_TLS_CERT_ALTNAME_INVALID')
  })

  it('is not kept of an upstream that was refused', async () => {
    const via = trusting(root)
    const wrong = await root.issue({ names: ['other.test'] })
    const served = await serveIssued(wrong, { maxVersion: 'TLSv1.2' })
    await refusalOf(served, { via })
    expect((await refusalOf(served, { via })).detail).toContain('ERR_TLS_CERT_ALTNAME_INVALID')
  })

  it('is given up after an hour', async () => {
    const clock = manualClock()
    const via = trusting(root, clock)
    const served = await serveIssued(good)
    await greeted(await connectTo(served, { via }))
    clock.advance(3_600_000)
    expect((await connectTo(served, { via })).isSessionReused()).toBe(false)
  })
})

describe('a client certificate', () => {
  it('is shown to the upstream it is for and to no other, not even by resumption', async () => {
    const via = trusting(root)
    const mine = await root.issue({
      names: ['broker.test'],
      usages: ['1.3.6.1.5.5.7.3.2'],
    } satisfies IssueOptions)
    const certificate = { cert: mine.chain, key: mine.key }
    const served = await serveIssued(good, { requestCert: true, rejectUnauthorized: false, ca: root.cert })
    const shown: (string | undefined)[] = []
    served.server.on('secureConnection', (socket) =>
      shown.push(socket.getPeerX509Certificate()?.fingerprint256),
    )
    for (const clientCertificate of [certificate, undefined, certificate]) {
      const tls = await connectTo(served, { via, clientCertificate })
      await new Promise((resolve) => tls.once('data', resolve))
    }
    const fingerprint = new X509Certificate(mine.cert).fingerprint256
    expect(shown).toEqual([fingerprint, undefined, fingerprint])
  })
})

describe("the broker's own ClientHello", () => {
  it('offers TLS 1.2 and 1.3 and http/1.1 only, with a hybrid key exchange and no broken algorithm', async () => {
    const { promise, resolve } = Promise.withResolvers<Buffer>()
    const server = createPlainServer((socket) => {
      socket.on('error', () => undefined)
      socket.once('data', resolve)
    })
    await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
    closers.push(() => server.close())
    const leaving = new AbortController()
    const socket = await dial((server.address() as AddressInfo).port)
    const handshake = upstream.connectTls(socket, { servername: host, signal: leaving.signal })
    const hello = await promise
    leaving.abort(new TypeError('gone'))
    await expect(handshake).rejects.toThrow('gone')
    expect(createClientHelloReader().push(hello)).toEqual({
      serverName: host,
      alpn: ['http/1.1'],
      ech: false,
      earlyData: false,
      versions: [0x0304, 0x0303],
    })
    const { ciphers, groups, signatures } = readOffers(hello)
    // Ephemeral exchange throughout; 0xc009.. are the CBC suites that browsers still offer, 0x00ff is RFC 5746.
    expect(
      ciphers.filter((suite) => suite !== 0x00ff).every((suite) => [0x13, 0xc0, 0xcc].includes(suite >> 8)),
    ).toBe(true)
    expect(groups[0]).toBe(0x11ec)
    expect(signatures.filter((scheme) => scheme >> 8 === 0x02 || scheme >> 8 === 0x01)).toEqual([])
  })
})

function readOffers(hello: Buffer): { ciphers: number[]; groups: number[]; signatures: number[] } {
  const uint16s = (at: number, bytes: number): number[] =>
    Array.from({ length: bytes / 2 }, (_, index) => hello.readUInt16BE(at + 2 * index))
  let at = 5 + 4 + 2 + 32
  at += 1 + hello.readUInt8(at)
  const ciphers = uint16s(at + 2, hello.readUInt16BE(at))
  at += 2 + hello.readUInt16BE(at)
  at += 1 + hello.readUInt8(at) + 2
  const lists = new Map<number, number[]>()
  while (at < hello.length) {
    const [type, length] = [hello.readUInt16BE(at), hello.readUInt16BE(at + 2)]
    if (type === 10 || type === 13) lists.set(type, uint16s(at + 6, length - 2))
    at += 4 + length
  }
  return { ciphers, groups: lists.get(10) ?? [], signatures: lists.get(13) ?? [] }
}

describe('a renegotiation asked for by the upstream', () => {
  it('is refused', async () => {
    const served = await serveIssued(good, {
      maxVersion: 'TLSv1.2',
      secureOptions: constants.SSL_OP_LEGACY_SERVER_CONNECT,
    })
    const peer = new Promise<TLSSocket>((resolve) => served.server.once('secureConnection', resolve))
    const tls = await connectTo(served)
    tls.on('error', () => undefined).resume()
    const outcome = await new Promise((resolve) => {
      void peer.then((socket) => {
        socket.once('error', resolve)
        socket.once('close', () => resolve('closed'))
        socket.renegotiate({}, resolve)
      })
    })
    expect(outcome).not.toBeNull()
  })
})
