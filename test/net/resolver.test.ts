import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import { OperatorError } from '../../src/core/errors.ts'
import type { Resolver } from '../../src/net/port.ts'
import { createResolver } from '../../src/net/resolver.ts'
import type { Answer, ResolverOptions } from '../../src/net/resolver.ts'
import { createTestDnsServer } from '../helpers/dns-server.ts'
import type { DnsReply, TestDnsServer } from '../helpers/dns-server.ts'
import { manualClock } from '../helpers/manual-clock.ts'

const never = new AbortController().signal

let server: TestDnsServer | undefined
afterEach(async () => {
  await server?.close()
  server = undefined
})

/** A resolver whose only server answers by a function. */
async function resolverFor(
  answer: (name: string, type: string) => DnsReply,
  overrides: Partial<ResolverOptions> = {},
): Promise<{ resolver: Resolver; asked: string[] }> {
  server = await createTestDnsServer(answer)
  const options = { servers: [server.address], hosts: new Map(), clock: systemClock, ...overrides }
  return { resolver: createResolver(options), asked: server.asked }
}

const withAsk = (
  ask: (host: string) => Promise<Answer>,
  overrides: Partial<ResolverOptions> = {},
): Resolver =>
  createResolver({ servers: ['system'], hosts: new Map(), clock: systemClock, ask, ...overrides })

describe('a name', () => {
  it('yields the addresses of both families', async () => {
    const { resolver } = await resolverFor(() => ({ addresses: ['192.0.2.1', '192.0.2.2', '2001:db8::1'] }))
    expect([...(await resolver.resolve('a.test', never))].sort()).toEqual([
      '192.0.2.1',
      '192.0.2.2',
      '2001:db8::1',
    ])
  })

  it('is asked as it is, without a search list, whether it has a dot or not', async () => {
    const { resolver, asked } = await resolverFor(() => ({ rcode: 'NXDOMAIN' }))
    for (const name of ['wpad', 'foo.local', 'kubernetes.default.svc', 'x.internal']) {
      await expect(resolver.resolve(name, never)).rejects.toMatchObject({ reason: 'dns_failed' })
    }
    expect([...new Set(asked.map((question) => question.split(' ')[0]))]).toEqual([
      'wpad',
      'foo.local',
      'kubernetes.default.svc',
      'x.internal',
    ])
  })

  it('is followed through aliases to the last address', async () => {
    const { resolver } = await resolverFor(() => ({
      addresses: ['10.0.0.5'],
      cnames: ['b.test', 'c.test', 'd.test'],
    }))
    expect(await resolver.resolve('a.test', never)).toEqual(['10.0.0.5'])
  })

  it('with addresses of one family is not held up long by a server that is silent on the other', async () => {
    const { resolver } = await resolverFor((_, type) =>
      type === 'A' ? { addresses: ['192.0.2.1'] } : 'silent',
    )
    const start = performance.now()
    expect(await resolver.resolve('a.test', never)).toEqual(['192.0.2.1'])
    expect(performance.now() - start).toBeLessThan(900)
  })

  it.each([
    { name: 'does not exist', reply: { rcode: 'NXDOMAIN' } },
    { name: 'fails at the server', reply: { rcode: 'SERVFAIL' } },
    { name: 'has no address', reply: { addresses: [] } },
  ] as const)('that $name is dns_failed', async ({ reply }) => {
    const { resolver } = await resolverFor(() => reply)
    await expect(resolver.resolve('a.test', never)).rejects.toMatchObject({ reason: 'dns_failed' })
  })

  it('that nobody answers is dns_timeout within the bound, and answers again when the server does', async () => {
    let isSilent = true
    const { resolver } = await resolverFor(() => (isSilent ? 'silent' : { addresses: ['192.0.2.1'] }), {
      timeoutMs: 600,
    })
    const start = performance.now()
    await expect(resolver.resolve('a.test', never)).rejects.toMatchObject({ reason: 'dns_timeout' })
    expect(performance.now() - start).toBeLessThan(1500)
    isSilent = false
    expect(await resolver.resolve('a.test', never)).toEqual(['192.0.2.1'])
  })

  it('reaches those who wait when a silent server comes back', async () => {
    let isSilent = true
    const { resolver } = await resolverFor(() => (isSilent ? 'silent' : { addresses: ['192.0.2.1'] }))
    const waiting = resolver.resolve('a.test', never)
    setTimeout(() => (isSilent = false), 300)
    const start = performance.now()
    expect(await waiting).toEqual(['192.0.2.1'])
    expect(performance.now() - start).toBeLessThan(2300)
  })
})

describe('without asking anyone', () => {
  const resolver = withAsk((host) => Promise.reject(new TypeError(`asked for ${host}`)), {
    hosts: new Map([['internal.test', ['10.20.0.5']]]),
  })

  it.each([
    { host: 'localhost', addresses: ['127.0.0.1', '::1'] },
    { host: 'db.localhost', addresses: ['127.0.0.1', '::1'] },
    { host: '192.0.2.7', addresses: ['192.0.2.7'] },
    { host: '2001:db8::1', addresses: ['2001:db8::1'] },
    { host: 'internal.test', addresses: ['10.20.0.5'] },
  ])('$host has its addresses', async ({ host, addresses }) => {
    expect(await resolver.resolve(host, never)).toEqual(addresses)
  })

  it.each(['metadata', 'metadata.google.internal', 'instance-data.ec2.internal'])(
    '%s is metadata_denied',
    async (host) => {
      await expect(resolver.resolve(host, never)).rejects.toMatchObject({ reason: 'metadata_denied' })
    },
  )

  it('a fixed answer does not open a metadata name', async () => {
    const hosts = new Map([['metadata.google.internal', ['192.0.2.1']]])
    const open = withAsk(() => Promise.reject(new TypeError('asked')), { hosts })
    await expect(open.resolve('metadata.google.internal', never)).rejects.toMatchObject({
      reason: 'metadata_denied',
    })
  })
})

