import { createServer } from 'node:net'
import type { AddressInfo, Server, Socket } from 'node:net'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { Clock } from '../../src/core/clock.ts'
import { systemClock } from '../../src/core/clock.ts'
import { createConnector } from '../../src/net/connector.ts'
import type { Connector, Resolver } from '../../src/net/port.ts'
import { createResolver } from '../../src/net/resolver.ts'
import { createSelfGuard } from '../../src/net/self-guard.ts'
import type { ListenerAddress } from '../../src/net/self-guard.ts'
import { parseCidr } from '../../src/policy/address.ts'
import type { Cidr } from '../../src/policy/address.ts'
import type { Destination } from '../../src/policy/model.ts'
import { manualClock } from '../helpers/manual-clock.ts'

const never = new AbortController().signal

const cidr = (text: string): Cidr => {
  const result = parseCidr(text)
  if (!result.ok) throw new TypeError(result.problem)
  return result.cidr
}
const loopback = [cidr('127.0.0.0/8'), cidr('::1/128')]
const name = (host: string, port = 443): Destination => ({ host, port, ip: 0 })
const literal = (host: string, port = 443): Destination => ({ host, port, ip: host.includes(':') ? 6 : 4 })

/** Answers each question with the next list; the last one stays. */
function scripted(...answers: readonly (readonly string[])[]): Resolver & { asked: string[] } {
  const asked: string[] = []
  return {
    asked,
    resolve(host) {
      asked.push(host)
      return Promise.resolve(answers[Math.min(asked.length, answers.length) - 1] ?? [])
    },
  }
}

interface Setting {
  clock?: Clock
  resolver?: Resolver
  listeners?: readonly ListenerAddress[]
  selfNames?: readonly string[]
}

const connectorWith = ({
  resolver = scripted([]),
  listeners = [],
  selfNames = [],
  clock = systemClock,
}: Setting): Connector =>
  createConnector({
    resolver,
    ownAddresses: createSelfGuard({
      listeners: () => listeners,
      names: () => selfNames,
      localAddresses: () => ['192.0.2.99'],
    }),
    clock,
    connectTimeoutMs: 2000,
  })

let server: Server
let accepted: Socket[]
let port: number
beforeEach(async () => {
  accepted = []
  server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on('error', () => undefined)
    socket.resume()
    accepted.push(socket)
  })
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  port = (server.address() as AddressInfo).port
})
afterEach(async () => {
  for (const socket of accepted) socket.destroy()
  await new Promise((done) => server.close(done))
})

