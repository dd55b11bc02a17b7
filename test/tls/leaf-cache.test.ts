import { X509Certificate } from 'node:crypto'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { createServer as createPlainServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect, TLSSocket } from 'node:tls'
import type { ConnectionOptions, SecureContext } from 'node:tls'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import type { Clock } from '../../src/core/clock.ts'
import { loadOrCreateAuthority } from '../../src/tls/authority.ts'
import type { Authority } from '../../src/tls/authority.ts'
import { createLeafCache } from '../../src/tls/leaf-cache.ts'
import type { LeafCache } from '../../src/tls/leaf-cache.ts'
import { createMinter } from '../../src/tls/minter.ts'
import type { Leaf, Minter } from '../../src/tls/minter.ts'
import { manualClock } from '../helpers/manual-clock.ts'
import { openssl } from '../helpers/openssl.ts'
import { plainSeal } from '../helpers/plain-seal.ts'

const minute = 60_000
const hour = 60 * minute
const day = 24 * hour

const longHost = `${'a'.repeat(60)}.objects.x.test`
const longestHost = `${`${'b'.repeat(61)}.`.repeat(4)}x.test`.slice(-253)

let root: string
let authority: Authority
let clock: Clock
let minter: Minter
let cleanUp: (() => void)[] = []

beforeAll(async () => {
  root = mkdtempSync(join(tmpdir(), 'octroi-leaf-'))
  clock = manualClock(Date.now())
  authority = await makeAuthority('first')
  minter = createMinter({ clock })
})
afterEach(() => {
  for (const close of cleanUp) close()
  cleanUp = []
})
afterAll(async () => {
  await minter.close()
  rmSync(root, { recursive: true })
})

const makeAuthority = (name: string): Promise<Authority> =>
  loadOrCreateAuthority({ folder: join(root, name), seal: plainSeal(), clock })

/** A real handshake with a context, as the proxy makes it on a tunnel. */
async function shake(
  context: SecureContext,
  options: ConnectionOptions,
): Promise<{ client: TLSSocket; server: TLSSocket; close: () => void }> {
  const { promise, resolve } = Promise.withResolvers<TLSSocket>()
  const listener = createPlainServer((socket) => {
    const server = new TLSSocket(socket, {
      isServer: true,
      secureContext: context,
      ALPNProtocols: ['http/1.1'],
    })
    server.on('error', () => undefined)
    server.once('secure', () => resolve(server))
  })
  await new Promise<void>((listening) => listener.listen(0, '127.0.0.1', listening))
  const { port } = listener.address() as AddressInfo
  const client = connect({ host: '127.0.0.1', port, ca: authority.certificatePem, ...options })
  const close = (): void => {
    client.destroy()
    listener.close()
  }
  cleanUp.push(close)
  await new Promise<void>((done, failed) => client.once('secureConnect', done).on('error', failed))
  return { client, server: await promise, close }
}

/** A minter that counts and can be held up. */
function countingMinter(real: Minter = minter, hold = Promise.resolve()): Minter & { orders: string[] } {
  const orders: string[] = []
  return {
    orders,
    async mint(from, host) {
      orders.push(`${from.fingerprint} ${host}`)
      await hold
      return real.mint(from, host)
    },
    close: () => Promise.resolve(),
  }
}

const cacheWith = (counting: Minter, maxEntries = 2000): LeafCache =>
  createLeafCache({ authority, minter: counting, clock, maxEntries })