describe('an answer', () => {
  const counting = (ttlMs: number) => {
    let count = 0
    return {
      ask: (): Promise<Answer> => Promise.resolve({ addresses: [`192.0.2.${(count += 1)}`], ttlMs }),
      count: () => count,
    }
  }

  it('is shared by those who ask while it is on its way', async () => {
    const { ask, count } = counting(0)
    const resolver = withAsk(ask)
    const answers = await Promise.all([1, 2, 3].map(() => resolver.resolve('a.test', never)))
    expect(answers).toEqual([['192.0.2.1'], ['192.0.2.1'], ['192.0.2.1']])
    expect(count()).toBe(1)
  })

  it.each([
    { name: 'for its TTL', ttlMs: 4000, options: {}, keptMs: 4000 },
    { name: 'for ten seconds unless told otherwise', ttlMs: 3_600_000, options: {}, keptMs: 10_000 },
    { name: 'for thirty seconds at most', ttlMs: 3_600_000, options: { cacheMs: 90_000 }, keptMs: 30_000 },
  ])('is kept $name', async ({ ttlMs, options, keptMs }) => {
    const clock = manualClock()
    const { ask, count } = counting(ttlMs)
    const resolver = withAsk(ask, { clock, ...options })
    await resolver.resolve('a.test', never)
    clock.advance(keptMs - 1)
    await resolver.resolve('a.test', never)
    expect(count()).toBe(1)
    clock.advance(2)
    await resolver.resolve('a.test', never)
    expect(count()).toBe(2)
  })

  it.each([
    { name: 'with a TTL of 0', ttlMs: 0, options: {} },
    { name: 'when nothing may be kept', ttlMs: 5000, options: { cacheMs: 0 } },
  ])('is not kept $name', async ({ ttlMs, options }) => {
    const { ask, count } = counting(ttlMs)
    const resolver = withAsk(ask, options)
    await resolver.resolve('a.test', never)
    await resolver.resolve('a.test', never)
    expect(count()).toBe(2)
  })

  it('that failed is not kept', async () => {
    let isBroken = true
    const resolver = withAsk(() =>
      isBroken
        ? Promise.reject(new TypeError('broken'))
        : Promise.resolve({ addresses: ['192.0.2.1'], ttlMs: 9 }),
    )
    await expect(resolver.resolve('a.test', never)).rejects.toMatchObject({ reason: 'dns_failed' })
    isBroken = false
    expect(await resolver.resolve('a.test', never)).toEqual(['192.0.2.1'])
  })
})

describe('a caller that gives up', () => {
  it('gets its own reason at once, while others get the answer', async () => {
    const { promise, resolve } = Promise.withResolvers<Answer>()
    const resolver = withAsk(() => promise)
    const leaving = new AbortController()
    const left = resolver.resolve('a.test', leaving.signal)
    const stayed = resolver.resolve('a.test', never)
    leaving.abort(new TypeError('gone'))
    await expect(left).rejects.toThrow('gone')
    await expect(resolver.resolve('a.test', leaving.signal)).rejects.toThrow('gone')
    resolve({ addresses: ['192.0.2.1'], ttlMs: 0 })
    expect(await stayed).toEqual(['192.0.2.1'])
  })
})

describe('the hosts file of the machine', () => {
  it('answers before its servers, in any case, with every address of the name and nothing of comments', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'octroi-hosts-'))
    try {
      const hostsFile = join(folder, 'hosts')
      writeFileSync(
        hostsFile,
        '127.0.0.1 localhost\n10.0.0.9\tdb.test DB-alias.test # old.test\nnonsense db.test\n#10.0.0.8 db.test\nfd00::9 db.test\n',
      )
      const resolver = createResolver({
        servers: ['system'],
        hosts: new Map(),
        clock: systemClock,
        hostsFile,
      })
      expect(await resolver.resolve('db.test', never)).toEqual(['10.0.0.9', 'fd00::9'])
      expect(await resolver.resolve('db-alias.test', never)).toEqual(['10.0.0.9'])
    } finally {
      rmSync(folder, { recursive: true })
    }
  })
})

describe('the list of servers', () => {
  it.each([
    { name: 'is empty', servers: [], says: 'empty' },
    { name: 'mixes system and addresses', servers: ['system', '192.0.2.53'], says: 'stands alone' },
    { name: 'has a name in it', servers: ['dns.test'], says: 'IP:PORT' },
    { name: 'has a port that is none', servers: ['192.0.2.53:dns'], says: 'IP:PORT' },
  ])('is refused when it $name', ({ servers, says }) => {
    const make = (): Resolver => createResolver({ servers, hosts: new Map(), clock: systemClock })
    expect(make).toThrow(OperatorError)
    expect(make).toThrow(says)
  })
})