describe('approval', () => {
  it.each([
    { case: 'a private address', addresses: ['10.0.0.5'], reason: 'ip_denied' },
    { case: 'loopback', addresses: ['127.0.0.1'], reason: 'ip_denied' },
    { case: 'a mapped private address', addresses: ['::ffff:10.0.0.5'], reason: 'ip_denied' },
    { case: 'a private address behind NAT64', addresses: ['64:ff9b::a00:5'], reason: 'ip_denied' },
    { case: 'a public and a private address', addresses: ['93.184.216.34', '10.0.0.5'], reason: 'ip_denied' },
    { case: 'a private and a public address', addresses: ['10.0.0.5', '93.184.216.34'], reason: 'ip_denied' },
    {
      case: 'a metadata address among private ones',
      addresses: ['10.0.0.5', '169.254.169.254'],
      reason: 'metadata_denied',
    },
    { case: 'an address with a zone', addresses: ['fe80::1%eth0'], reason: 'self' },
    { case: 'nothing', addresses: [], reason: 'dns_failed' },
  ])('refuses a name that resolves to $case', async ({ addresses, reason }) => {
    const connector = connectorWith({ resolver: scripted(addresses) })
    await expect(connector.approve(name('a.test'), [], never)).rejects.toMatchObject({ reason })
  })

  it.each(['127.0.0.1', '10.1.2.3', '169.254.1.1', '::1', 'fd00::1', '::ffff:127.0.0.1', '0.0.0.0'])(
    'refuses the literal %s without asking',
    async (host) => {
      const resolver = scripted(['93.184.216.34'])
      const connector = connectorWith({ resolver })
      await expect(connector.approve(literal(host), [], never)).rejects.toMatchObject({ reason: 'ip_denied' })
      expect(resolver.asked).toEqual([])
    },
  )

  it('opens exactly the range a rule names, and metadata inside it never', async () => {
    const connector = connectorWith({})
    const opened = [cidr('10.1.2.0/24'), cidr('169.254.0.0/16')]
    expect((await connector.approve(literal('10.1.2.3'), opened, never)).addresses).toEqual(['10.1.2.3'])
    await expect(connector.approve(literal('10.1.3.1'), opened, never)).rejects.toMatchObject({
      reason: 'ip_denied',
    })
    await expect(connector.approve(literal('169.254.169.254'), opened, never)).rejects.toMatchObject({
      reason: 'metadata_denied',
    })
    await expect(connector.approve(literal('10.1.2.3'), [], never)).rejects.toMatchObject({
      reason: 'ip_denied',
    })
  })

  it('refuses metadata names before asking, whoever resolves', async () => {
    const resolver = scripted(['93.184.216.34'])
    const connector = connectorWith({ resolver })
    await expect(connector.approve(name('metadata.google.internal'), [], never)).rejects.toMatchObject({
      reason: 'metadata_denied',
    })
    expect(resolver.asked).toEqual([])
  })

  it('asks once, and keeps the order of the answer', async () => {
    const resolver = scripted(['93.184.216.34', '2606:2800:220:1::1'])
    const approved = await connectorWith({ resolver }).approve(name('a.test'), [], never)
    expect(approved.addresses).toEqual(['93.184.216.34', '2606:2800:220:1::1'])
    expect(resolver.asked).toEqual(['a.test'])
  })

  it('passes on what the resolver refuses, and an abort', async () => {
    const resolver = createResolver({ servers: ['system'], hosts: new Map(), clock: systemClock })
    const gone = AbortSignal.abort(new TypeError('gone'))
    await expect(connectorWith({ resolver }).approve(name('a.test'), [], gone)).rejects.toThrow('gone')
  })
})

describe('the broker itself', () => {
  const listeners = [{ address: '0.0.0.0', port: 18081 }]

  it.each([
    '127.0.0.1',
    '127.9.9.9',
    '::1',
    '0.0.0.0',
    '::',
    '::ffff:127.0.0.1',
    '192.0.2.99',
    '::ffff:192.0.2.99',
  ])('is not reached by its port on %s, whatever is opened', async (host) => {
    const opened = [...loopback, cidr('0.0.0.0/8'), cidr('192.0.2.0/24'), cidr('::/127')]
    const connector = connectorWith({ listeners })
    await expect(connector.approve(literal(host, 18081), opened, never)).rejects.toMatchObject({
      reason: 'self',
    })
    expect((await connector.approve(literal(host, 18082), opened, never)).addresses).toEqual([host])
  })

  it('is not reached by a name that resolves to it, or by a name of its own', async () => {
    const connector = connectorWith({
      listeners,
      resolver: scripted(['192.0.2.99']),
      selfNames: ['octroi.test'],
    })
    await expect(connector.approve(name('a.test', 18081), [], never)).rejects.toMatchObject({
      reason: 'self',
    })
    await expect(connector.approve(name('octroi.test'), [], never)).rejects.toMatchObject({ reason: 'self' })
  })
})

