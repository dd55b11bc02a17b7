import { networkInterfaces } from 'node:os'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { attackBench, type AttackBench } from '../helpers/attack-bench.ts'
import { expectAllowed, expectConnectRefused, expectRefused } from '../helpers/attack-cases.ts'
import { createTestDnsServer, type DnsReply, type TestDnsServer } from '../helpers/dns-server.ts'

const everyRange =
  '[10.0.0.0/8, 127.0.0.0/8, 169.254.0.0/16, 100.64.0.0/10, 192.0.0.0/24, 192.168.0.0/16, 168.63.0.0/16, "fd00::/8", "fe80::/10"]'

describe('the address guard', () => {
  let bench: AttackBench

  beforeAll(async () => {
    bench = await attackBench({
      sandboxes: `
  open:
    agent: open
    allow:
      - { host: any }
      - { host: any, scheme: http }
      - { address: 2001:db8::/32 }
  private:
    agent: private
    allow:
      - { host: any, ports: [443, 18081], addresses: ${everyRange} }
      - { host: any, scheme: http, addresses: ${everyRange} }
      - { address: 169.254.0.0/16 }
      - { address: "fd00::/8" }
  ten:
    agent: ten
    allow: [{ host: "*.wild.test", addresses: [10.1.2.0/24] }]
`,
    })
  })
  afterEach(() => bench.standing())
  afterAll(() => bench.stop())

  const connectDenied = async (agent: string, authority: string, reasons: string): Promise<void> => {
    const mark = bench.mark()
    const { client, response } = await bench.connect(agent === 'a1' ? 's1' : agent, authority)
    client.destroy()
    expect([authority, response.statusLine]).toEqual([
      authority,
      expect.stringMatching(`^HTTP/1\\.1 (403|400) octroi (${reasons})( |$)`),
    ])
    expect((await mark.decisions(1))[0]).toMatchObject({ agent, verdict: 'deny' })
    expect([authority, mark.dials()]).toEqual([authority, []])
    expect(response.body).not.toMatch(/10\.0\.0\.5|127\.0\.0\.1 /)
  }

  /** The status line of a CONNECT without what differs between two of them; nothing is dialled. */
  const judged = async (sandbox: string, authority: string): Promise<string> => {
    const mark = bench.mark()
    const { client, response } = await bench.connect(sandbox, authority)
    client.destroy()
    await mark.decisions(1)
    expect(mark.dials()).toEqual([])
    return response.statusLine.replace(/ \S+ id=.*/, '')
  }

  const loopbacks = [
    '127.0.0.1',
    '127.1',
    '2130706433',
    '0x7f000001',
    '0177.0.0.1',
    '0x7f.1',
    '127.0.0.1.',
    '0',
    '0.0.0.0',
    '127.127.127.127',
    '[::1]',
    '[::]',
    '[::ffff:7f00:1]',
    'localhost.',
    'localhost',
  ]

  it('A061: every spelling of loopback is refused without a dial, in CONNECT and in a URL', async () => {
    for (const host of loopbacks) {
      await connectDenied('open', `${host}:443`, 'ip_denied|host_denied|self|malformed')
      await expectUrlDenied('open', host)
    }
  })

  const expectUrlDenied = async (sandbox: string, host: string): Promise<void> => {
    const mark = bench.mark()
    const { client, response } = await bench.ask(
      sandbox,
      `GET http://${host}/ HTTP/1.1\r\nHost: ${host}\r\n\r\n`,
    )
    client.destroy()
    expect([host, response.status]).toEqual([
      host,
      expect.toSatisfy((status) => status === 403 || status === 400),
    ])
    expect((await mark.decisions(1))[0]).toMatchObject({ agent: sandbox, verdict: 'deny' })
    expect([host, mark.dials()]).toEqual([host, []])
  }

  const metadata = [
    '169.254.169.254',
    '2852039166',
    '0xa9fea9fe',
    '0251.0376.0251.0376',
    '169.254.43518',
    '[::ffff:a9fe:a9fe]',
    '[::ffff:169.254.169.254]',
    '[64:ff9b::a9fe:a9fe]',
    '[2002:a9fe:a9fe::]',
    '169.254.170.2',
    '169.254.170.23',
    '100.100.100.200',
    '168.63.129.16',
    '192.0.0.192',
    '[fd00:ec2::254]',
    '[fd00:ec2::23]',
    '[fd20:ce::254]',
    'metadata.google.internal.',
    'metadata.google.internal',
    'METADATA.google.INTERNAL',
  ]

  it('A062: no setting opens a metadata service, in any spelling, by literal or by name', async () => {
    for (const host of metadata) {
      await connectDenied('private', `${host}:443`, 'metadata_denied')
      await expectUrlDenied('private', host)
    }
    for (const address of [
      '169.254.169.254',
      '::ffff:169.254.169.254',
      'fd00:ec2::254',
      '100.100.100.200',
      '168.63.129.16',
    ]) {
      bench.names.set('meta.wild.test', () => [address])
      await connectDenied('private', 'meta.wild.test:443', 'metadata_denied')
    }
  })

  // Written from the IANA special-purpose registries, independently of the table in the product.
  const special: readonly (readonly [first: string, last: string])[] = [
    ['0.0.0.0', '0.255.255.255'],
    ['10.0.0.0', '10.255.255.255'],
    ['100.64.0.0', '100.127.255.255'],
    ['127.0.0.0', '127.255.255.255'],
    ['169.254.0.0', '169.254.255.255'],
    ['172.16.0.0', '172.31.255.255'],
    ['192.0.2.0', '192.0.2.255'],
    ['192.168.0.0', '192.168.255.255'],
    ['198.18.0.0', '198.19.255.255'],
    ['198.51.100.0', '198.51.100.255'],
    ['203.0.113.0', '203.0.113.255'],
    ['224.0.0.0', '239.255.255.255'],
    ['240.0.0.0', '255.255.255.255'],
    ['64:ff9b:1::', '64:ff9b:1:ffff:ffff:ffff:ffff:ffff'],
    ['100::', '100::ffff:ffff:ffff:ffff'],
    ['2001:2::', '2001:2:0:ffff:ffff:ffff:ffff:ffff'],
    ['2001:db8::', '2001:db8:ffff:ffff:ffff:ffff:ffff:ffff'],
    ['2002::', '2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff'],
    ['3fff::', '3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff'],
    ['5f00::', '5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff'],
    ['fc00::', 'fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'],
    ['fe80::', 'febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff'],
    ['ff00::', 'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'],
  ]

  it('A064: a name at the first or last address of any special block is refused', async () => {
    for (const address of special.flat()) {
      bench.names.set('edge.wild.test', () => [address])
      const mark = bench.mark()
      const { client, response } = await bench.connect('open', 'edge.wild.test:443')
      client.destroy()
      expect([address, response.statusLine]).toEqual([
        address,
        expect.stringMatching(/ 403 octroi (ip|metadata)_denied /),
      ])
      expect(mark.dials()).toEqual([])
    }
  })

  it('A064: the addresses just outside the blocks of IPv4 are public', async () => {
    const outside = [
      '1.0.0.0',
      '9.255.255.255',
      '11.0.0.0',
      '100.63.255.255',
      '100.128.0.0',
      '126.255.255.255',
      '128.0.0.0',
      '169.253.255.255',
      '169.255.0.0',
      '172.15.255.255',
      '172.32.0.0',
      '192.167.255.255',
      '192.169.0.0',
      '198.17.255.255',
      '198.20.0.0',
      '223.255.255.255',
    ]
    for (const address of outside) {
      bench.names.set('edge.wild.test', () => [address])
      // The tunnel is judged before its 200 and dialled at its first request, which never comes.
      expect([address, await judged('open', 'edge.wild.test:443')]).toEqual([
        address,
        'HTTP/1.1 200 Connection established',
      ])
    }
  })

  it('A065: IPv6 text with a zone, or in no valid form, is 400', async () => {
    const hosts = [
      '[fe80::1%25eth0]',
      '[fe80::1%eth0]',
      '[::1%25lo]',
      '[::1%00]',
      '[::1',
      '::1',
      '[::1]]',
      '[v1.fe80::a]',
      '[]',
      '[::1]x',
      '[1:2]',
      '[::12345]',
    ]
    for (const host of hosts) {
      await expectConnectRefused(bench, `${host}:443`, { status: 400, reason: 'malformed' })
      await expectRefused(bench, `GET http://${host}/ HTTP/1.1\r\nHost: x\r\n\r\n`, {
        status: 400,
        reason: 'malformed',
      })
    }
  })

  it('B005: an IPv6 literal in brackets is judged as an address, without brackets it is 400', async () => {
    expect(await judged('open', '[2001:db8::10]:443')).toMatch(/^HTTP\/1\.1 200 /)
    await connectDenied('a1', '[2001:db8::10]:443', 'host_denied')
    await connectDenied('private', '[2001:db8:0:0::10]:443', 'ip_denied')
    await expectConnectRefused(bench, '2001:db8::10:443', {
      status: 400,
      reason: 'malformed',
      sandbox: 'open',
    })
  })

  it('B035: an embedded IPv4 address is judged by the IPv4 it leads to', async () => {
    for (const host of [
      '[::ffff:10.0.0.1]',
      '[::127.0.0.1]',
      '[64:ff9b::a00:1]',
      '[64:ff9b:1::a00:1]',
      '[2002:a00:1::]',
      '[2001::1]',
      '[fec0::1]',
    ]) {
      await connectDenied('open', `${host}:443`, 'ip_denied|self|host_denied')
    }
    bench.names.set('mapped.wild.test', () => ['::ffff:10.0.0.1'])
    await connectDenied('open', 'mapped.wild.test:443', 'ip_denied')
  })

  it('A066, A067, B037: a name that moves to an internal address is refused at the dial, and no other address is tried', async () => {
    bench.names.set('rebind.wild.test', () => ['10.0.0.5'])
    await connectDenied('a1', bench.at('rebind.wild.test'), 'ip_denied')
    const answers = [['127.0.0.1'], ['10.0.0.5']]
    bench.names.set('rebind.wild.test', () => answers.shift() ?? ['10.0.0.5'])
    const client = await bench.tunnel('s1', 'rebind.wild.test')
    const mark = bench.mark()
    client.write(`GET / HTTP/1.1\r\nHost: ${bench.at('rebind.wild.test')}\r\n\r\n`)
    expect((await client.response()).statusLine).toMatch(/ 403 octroi ip_denied /)
    expect(mark.lookups()).toEqual(['rebind.wild.test'])
    expect(mark.dials()).toEqual([])
    expect((await mark.decisions(1))[0]).toMatchObject({ agent: 'a1', verdict: 'deny', reason: 'ip_denied' })
  })

  it('A067: one lookup serves the judgement and the dial of a request', async () => {
    const host = `plain.good.test:${bench.plain.port}`
    let lookups = 0
    bench.names.set('plain.good.test', () => (lookups++ === 0 ? ['127.0.0.1'] : ['10.0.0.5']))
    const client = await bench.client()
    const login = await bench.broker.auth('s1')
    const { event } = await expectAllowed(
      bench,
      client,
      `GET http://${host}/ HTTP/1.1\r\nHost: ${host}\r\n${login}\r\n`,
    )
    expect(event.address).toBe('127.0.0.1')
    expect(lookups).toBe(1)
    bench.names.delete('plain.good.test')
  })

  it('B037: an answer that mixes public and internal addresses is refused whole', async () => {
    bench.names.set('mixed.wild.test', () => ['93.184.216.34', '10.0.0.5'])
    await connectDenied('open', 'mixed.wild.test:443', 'ip_denied')
  })

  it('A071: names that only a local network knows are denied without a lookup', async () => {
    for (const name of [
      'localhost',
      'db.localhost',
      'metadata',
      'wpad',
      'foo.local',
      'kubernetes.default.svc',
      'x.internal',
    ]) {
      const mark = bench.mark()
      await connectDenied('open', `${name}:443`, 'host_denied|metadata_denied|ip_denied')
      expect([name, mark.lookups()]).toEqual([name, []])
    }
  })

  it('A073: the admin port is no destination, by any address of this machine or a name for one', async () => {
    const lan = Object.values(networkInterfaces()).flatMap((entries) =>
      (entries ?? []).map(({ address }) => address),
    )
    const before = await bench.config()
    await bench.broker.reconfigure(before.replace('18081', String(bench.broker.adminPort)))
    for (const address of new Set([
      '127.0.0.1',
      '127.9.9.9',
      '::1',
      '0.0.0.0',
      '::',
      '::ffff:127.0.0.1',
      ...lan,
    ])) {
      if (address.includes('%')) continue
      bench.names.set('me.wild.test', () => [address])
      await connectDenied('private', `me.wild.test:${bench.broker.adminPort}`, 'self|ip_denied')
      const literal = address.includes(':') ? `[${address}]` : address
      await connectDenied(
        'private',
        `${literal}:${bench.broker.adminPort}`,
        'self|ip_denied|host_denied|port_denied',
      )
    }
    await bench.broker.reconfigure(before)
  })

  it('A075: an opened range is open for its sandbox and its rule alone', async () => {
    const at = (sandbox: string, address: string): Promise<string> => {
      bench.names.set('range.wild.test', () => [address])
      return judged(sandbox, 'range.wild.test:443')
    }
    expect(await at('ten', '10.1.2.3')).toMatch(/^HTTP\/1\.1 200 /)
    expect(await at('ten', '10.1.3.1')).toBe('HTTP/1.1 403 octroi ip_denied')
    expect(await at('ten', '10.1.1.255')).toBe('HTTP/1.1 403 octroi ip_denied')
    expect(await at('private', '169.254.169.254')).toBe('HTTP/1.1 403 octroi metadata_denied')
    expect(await at('open', '10.1.2.3')).toBe('HTTP/1.1 403 octroi ip_denied')
    expect(await at('s2', '10.1.2.3')).toBe('HTTP/1.1 403 octroi host_denied')
  })

  it('A088: well-known resolvers over TLS and HTTPS are denied by default', async () => {
    for (const authority of [
      'dns.google:443',
      'cloudflare-dns.com:443',
      'one.one.one.one:853',
      '1.1.1.1:853',
      '8.8.8.8:53',
      '[2606:4700:4700::1111]:853',
    ]) {
      await expectConnectRefused(bench, authority, { status: 403, reason: 'host_denied' })
    }
  })
})