describe('a leaf', () => {
  it.each([
    { name: 'a short name', host: 'api.good.test', san: 'DNS:api.good.test', commonName: 'api.good.test' },
    { name: 'a name of 75 characters', host: longHost, san: `DNS:${longHost}`, commonName: undefined },
    { name: 'a name of 253 characters', host: longestHost, san: `DNS:${longestHost}`, commonName: undefined },
    { name: 'an IPv4 address', host: '10.1.2.3', san: 'IP Address:10.1.2.3', commonName: '10.1.2.3' },
    { name: 'an IPv6 address', host: 'fd00::1', san: 'IP Address:FD00:0:0:0:0:0:0:1', commonName: 'fd00::1' },
  ])('names exactly the one host: $name', async ({ host, san, commonName }) => {
    const leaf = await minter.mint(authority, host)
    const x509 = new X509Certificate(leaf.certificatePem)
    expect(x509.subjectAltName).toBe(san)
    expect(x509.subject).toBe(commonName === undefined ? '' : `CN=${commonName}`)
    expect(x509.ca).toBe(false)
    expect(x509.keyUsage).toEqual(['1.3.6.1.5.5.7.3.1'])
  })

  it('lives a week from an hour ago at most, under a random serial number', async () => {
    const leaves = await Promise.all(
      Array.from({ length: 200 }, (_, index) => minter.mint(authority, `h${index}.test`)),
    )
    const parsed = leaves.map((leaf) => new X509Certificate(leaf.certificatePem))
    for (const x509 of parsed) {
      expect(clock.now() - x509.validFromDate.getTime()).toBeLessThanOrEqual(hour)
      expect(x509.validToDate.getTime() - clock.now()).toBeLessThanOrEqual(7 * day)
      expect(x509.serialNumber).toMatch(/^[4-7][0-9A-F]{31}$/)
    }
    expect(new Set(parsed.map((x509) => x509.serialNumber.slice(0, 16))).size).toBe(200)
  })

  it('never outlives its CA', async () => {
    const late = manualClock(authority.notAfter - 90_000)
    const other = createMinter({ clock: late })
    try {
      expect((await other.mint(authority, 'a.test')).notAfter).toBe(authority.notAfter)
    } finally {
      await other.close()
    }
  })

  it('is not made by a CA past its end, and the refusal blames the CA', async () => {
    const late = createMinter({ clock: manualClock(authority.notAfter) })
    try {
      await expect(late.mint(authority, 'a.test')).rejects.toMatchObject({
        reason: 'internal',
        detail: expect.stringContaining('the CA of the broker expired') as string,
      })
    } finally {
      await late.close()
    }
  })

  it.for(['api.good.test', longHost, longestHost, '10.1.2.3'])(
    'passes strict verification: %s',
    async (host, context) => {
      const leaf = await minter.mint(authority, host)
      const [ca, cert] = [join(root, 'ca.pem'), join(root, 'leaf.pem')]
      writeFileSync(ca, authority.certificatePem)
      writeFileSync(cert, leaf.certificatePem)
      const text = openssl(context, ['x509', '-in', cert, '-noout', '-text'])
      expect(
        openssl(context, ['verify', '-x509_strict', '-purpose', 'sslserver', '-CAfile', ca, cert]),
      ).toContain('OK')
      expect(text).toMatch(/Basic Constraints: critical\s+CA:FALSE\n/)
      expect(text).toMatch(/X509v3 Key Usage: critical\s+Digital Signature\n/)
      expect(/Subject Alternative Name: critical/.test(text)).toBe(host.length > 64)
      const issuerKey = /Subject Key Identifier:\s+([0-9A-F:]+)/.exec(
        openssl(context, ['x509', '-in', ca, '-noout', '-text']),
      )?.[1]
      expect(/Authority Key Identifier:\s+(?:keyid:)?([0-9A-F:]+)/.exec(text)?.[1]).toBe(issuerKey)
    },
  )
})

describe('the thread that makes leaves', () => {
  it('fails what is pending when it is closed, and what comes after', async () => {
    const closing = createMinter({ clock })
    const pending = closing.mint(authority, 'a.test').catch((error: unknown) => error)
    await closing.close()
    expect(await pending).toMatchObject({ reason: 'internal' })
    await expect(closing.mint(authority, 'a.test')).rejects.toMatchObject({ reason: 'not_ready' })
  })

  it.each(['ä.test', '*.test', 'a.test\0.b.test', 'A.test', ''])(
    'makes no leaf for %j and goes on',
    async (host) => {
      await expect(minter.mint(authority, host)).rejects.toMatchObject({ reason: 'internal' })
      await expect(minter.mint(authority, 'a.test')).resolves.toMatchObject({
        notAfter: expect.any(Number) as number,
      })
    },
  )
})

