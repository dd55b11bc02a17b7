import { createHash, X509Certificate } from 'node:crypto'
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { createServer, type AddressInfo, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  connect as connectTls,
  createSecureContext,
  createServer as createTlsServer,
  type SecureContext,
  type TLSSocket,
  type TlsOptions,
} from 'node:tls'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { attackBench, type AttackBench } from '../helpers/attack-bench.ts'
import { startTestBroker } from '../helpers/broker.ts'
import { openssl } from '../helpers/openssl.ts'
import { ok } from '../helpers/origin.ts'
import { proofCount, runSeed } from '../helpers/proof-count.ts'
import { rawClient } from '../helpers/raw-client.ts'
import { seeded } from '../helpers/seeded.ts'
import { createTestCa, type Issued, type TestCa } from '../helpers/test-ca.ts'

const seed = runSeed()
const day = 86_400_000
const long75 = `${'a'.repeat(20)}.${'b'.repeat(20)}.${'c'.repeat(23)}.wild.test`
const long253 = `${'a'.repeat(60)}.${'b'.repeat(60)}.${'c'.repeat(60)}.${'d'.repeat(60)}.wild.test`

/** A TLS server that shows a certificate by server name and keeps what it was sent in clear. */
async function namedServer(contexts: ReadonlyMap<string, SecureContext>, options: TlsOptions = {}) {
  const received = { text: '', clientCertificates: 0 }
  const sockets = new Set<Socket>()
  const server = createTlsServer({
    SNICallback: (name, done) => done(null, contexts.get(name)),
    requestCert: true,
    rejectUnauthorized: false,
    ...options,
  })
  server.on('tlsClientError', () => undefined)
  server.on('connection', (socket) => {
    sockets.add(socket)
    socket.on('error', () => undefined)
  })
  server.on('secureConnection', (socket) => {
    if (socket.getPeerX509Certificate() !== undefined) received.clientCertificates++
    socket.on('error', () => undefined)
    socket.on('data', (chunk) => {
      received.text += chunk.toString('latin1')
      socket.write(ok('reached'))
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const stop = (): Promise<void> =>
    new Promise((resolve) => {
      server.close(() => resolve())
      for (const socket of sockets) socket.destroy()
    })
  return { port: (server.address() as AddressInfo).port, received, stop }
}

type Bad = (root: TestCa, host: string) => Promise<Issued | { cert: string; key: string; chain: string }>

const badCertificates: Readonly<Record<string, Bad>> = {
  expired: (root, host) =>
    root.issue({ names: [host], notBefore: Date.now() - 9 * day, notAfter: Date.now() - day }),
  'not-yet': (root, host) => root.issue({ names: [host], notBefore: Date.now() + day }),
  'wrong-host': (root) => root.issue({ names: ['other.bad.test'] }),
  'self-signed': async (_root, host) => {
    const own = await createTestCa({ name: host, isCa: false })
    return { cert: own.cert, key: own.key, chain: own.cert }
  },
  'unknown-root': async (_root, host) => (await createTestCa()).issue({ names: [host] }),
  'no-intermediate': async (root, host) => {
    const issued = await (await root.intermediate()).issue({ names: [host] })
    return { ...issued, chain: issued.cert }
  },
  sha1: (root, host) => root.issue({ names: [host], hash: 'SHA-1' }),
  'cn-only': (root, host) => root.issue({ names: [], commonName: host }),
  nul: (root, host) => root.issue({ names: [`${host}\0.evil.test`] }),
  constraint: async (root, host) =>
    (await root.intermediate({ permittedDns: 'other.test' })).issue({ names: [host] }),
  'no-ca': async (root, host) => (await root.intermediate({ isCa: false })).issue({ names: [host] }),
  'client-only': (root, host) => root.issue({ names: [host], usages: ['1.3.6.1.5.5.7.3.2'] }),
  depth: async (root, host) =>
    (await (await root.intermediate({ pathLength: 0 })).intermediate()).issue({ names: [host] }),
}

describe('TLS to the upstream', () => {
  let bench: AttackBench
  let server: Awaited<ReturnType<typeof namedServer>>
  let legacy: typeof server
  let weak: typeof server

  beforeAll(async () => {
    const root = await createTestCa()
    const contexts = new Map<string, SecureContext>()
    for (const [name, make] of Object.entries(badCertificates)) {
      const { chain, key } = await make(root, `${name}.bad.test`)
      contexts.set(
        `${name}.bad.test`,
        createSecureContext({ cert: chain, key, ciphers: 'DEFAULT@SECLEVEL=0' }),
      )
    }
    const good = await root.issue({ names: ['good.bad.test', '*.bad.test'] })
    contexts.set('good.bad.test', createSecureContext({ cert: good.chain, key: good.key }))
    contexts.set('a.b.bad.test', createSecureContext({ cert: good.chain, key: good.key }))
    server = await namedServer(contexts)
    const { chain, key } = await root.issue({ names: ['good.bad.test'], keyKind: 'rsa2048' })
    legacy = await namedServer(new Map(), {
      cert: chain,
      key,
      minVersion: 'TLSv1',
      maxVersion: 'TLSv1.1',
      ciphers: 'DEFAULT@SECLEVEL=0',
    })
    weak = await namedServer(new Map(), {
      cert: chain,
      key,
      maxVersion: 'TLSv1.2',
      ciphers: 'AES128-SHA:NULL-SHA256:ADH-AES128-SHA256@SECLEVEL=0',
    })
    bench = await attackBench({
      allow: [server, legacy, weak].map(
        ({ port }) => `{ host: "*.bad.test", ports: [${port}], addresses: [127.0.0.0/8] }`,
      ),
      files: { 'bad-root.pem': root.cert },
    })
    for (const { port } of [server, legacy, weak]) bench.mayDial.add(`127.0.0.1:${port}`)
    await bench.broker.reconfigure(
      (await bench.config()).replace('ca: [root.pem]', 'ca: [root.pem, bad-root.pem]'),
    )
  })
  afterEach(() => bench.standing())
  afterAll(async () => {
    await bench.stop()
    await Promise.all([server, legacy, weak].map((one) => one.stop()))
  })

  const ask = async (host: string, { port, received } = server) => {
    const authority = `${host}:${port}`
    const client = await bench.tunnel('s1', authority)
    const before = received.text.length
    const mark = bench.mark()
    client.write(`GET /secret-path HTTP/1.1\r\nHost: ${authority}\r\nAuthorization: Bearer own\r\n\r\n`)
    const response = await client.response()
    const [event] = await mark.decisions(1)
    client.destroy()
    return { response, event, received: received.text.slice(before) }
  }

  it('B021: a good certificate is accepted', async () => {
    const { response, received } = await ask('good.bad.test')
    expect(response).toMatchObject({ status: 200, body: 'reached' })
    expect(received).toContain('GET /secret-path ')
  })

  for (const name of [...Object.keys(badCertificates), 'a.b']) {
    it(`A123, A128, B021: the upstream ${name}.bad.test is 502 and receives no byte of the request`, async () => {
      const { response, event, received } = await ask(`${name}.bad.test`)
      expect(response.statusLine).toMatch(/^HTTP\/1\.1 502 octroi upstream_tls /)
      expect(JSON.parse(response.body)).toMatchObject({ retry: 'never', reason: 'upstream_tls' })
      expect(received).toBe('')
      expect(event).toMatchObject({
        agent: 'a1',
        reason: 'upstream_tls',
        status: 502,
        host: `${name}.bad.test`,
      })
    })
  }

  it('A125: an upstream that speaks broken versions or ciphers only is 502', async () => {
    for (const one of [legacy, weak]) {
      const { response, event, received } = await ask('good.bad.test', one)
      expect(response.statusLine).toMatch(/^HTTP\/1\.1 502 octroi upstream_tls /)
      expect(event).toMatchObject({ agent: 'a1', reason: 'upstream_tls' })
      expect(received).toBe('')
    }
  })

  it('A140: an upstream that asks for a client certificate is shown none', () => {
    expect(server.received.clientCertificates).toBe(0)
  })

  it('A142: the broker’s own ClientHello offers TLS 1.2 and 1.3 with forward secrecy and nothing broken', async () => {
    const hello = Promise.withResolvers<Buffer>()
    const tap = createServer((socket) => {
      socket.on('error', () => undefined)
      socket.once('data', (chunk: Buffer) => {
        hello.resolve(chunk)
        socket.destroy()
      })
    })
    await new Promise<void>((resolve) => tap.listen(0, '127.0.0.1', resolve))
    const { port } = tap.address() as AddressInfo
    const before = await bench.config()
    await bench.broker.reconfigure(
      before.replace(
        'allow:\n      - {',
        `allow:\n      - { host: tap.good.test, ports: [${port}], addresses: [127.0.0.0/8] }\n      - {`,
      ),
    )
    bench.mayDial.add(`127.0.0.1:${port}`)
    const client = await bench.tunnel('s1', `tap.good.test:${port}`)
    client.write(`GET / HTTP/1.1\r\nHost: tap.good.test:${port}\r\n\r\n`)
    const { suites, versions, serverName } = readHello(await hello.promise)
    expect((await client.response()).status).toBe(502)
    expect(serverName).toBe(true)
    expect(versions.every((version) => version === 0x0304 || version === 0x0303)).toBe(true)
    expect(versions).toContain(0x0304)
    // NULL, export, RC4, DES and 3DES, anonymous, MD5: RFC 9325 section 4.1.
    const broken = new Set([
      0x0000, 0x0001, 0x0002, 0x0003, 0x0004, 0x0005, 0x0006, 0x0008, 0x0009, 0x000a, 0x0011, 0x0013, 0x0016,
      0x0018, 0x001b, 0x0034, 0xc007, 0xc008, 0xc011, 0xc012, 0xc018,
    ])
    expect(suites.filter((suite) => broken.has(suite))).toEqual([])
    await bench.broker.reconfigure(before)
    await new Promise((resolve) => tap.close(resolve))
  })
})

function readHello(record: Buffer): { suites: number[]; versions: number[]; serverName: boolean } {
  let at = 5 + 4 + 2 + 32
  at += 1 + record.readUInt8(at)
  const suiteBytes = record.readUInt16BE(at)
  const suites = Array.from({ length: suiteBytes / 2 }, (_, i) => record.readUInt16BE(at + 2 + 2 * i))
  at += 2 + suiteBytes
  at += 1 + record.readUInt8(at)
  const end = at + 2 + record.readUInt16BE(at)
  let versions: number[] = []
  let serverName = false
  for (at += 2; at < end; at += 4 + record.readUInt16BE(at + 2)) {
    const type = record.readUInt16BE(at)
    if (type === 0) serverName = true
    if (type === 43)
      versions = Array.from({ length: record.readUInt8(at + 4) / 2 }, (_, i) =>
        record.readUInt16BE(at + 5 + 2 * i),
      )
  }
  return { suites, versions, serverName }
}

describe('TLS to the client', () => {
  let bench: AttackBench
  const authority = (host: string): string => bench.at(host)

  beforeAll(async () => {
    bench = await attackBench({ certNames: [long75, long253], limits: { handshakeMs: 500 } })
  })
  afterEach(() => bench.standing())
  afterAll(() => bench.stop())

  const leafOf = (socket: Socket): X509Certificate => {
    const leaf = (socket as TLSSocket).getPeerX509Certificate()
    if (leaf === undefined) throw new TypeError('no certificate')
    return leaf
  }

  const opened = async (host: string) => {
    const { client, response } = await bench.connect('s1', authority(host))
    expect(response.status).toBe(200)
    return client
  }

  it('A130: each leaf is for its one host, short-lived and no CA, with a serial of its own', async () => {
    const serials = new Set<string>()
    const count = proofCount(20, 1_000)
    for (let i = 0; i < count; i++) {
      const mark = bench.mark()
      const client = await bench.tunnel('s1', `n${i}.wild.test`)
      const leaf = leafOf(client.socket)
      client.destroy()
      await mark.decisions(1)
      serials.add(leaf.serialNumber)
      expect(leaf.subjectAltName).toBe(`DNS:n${i}.wild.test`)
      expect(leaf.ca).toBe(false)
      expect(leaf.keyUsage).toEqual(['1.3.6.1.5.5.7.3.1'])
      expect(BigInt(`0x${leaf.serialNumber}`) >= 1n << 56n).toBe(true)
      const now = Date.now()
      expect(leaf.validFromDate.getTime()).toBeGreaterThanOrEqual(now - 3_600_000 - 2_000)
      expect(leaf.validFromDate.getTime()).toBeLessThanOrEqual(now)
      expect(leaf.validToDate.getTime()).toBeLessThanOrEqual(now + 7 * day)
    }
    expect(serials.size).toBe(count)
  })

  it('A130: no leaf is made for a denied host', async () => {
    const mark = bench.mark()
    const { client, response } = await bench.connect('s1', 'evil.test:443')
    expect(response.status).toBe(403)
    client.write(await bench.hello('evil.test'))
    await client.closed()
    client.destroy()
    const events = await mark.decisions(2)
    expect(events.map(({ verdict, reason }) => `${verdict} ${reason}`)).toEqual([
      'deny host_denied',
      'deny malformed',
    ])
    mark.nothingLeft()
  })

  it('B015: CA and leaf pass the strict checks of OpenSSL', async (context) => {
    const client = await bench.tunnel('s1', 'strict.wild.test')
    const folder = mkdtempSync(join(tmpdir(), 'octroi-x509-'))
    writeFileSync(join(folder, 'ca.pem'), bench.broker.ca)
    writeFileSync(join(folder, 'leaf.pem'), leafOf(client.socket).toString())
    client.destroy()
    const verify = (file: string, ...more: string[]): string =>
      openssl(context, [
        'verify',
        '-x509_strict',
        ...more,
        '-CAfile',
        join(folder, 'ca.pem'),
        join(folder, file),
      ])
    expect(verify('ca.pem')).toMatch(/: OK$/m)
    expect(verify('leaf.pem', '-purpose', 'sslserver', '-verify_hostname', 'strict.wild.test')).toMatch(
      /: OK$/m,
    )
    rmSync(folder, { recursive: true })
  })

  it('B017: a host longer than a common name may be gets its leaf and its answer', async () => {
    for (const host of [long75, long253]) {
      const client = await bench.tunnel('s1', host)
      expect(leafOf(client.socket).subjectAltName).toBe(`DNS:${host}`)
      const mark = bench.mark()
      client.write(`GET /long HTTP/1.1\r\nHost: ${authority(host)}\r\n\r\n`)
      expect((await client.response()).status).toBe(200)
      expect((await mark.decisions(1))[0]).toMatchObject({ agent: 'a1', verdict: 'allow', host })
      client.destroy()
    }
  })

  it('A132: the key of the CA is sealed, owner-only and in no file or answer a sandbox can reach', async () => {
    const { stateFolder, folder, adminPort } = bench.broker
    for (const name of readdirSync(stateFolder, { recursive: true, encoding: 'utf8' })) {
      const found = statSync(join(stateFolder, name))
      if (name.endsWith('.pem')) continue
      expect([name, (found.mode & 0o077).toString(8)]).toEqual([name, '0'])
    }
    for (const name of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
      const path = join(folder, name)
      if (statSync(path).isFile())
        expect([name, /PRIVATE KEY/.test(readFileSync(path, 'latin1'))]).toEqual([name, false])
    }
    for (const path of ['/ca', '/ca.key', '/debug', '/metrics', '/../ca.key', '/v1/ca', '/proxy.pac']) {
      for (const port of [adminPort, bench.broker.port]) {
        const client = await bench.own(() => rawClient(port))
        client.write(`GET ${path} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\n\r\n`)
        expect((await client.response()).body).not.toContain('KEY')
        client.destroy()
      }
    }
  })

  it('A134: two installations have different keys', async () => {
    const other = await startTestBroker({ yaml: 'sandboxes: {}\n' })
    const keyOf = (pem: string): string =>
      createHash('sha256')
        .update(new X509Certificate(pem).publicKey.export({ type: 'spki', format: 'der' }))
        .digest('hex')
    expect(keyOf(other.ca)).not.toBe(keyOf(bench.broker.ca))
    await other.stop()
  })

  it('A137, B007: a client that speaks HTTP/2 only is told so in the handshake', async () => {
    const mark = bench.mark()
    const client = await opened('free.good.test')
    await expect(
      client.startTls({ servername: 'free.good.test', ca: bench.broker.ca, ALPNProtocols: ['h2'] }),
    ).rejects.toThrow(/no application protocol|alert number 120/i)
    const [event] = await mark.decisions(1)
    expect(event).toMatchObject({ agent: 'a1', verdict: 'deny', reason: 'non_tls' })
    expect(mark.upstream()).toBe('')
  })

  it('A137: an HTTP/2 preface without ALPN is 505, and many names are chosen from in peace', async () => {
    const plain = await opened('free.good.test')
    const noAlpn = await plain.startTls({
      servername: 'free.good.test',
      ca: bench.broker.ca,
      ALPNProtocols: undefined,
    } as never)
    const mark = bench.mark()
    noAlpn.write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')
    expect((await noAlpn.response()).status).toBe(505)
    await noAlpn.closed()
    await mark.decisions(1)
    const many = await opened('free.good.test')
    const names = [...Array.from({ length: 100 }, (_, i) => `x-${i}`), 'http/1.1']
    const tls = await many.startTls({
      servername: 'free.good.test',
      ca: bench.broker.ca,
      ALPNProtocols: names,
    })
    expect((tls.socket as TLSSocket).alpnProtocol).toBe('http/1.1')
    tls.destroy()
  })

  it('A138: renegotiation of TLS 1.2 ends at the client and brings nothing upstream', async () => {
    const raw = await opened('free.good.test')
    const tls = await raw.startTls({
      servername: 'free.good.test',
      ca: bench.broker.ca,
      maxVersion: 'TLSv1.2',
    })
    const mark = bench.mark()
    const renegotiated = await new Promise<boolean>((resolve) => {
      const isTried = (tls.socket as TLSSocket).renegotiate({}, (error) => resolve(error === null))
      if (isTried === false) resolve(false)
      tls.socket.once('close', () => resolve(false))
      setTimeout(() => resolve(false), 1_000)
    })
    expect(renegotiated).toBe(false)
    expect(mark.upstream()).toBe('')
    tls.destroy()
  })

  it('A143: a session of one sandbox offered by another brings no identity with it', async () => {
    const first = await opened('api.good.test')
    const session = Promise.withResolvers<Buffer>()
    const options = { servername: 'api.good.test', ca: bench.broker.ca, ALPNProtocols: ['http/1.1'] }
    const tls = connectTls({ socket: first.socket, ...options })
    tls.on('error', () => undefined)
    tls.once('session', (bytes) => session.resolve(bytes))
    setTimeout(() => session.resolve(Buffer.alloc(0)), 500)
    tls.on('data', () => undefined)
    tls.write(`GET /v1/x HTTP/1.1\r\nHost: ${authority('api.good.test')}\r\n\r\n`)
    const bytes = await session.promise
    const before = bench.mark()
    tls.destroy()
    await before.decisions(1)
    const { client } = await bench.connect('s2', authority('api.good.test'))
    const again = await client.startTls({ ...options, ...(bytes.length > 0 ? { session: bytes } : {}) })
    const mark = bench.mark()
    again.write(
      `GET /v1/y HTTP/1.1\r\nHost: ${authority('api.good.test')}\r\nAuthorization: Bearer ${bench.placeholder('api')}\r\n\r\n`,
    )
    expect((await again.response()).statusLine).toContain('handle_unknown')
    const events = await mark.decisions(1)
    expect(events[0]).toMatchObject({ agent: 'a2', verdict: 'deny' })
    again.destroy()
  })

  it(`A136: damaged ClientHellos end their own tunnel and nothing else (OCTROI_SEED=${seed})`, async () => {
    const random = seeded(seed)
    const good = await bench.hello('free.good.test')
    const mark = bench.mark()
    const count = proofCount(200, 100_000)
    for (let i = 0; i < count; i += 10) {
      await Promise.all(
        Array.from({ length: 10 }, async () => {
          const client = await opened('free.good.test')
          const bytes = Buffer.from(good)
          for (let n = 1 + random.below(4); n > 0; n--) bytes[random.below(bytes.length)] = random.below(256)
          const cut = random.below(4) === 0 ? bytes.subarray(0, random.below(bytes.length)) : bytes
          for (let at = 0; at < cut.length;) {
            const size = random.below(3) === 0 ? 1 + random.below(40) : cut.length
            client.write(cut.subarray(at, at + size))
            at += size
          }
          client.end()
          await client.closed(5_000)
          client.destroy()
        }),
      )
    }
    mark.tally(Math.ceil(count / 10) * 10)
    expect(mark.upstream()).toBe('')
    expect(mark.dials()).toEqual([])
  })
})

describe('an environment that weakens TLS', () => {
  it('A127: the broker does not start with certificate checks off or keys written to a file', async () => {
    for (const env of [
      { NODE_TLS_REJECT_UNAUTHORIZED: '0' },
      { SSLKEYLOGFILE: '/tmp/keys' },
      { NODE_OPTIONS: '--tls-keylog=/tmp/keys' },
    ]) {
      const name = Object.keys(env)[0] ?? ''
      await expect(startTestBroker({ yaml: 'sandboxes: {}\n', env })).rejects.toThrow(name)
    }
  })
})