it('A073: an admin listener on any free port is as little a destination as one on a port of its own', async () => {
  const bench = await attackBench({ more: 'listen: { proxy: 127.0.0.1:0, admin: 127.0.0.1:0 }\n' })
  try {
    const { adminPort } = bench.broker
    const before = await bench.config()
    const rule = `- { host: "*.wild.test", ports: [${adminPort}], addresses: [127.0.0.0/8] }`
    await bench.broker.reconfigure(before.replace('allow:\n      - {', `allow:\n      ${rule}\n      - {`))
    const { client, response } = await bench.connect('s1', `me.wild.test:${adminPort}`)
    client.destroy()
    expect(response.statusLine).toMatch(/ 403 octroi self /)
  } finally {
    await bench.stop()
  }
})

describe('name resolution under attack', () => {
  let bench: AttackBench
  let dns: TestDnsServer
  const replies = new Map<string, DnsReply>()

  beforeAll(async () => {
    dns = await createTestDnsServer((name) => replies.get(name) ?? { rcode: 'NXDOMAIN' })
    bench = await attackBench({ resolver: 'configured', more: `resolver: { servers: ["${dns.address}"] }\n` })
  })
  afterEach(() => bench.standing())
  afterAll(async () => {
    await bench.stop()
    await dns.close()
  })

  const ask = async (name: string): Promise<string> => {
    const mark = bench.mark()
    const { client, response } = await bench.connect('s1', bench.at(name))
    client.destroy()
    const [event] = await mark.decisions(1)
    expect(event).toMatchObject({ agent: 'a1', host: name })
    expect(mark.dials()).toEqual([])
    return response.status === 200 ? '200' : (response.statusLine.split(' ')[3] ?? '')
  }

  it('A070: a chain of aliases is judged by where it ends, and one without an end is 502', async () => {
    const chain = (length: number): string[] => Array.from({ length }, (_, i) => `c${i}.other.test`)
    replies.set('short.wild.test', { addresses: ['10.0.0.5'], cnames: chain(3) })
    replies.set('fine.wild.test', { addresses: ['127.0.0.1'], cnames: chain(2) })
    replies.set('loop.wild.test', { addresses: [], cnames: ['loop.wild.test'] })
    expect(await ask('short.wild.test')).toBe('ip_denied')
    expect(await ask('fine.wild.test')).toBe('200')
    expect(await ask('loop.wild.test')).toBe('dns_failed')
  })

  it('A071: a name is asked as it is, with no search list', async () => {
    dns.asked.length = 0
    expect(await ask('nowhere.wild.test')).toBe('dns_failed')
    expect(new Set(dns.asked)).toEqual(new Set(['nowhere.wild.test A', 'nowhere.wild.test AAAA']))
  })

  it('A090: a resolver that fails is 502, a silent one 504, and one that comes back is heard at once', async () => {
    replies.set('flaky.wild.test', { rcode: 'SERVFAIL' })
    expect(await ask('flaky.wild.test')).toBe('dns_failed')
    replies.set('flaky.wild.test', { addresses: ['127.0.0.1'] })
    expect(await ask('flaky.wild.test')).toBe('200')
  })

  it('A023: a denied name is never asked for', async () => {
    dns.asked.length = 0
    await expectConnectRefused(bench, 'data-0123456789.evil.test:443', { status: 403, reason: 'host_denied' })
    await expectConnectRefused(bench, bench.at('blocked.wild.test'), { status: 403, reason: 'host_denied' })
    expect(dns.asked).toEqual([])
  })
})