describe('a dial', () => {
  it('goes to the address that was judged, though the name has moved to loopback since', async () => {
    const resolver = scripted(['127.0.0.1'], ['127.0.0.2'])
    const connector = connectorWith({ resolver })
    const approved = await connector.approve(name('rebind.test', port), loopback, never)
    const { socket, address } = await connector.dial(approved, never)
    expect(address).toBe('127.0.0.1')
    expect(socket.remoteAddress).toBe('127.0.0.1')
    expect(resolver.asked).toEqual(['rebind.test'])
    socket.destroy()
  })

  it('takes nothing but an approval of the same connector', async () => {
    const connector = connectorWith({})
    const forged = { destination: name('a.test', port), addresses: ['127.0.0.1'] }
    await expect(connector.dial(forged, never)).rejects.toThrow(TypeError)
    const other = await connectorWith({}).approve(literal('127.0.0.1', port), loopback, never)
    await expect(connector.dial(other, never)).rejects.toThrow(TypeError)
    const approved = await connector.approve(literal('127.0.0.1', port), loopback, never)
    await expect(connector.dial({ ...approved }, never)).rejects.toThrow(TypeError)
    expect(accepted).toEqual([])
  })

  it('goes on to the next address when one refuses', async () => {
    const connector = connectorWith({ resolver: scripted(['127.0.0.2', '::1', '127.0.0.1']) })
    const approved = await connector.approve(name('a.test', port), loopback, never)
    const { socket, address } = await connector.dial(approved, never)
    expect(address).toBe('127.0.0.1')
    socket.destroy()
  })

  it('names every failure when all addresses refuse', async () => {
    const connector = connectorWith({ resolver: scripted(['127.0.0.2', '127.0.0.3']) })
    const approved = await connector.approve(name('a.test', port), loopback, never)
    await expect(connector.dial(approved, never)).rejects.toMatchObject({
      reason: 'upstream_unreachable',
      detail: `a.test:${port}: 127.0.0.2 ECONNREFUSED, 127.0.0.3 ECONNREFUSED`,
    })
  })

  it('lets one direction end while the other still flows', async () => {
    const connector = connectorWith({})
    const { socket } = await connector.dial(
      await connector.approve(literal('127.0.0.1', port), loopback, never),
      never,
    )
    await expect.poll(() => accepted.length).toBe(1)
    accepted[0]?.end('bye')
    const text = await new Promise((resolve) => socket.once('data', (chunk) => resolve(chunk.toString())))
    expect(text).toBe('bye')
    const received = new Promise((resolve) => accepted[0]?.once('data', (chunk) => resolve(chunk.toString())))
    await new Promise((resolve) => socket.once('end', resolve))
    socket.end('late')
    expect(await received).toBe('late')
  })

  it('ends with the reason of an abort', async () => {
    const connector = connectorWith({})
    const approved = await connector.approve(literal('127.0.0.1', port), loopback, never)
    await expect(connector.dial(approved, AbortSignal.abort(new TypeError('gone')))).rejects.toThrow('gone')
    const leaving = new AbortController()
    const dialling = connector.dial(approved, leaving.signal)
    leaving.abort(new TypeError('gone'))
    await expect(dialling).rejects.toThrow('gone')
  })
})

describe('an address that does not answer', () => {
  it('is upstream_timeout at the bound', async () => {
    const clock = manualClock()
    const connector = connectorWith({ clock })
    const approved = await connector.approve(literal('127.0.0.1', port), loopback, never)
    const dialling = connector.dial(approved, never)
    clock.advance(2000)
    await expect(dialling).rejects.toMatchObject({ reason: 'upstream_timeout' })
    expect(clock.pending).toBe(0)
  })

  it('is overtaken by the next one after a quarter of a second, and the slower is given up', async () => {
    const clock = manualClock()
    const second = createServer((socket) => {
      socket.on('error', () => undefined)
      socket.resume()
      accepted.push(socket)
    })
    await new Promise<void>((done) => second.listen(port, '127.0.0.2', done))
    try {
      const connector = connectorWith({ clock, resolver: scripted(['127.0.0.1', '127.0.0.2']) })
      const approved = await connector.approve(name('a.test', port), loopback, never)
      const dialling = connector.dial(approved, never)
      clock.advance(249)
      expect(clock.pending).toBe(2)
      clock.advance(1)
      const { socket } = await dialling
      expect(clock.pending).toBe(0)
      socket.write('x')
      await expect.poll(() => accepted.filter((peer) => peer.bytesRead === 1).length).toBe(1)
      await expect.poll(() => accepted.filter((peer) => !peer.readableEnded).length).toBe(1)
      socket.destroy()
    } finally {
      second.close()
    }
  })
})