describe('a context', () => {
  it.each(['api.good.test', longHost, longestHost])(
    'serves TLS 1.3 that a client verifies: %s',
    async (host) => {
      const cache = cacheWith(minter)
      const { client } = await shake(await cache.contextFor(host), {
        servername: host,
        ALPNProtocols: ['h2', 'http/1.1'],
      })
      expect(client.authorized).toBe(true)
      expect([client.getProtocol(), client.alpnProtocol]).toEqual(['TLSv1.3', 'http/1.1'])
    },
  )

  it('serves an address to a client that sends no server name', async () => {
    const context = await cacheWith(minter).contextFor('127.0.0.1')
    const { client } = await shake(context, {})
    expect(client.authorized).toBe(true)
  })

  it('serves TLS 1.2, and nothing older', async () => {
    const context = await cacheWith(minter).contextFor('a.test')
    const { client } = await shake(context, { servername: 'a.test', maxVersion: 'TLSv1.2' })
    expect(client.getProtocol()).toBe('TLSv1.2')
    const old: ConnectionOptions = {
      servername: 'a.test',
      minVersion: 'TLSv1',
      maxVersion: 'TLSv1.1',
      ciphers: 'ALL:@SECLEVEL=0',
    }
    await expect(shake(context, old)).rejects.toThrow()
  })

  it('refuses renegotiation', async () => {
    const context = await cacheWith(minter).contextFor('a.test')
    const { client } = await shake(context, { servername: 'a.test', maxVersion: 'TLSv1.2' })
    const error = await new Promise((resolve) => {
      client.once('error', resolve)
      client.renegotiate({}, resolve)
    })
    expect(error).toBeInstanceOf(Error)
  })

  it.each(['TLSv1.2', 'TLSv1.3'] as const)(
    'resumes no session, so that none crosses sandboxes: %s',
    async (version) => {
      const context = await cacheWith(minter).contextFor('a.test')
      const options: ConnectionOptions = { servername: 'a.test', minVersion: version, maxVersion: version }
      const first = await shake(context, options)
      const sessions: Buffer[] = []
      first.client.on('session', (session) => sessions.push(session))
      first.server.write('x')
      await new Promise((resolve) => first.client.once('data', resolve))
      const session = sessions[0] ?? first.client.getSession()
      const second = await shake(context, { ...options, ...(session ? { session } : {}) })
      expect(second.client.isSessionReused()).toBe(false)
    },
  )
})

describe('the cache', () => {
  it('makes one leaf for requests that come together, and none for the next', async () => {
    const counting = countingMinter()
    const cache = cacheWith(counting)
    const contexts = await Promise.all([
      cache.contextFor('a.test'),
      cache.contextFor('a.test'),
      cache.contextFor('a.test'),
    ])
    expect(new Set([...contexts, await cache.contextFor('a.test')]).size).toBe(1)
    expect(counting.orders).toHaveLength(1)
  })

  it('stays within its bound, dropping what was not used for longest', async () => {
    const counting = countingMinter()
    const cache = cacheWith(counting, 2)
    for (const host of ['a.test', 'b.test', 'a.test', 'c.test', 'a.test', 'b.test'])
      await cache.contextFor(host)
    expect(cache.size).toBe(2)
    expect(counting.orders.map((order) => order.split(' ')[1])).toEqual([
      'a.test',
      'b.test',
      'c.test',
      'b.test',
    ])
  })

  it('does not keep a failure', async () => {
    let isBroken = true
    const cache = cacheWith({
      mint: (from, host): Promise<Leaf> =>
        isBroken ? Promise.reject(new TypeError('broken')) : minter.mint(from, host),
      close: () => Promise.resolve(),
    })
    await expect(cache.contextFor('a.test')).rejects.toThrow('broken')
    isBroken = false
    await expect(cache.contextFor('a.test')).resolves.toBeDefined()
  })

  it('renews beside the traffic after two thirds of a life, and waits for the new leaf after its end', async () => {
    const time = manualClock(Date.now())
    const dated = createMinter({ clock: time })
    cleanUp.push(() => void dated.close())
    const counting = countingMinter(dated)
    const cache = createLeafCache({ authority, minter: counting, clock: time })
    const first = await cache.contextFor('a.test')
    time.advance(4.6 * day)
    expect(await cache.contextFor('a.test')).toBe(first)
    expect(counting.orders).toHaveLength(1)
    time.advance(0.1 * day)
    expect(await cache.contextFor('a.test')).toBe(first)
    expect(counting.orders).toHaveLength(2)
    await expect.poll(() => cache.contextFor('a.test')).not.toBe(first)
    const second = await cache.contextFor('a.test')
    time.advance(8 * day)
    expect(await cache.contextFor('a.test')).not.toBe(second)
  })

  it('serves leaves of a replacement CA at once, also to who waits for one of the old', async () => {
    const gate = Promise.withResolvers<void>()
    const counting = countingMinter(minter, gate.promise)
    const cache = cacheWith(counting)
    const waiting = cache.contextFor('a.test')
    const next = await makeAuthority('second')
    cache.replaceAuthority(next)
    gate.resolve()
    expect(cache.caFingerprint).toBe(next.fingerprint)
    const { client } = await shake(await waiting, { servername: 'a.test', ca: next.certificatePem })
    expect(client.authorized).toBe(true)
    expect(counting.orders.map((order) => order.split(' ')[0])).toEqual([
      authority.fingerprint,
      next.fingerprint,
    ])
    expect(cache.size).toBe(1)
  })
})
