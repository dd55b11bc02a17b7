import { createHash } from 'node:crypto'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import type { LoggedEvent } from '../../src/audit/query.ts'
import { attackBench, until, type AttackBench } from '../helpers/attack-bench.ts'
import { expectAllowed, expectRefusedInside } from '../helpers/attack-cases.ts'
import { ok, type OnRequest } from '../helpers/origin.ts'
import { proofCount, runSeed } from '../helpers/proof-count.ts'
import type { RawClient } from '../helpers/raw-client.ts'
import { seeded, type Seeded } from '../helpers/seeded.ts'
import { startStrictOrigin, type StrictOrigin } from '../helpers/strict-origin.ts'

const seed = runSeed()

/** Upstreams that break HTTP, by path. */
const broken: Readonly<Record<string, string>> = {
  '/both': 'HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n',
  '/twice': 'HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd',
  '/same': 'HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc',
  '/fold': 'HTTP/1.1 200 OK\r\nX: y\r\n Content-Length: 3\r\n\r\nabc',
  '/lf': 'HTTP/1.1 200 OK\nContent-Length: 3\n\nabc',
  '/size': 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n',
  '/coding': 'HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n',
  '/nonsense': 'SSH-2.0-x\r\n\r\n',
  '/negative': 'HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n',
}
const extra: Readonly<Record<string, string>> = {
  '/two': ok('one') + ok('two for the next'),
  '/after': `${ok('one')}poison`,
  '/head-body': 'HTTP/1.1 204 No Content\r\n\r\npoison',
}

const answer: OnRequest = ({ head, body, socket }) => {
  const path = head.split(' ')[1] ?? ''
  if (/^expect: 100-continue/im.test(head)) socket.write('HTTP/1.1 100 Continue\r\n\r\n')
  socket.write(broken[path] ?? extra[path] ?? ok(`${head}${body}`, ['Content-Type: text/plain']))
}

describe('framing of HTTP/1.1', () => {
  let bench: AttackBench
  let host: string

  beforeAll(async () => {
    bench = await attackBench({ onRequest: answer })
    host = bench.at('free.good.test')
  })
  afterEach(() => bench.standing())
  afterAll(() => bench.stop())

  const head = (line: string, ...fields: string[]): string =>
    `${line} HTTP/1.1\r\nHost: ${host}\r\n${fields.map((field) => `${field}\r\n`).join('')}\r\n`

  const malformed = async (request: string): Promise<void> => {
    const client = await bench.tunnel('s1', 'free.good.test')
    await expectRefusedInside(bench, client, { request, status: 400, reason: 'malformed' })
    client.destroy()
  }

  describe('a request with two readings is 400, the connection is closed and nothing goes upstream', () => {
    const cases: Readonly<Record<string, readonly string[]>> = {
      'A091: Content-Length with Transfer-Encoding, the body too short': [
        'POST /v1/a HTTP/1.1\r\nHost: HOST\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG',
        'POST /v1/a HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\nG',
      ],
      'A092: a request hidden in a chunk behind a Content-Length': [
        'POST /v1/a HTTP/1.1\r\nHost: HOST\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n1f\r\nGPOST / HTTP/1.1\r\nHost: e.t\r\n\r\n\r\n0\r\n\r\n',
      ],
      'A094: more than one length': [
        'POST / HTTP/1.1\r\nHost: HOST\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef',
        'POST / HTTP/1.1\r\nHost: HOST\r\nContent-Length: 5, 6\r\n\r\nabcdef',
        'POST / HTTP/1.1\r\nHost: HOST\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nabcde',
        'POST / HTTP/1.1\r\nHost: HOST\r\nContent-Length: 5\r\ncontent-length: 5\r\n\r\nabcde',
        'POST / HTTP/1.1\r\nHost: HOST\r\nContent-Length: 5, 5\r\n\r\nabcde',
      ],
      'a length that is not a plain number': [
        '+5',
        '-5',
        '0x5',
        '5.0',
        '5 ',
        '5e0',
        '',
        '٥',
        '99999999999999999999',
        '5;',
      ].map(
        (length) =>
          `POST / HTTP/1.1\r\nHost: HOST\r\nContent-Length: ${length}${length === '5 ' ? '\t5' : ''}\r\n\r\nabcde`,
      ),
      'a transfer coding that is not exactly chunked': [
        'xchunked',
        'chunked, identity',
        'chunked, chunked',
        '"chunked"',
        'chunked;q=1',
        '\x0bchunked',
        'identity',
        '',
        'chunked\r\nTransfer-Encoding: identity',
        'chunked\r\nTransfer-Encoding: chunked',
      ].map((coding) => `POST / HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: ${coding}\r\n\r\n0\r\n\r\n`),
      'A096: blanks where a field name ends or a line begins': [
        'POST / HTTP/1.1\r\nHost: HOST\r\nContent-Length : 5\r\n\r\nabcde',
        'POST / HTTP/1.1\r\nHost: HOST\r\nContent-Length\t: 5\r\n\r\nabcde',
        'POST / HTTP/1.1\r\n Host: HOST\r\n\r\n',
        'POST / HTTP/1.1\r\nHost: HOST\r\nX: y\r\n Content-Length: 5\r\n\r\nabcde',
        'POST / HTTP/1.1\r\nHost: HOST\r\nX: y\r\n\tTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
        'POST / HTTP/1.1\r\nHost: HOST\r\n: empty\r\n\r\n',
        'POST / HTTP/1.1\r\nHost: HOST\r\nNoColon\r\n\r\n',
        'POST / HTTP/1.1\r\nHost: HOST\r\nX\0Y: 1\r\n\r\n',
        'POST / HTTP/1.1\r\nHost: HOST\r\nX: a\0b\r\n\r\n',
        'POST / HTTP/1.1\r\nHost: HOST\r\nX(y): 1\r\n\r\n',
      ],
      'A097: line ends that are not CRLF': [
        'GET / HTTP/1.1\nHost: HOST\n\n',
        'GET / HTTP/1.1\r\nHost: HOST\n\r\n',
        'GET / HTTP/1.1\nHost: HOST\r\n\r\n',
        'GET / HTTP/1.1\r\nHost: HOST\r\n\rX\r\n\r\n',
        'GET / HTTP/1.1\r\r\nHost: HOST\r\n\r\n',
        'GET / HTTP/1.1\r\nHost: HOST\rX: y\r\n\r\n',
      ],
      'A104: an expectation nobody knows': [
        'POST / HTTP/1.1\r\nHost: HOST\r\nContent-Length: 1\r\nExpect: y 100-continue\r\n\r\na',
        'POST / HTTP/1.1\r\nHost: HOST\r\nContent-Length: 1\r\nExpect: 100-continue\r\nExpect: 100-continue\r\n\r\na',
        'POST / HTTP/1.1\r\nHost: HOST\r\nContent-Length: 1\r\nExpect: 200-ok\r\n\r\na',
      ],
      'A112: a request line with more or fewer parts': [
        'GET  / HTTP/1.1\r\nHost: HOST\r\n\r\n',
        'GET\t/ HTTP/1.1\r\nHost: HOST\r\n\r\n',
        'GET / HTTP/1.1 x\r\nHost: HOST\r\n\r\n',
        'GET / HTTP/1.1 \r\nHost: HOST\r\n\r\n',
        'GET /a b HTTP/1.1\r\nHost: HOST\r\n\r\n',
        'GET / http/1.1\r\nHost: HOST\r\n\r\n',
        'GET / HTTP/1.10\r\nHost: HOST\r\n\r\n',
        'GET / HTTPS/1.1\r\nHost: HOST\r\n\r\n',
        'GET /\r\nHost: HOST\r\n\r\n',
        'GET / HTTP/1.1\r\n\r\n',
      ],
      'a body in HTTP/1.0 that only HTTP/1.1 can delimit': [
        'POST / HTTP/1.0\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
      ],
      'A118: a target that is not in origin-form or of this tunnel': [
        'OPTIONS * HTTP/1.1\r\nHost: HOST\r\n\r\n',
        'GET foo HTTP/1.1\r\nHost: HOST\r\n\r\n',
        'GET ftp://HOST/ HTTP/1.1\r\nHost: HOST\r\n\r\n',
        'GET file:///etc/passwd HTTP/1.1\r\nHost: HOST\r\n\r\n',
        'GET /#x HTTP/1.1\r\nHost: HOST\r\n\r\n',
      ],
    }
    for (const [name, requests] of Object.entries(cases)) {
      it(name, async () => {
        for (const request of requests) {
          await malformed(Buffer.from(request.replaceAll('HOST', host)).toString('latin1'))
        }
      })
    }

    it('A112: another version of HTTP is 505', async () => {
      for (const version of ['HTTP/2.0', 'HTTP/1.9', 'HTTP/3.0', 'HTTP/0.9']) {
        const client = await bench.tunnel('s1', 'free.good.test')
        const request = `GET / ${version}\r\nHost: ${host}\r\n\r\n`
        await expectRefusedInside(bench, client, { request, status: 505, reason: 'malformed' })
        await client.closed()
      }
    })

    it('a transfer coding that is real and not relayed is 501', async () => {
      const client = await bench.tunnel('s1', 'free.good.test')
      const request = head('POST /', 'Transfer-Encoding: gzip, chunked')
      await expectRefusedInside(bench, client, { request, status: 501, reason: 'malformed' })
      await client.closed()
    })
  })

  it('A099: chunk extensions end the request at a fixed cap', async () => {
    const bodies = [
      `1;${'x'.repeat(16 * 1024)}\r\na\r\n0\r\n\r\n`,
      `${`1;${'x'.repeat(400)}\r\na\r\n`.repeat(200)}0\r\n\r\n`,
    ]
    for (const body of bodies) {
      const mark = bench.mark()
      const client = await bench.tunnel('s1', 'free.good.test')
      client.write(head('POST /', 'Transfer-Encoding: chunked') + body)
      await client.closed()
      const [event] = await mark.decisions(1)
      expect(event).toMatchObject({ agent: 'a1', verdict: 'deny' })
      expect(mark.upstream()).not.toContain('xxxx')
      expect(mark.upstream()).not.toMatch(/0\r\n\r\n$/)
    }
  })

  it('a broken chunk never reaches the upstream as the end of a request', async () => {
    const bodies = [
      '5\r\nabcdeX',
      '5\r\nabcde\r\nzz\r\n',
      '-1\r\n',
      '0x5\r\nabcde\r\n0\r\n\r\n',
      '5\nabcde\n0\n\n',
      '5 5\r\nabcde\r\n',
      '10000000000000000\r\n',
      '2\r\nabc\r\n0\r\n\r\n',
    ]
    for (const body of bodies) {
      const mark = bench.mark()
      const client = await bench.tunnel('s1', 'free.good.test')
      client.write(head('POST /', 'Transfer-Encoding: chunked') + body)
      client.end()
      await client.closed()
      const [event] = await mark.decisions(1)
      // A chunk that could still have become whole is a client that left, not a broken one.
      expect([body, event?.agent, event?.verdict === 'deny' || event?.end === 'client_gone']).toEqual([
        body,
        'a1',
        true,
      ])
      expect([body, mark.upstream()]).toEqual([body, expect.not.stringMatching(/\r\n0\r\n\r\n$/)])
    }
  })

  it('A101: trailers cannot carry framing, routing or a credential, and nothing in them is swapped', async () => {
    const client = await bench.tunnel('s1', 'free.good.test')
    const placeholder = bench.placeholder('api')
    const trailers = [
      'Authorization: Bearer mine',
      'Content-Length: 9',
      'Host: evil.test',
      'Transfer-Encoding: chunked',
      'X-Sum: 1',
      `X-Handle: ${placeholder}`,
    ]
    const request = `${head('POST /', 'Transfer-Encoding: chunked')}3\r\nabc\r\n0\r\n${trailers.join('\r\n')}\r\n\r\n`
    const { received } = await expectAllowed(bench, client, request)
    const trailer = received.slice(received.indexOf('\r\n\r\n') + 4)
    expect(trailer).not.toMatch(/authorization|content-length|host:|transfer-encoding/i)
    expect(trailer).toContain('X-Sum: 1')
    for (const secret of Object.values(bench.secrets)) expect(received).not.toContain(secret)
  })

  it('A102: requests in one segment get their verdicts in order, one event each', async () => {
    const client = await bench.tunnel('s1', 'read.good.test')
    const mark = bench.mark()
    const get = (path: string): string =>
      `GET ${path} HTTP/1.1\r\nHost: ${bench.at('read.good.test')}\r\n\r\n`
    client.write(get('/v1/1') + get('/v1/2') + get('/admin'))
    const statuses = [
      (await client.response()).status,
      (await client.response()).status,
      (await client.response()).status,
    ]
    expect(statuses).toEqual([200, 200, 403])
    const events = await mark.decisions(3)
    expect(events.map(({ path, verdict }) => `${path} ${verdict}`)).toEqual([
      '/v1/1 allow',
      '/v1/2 allow',
      '/admin deny',
    ])
    expect(mark.upstream()).not.toContain('/admin')
  })

  it('A104: a withheld body is asked for by the upstream’s own 100', async () => {
    const client = await bench.tunnel('s1', 'free.good.test')
    const mark = bench.mark()
    client.write(head('POST /e', 'Content-Length: 3', 'Expect: 100-continue'))
    const sent = await client.read((text) => text.includes('\r\n\r\n'), 1_000).catch(() => '')
    // This origin answers whole requests, so it has not said 100 yet; the head is there, the body is not.
    expect(sent).toBe('')
    await until(() => mark.upstream().includes('Expect: 100-continue'), 'head upstream')
    client.write('abc')
    expect((await client.response()).status).toBe(100)
    expect((await client.response()).body).toMatch(/abc$/)
    expect((await mark.decisions(1))[0]).toMatchObject({ verdict: 'allow', bytes_up: 3 })
  })

  it('A104: a GET with an empty body and an expectation leaves nothing on the connection', async () => {
    const client = await bench.tunnel('s1', 'free.good.test')
    await expectAllowed(bench, client, head('GET /a', 'Content-Length: 0', 'Expect: 100-continue'))
    await expectAllowed(bench, client, head('GET /b'))
  })

  it('A106: an upstream that breaks its framing is 502 and its connection is not used again', async () => {
    for (const path of Object.keys(broken)) {
      const client = await bench.tunnel('s1', 'free.good.test')
      const mark = bench.mark()
      client.write(head(`GET ${path}`))
      const text = await client.read((received) => received.includes('\r\n\r\n') || client.isClosed)
      if (path === '/size') expect(text === '' || client.isClosed || text.includes(' 502 ')).toBe(true)
      else
        expect([path, text.split('\r\n')[0]]).toEqual([
          path,
          expect.stringMatching(/^HTTP\/1\.1 502 octroi upstream_failed /),
        ])
      const [event] = await mark.decisions(1)
      expect([path, event]).toMatchObject([
        path,
        { agent: 'a1', reason: 'upstream_failed', end: 'upstream_failed' },
      ])
      client.destroy()
      const again = await bench.tunnel('s1', 'free.good.test')
      const { response } = await expectAllowed(bench, again, head('GET /clean'))
      expect([path, response.body]).toEqual([path, expect.stringMatching(/^GET \/clean /)])
      again.destroy()
    }
  })

  it('A106: what an upstream sends beyond its response never begins another one', async () => {
    for (const path of Object.keys(extra)) {
      const client = await bench.tunnel('s1', 'free.good.test')
      const mark = bench.mark()
      client.write(head(`GET ${path}`))
      const first = await client.response()
      expect(first.raw).not.toMatch(/two for the next|poison/)
      await mark.decisions(1)
      for (let i = 0; i < 3; i++) {
        const next = await bench.tunnel('s1', 'free.good.test')
        const { response } = await expectAllowed(bench, next, head(`GET /next${i}`))
        expect(response.raw).not.toMatch(/two for the next|poison/)
        expect(response.body).toMatch(new RegExp(`^GET /next${i} `))
        next.destroy()
      }
    }
  })

  it('the body of a refused request is dropped, never read as a request', async () => {
    const login = await bench.broker.auth('s1')
    const plainHost = `plain.good.test:${bench.plain.port}`
    const hidden = `GET http://${plainHost}/hidden HTTP/1.1\r\nHost: ${plainHost}\r\n${login}\r\n`
    const after = hidden.replace('/hidden', '/after')
    const size = hidden.length.toString(16)
    const refusedHeads = [
      `POST http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n${login}Content-Length: ${hidden.length}\r\n\r\n${hidden}`,
      `POST http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n${login}Transfer-Encoding: chunked\r\n\r\n${size}\r\n${hidden}\r\n0\r\n\r\n`,
      `POST http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n${login}Expect: 100-continue\r\nContent-Length: ${hidden.length}\r\n\r\n${hidden}`,
      `POST http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n${login}Content-Length: ${hidden.length + 100_000}\r\n\r\n${'x'.repeat(100_000)}${hidden}`,
      `POST http://${plainHost}/ HTTP/1.1\r\nHost: ${plainHost}\r\nContent-Length: ${hidden.length}\r\n\r\n${hidden}`,
      `TRACE http://${plainHost}/ HTTP/1.1\r\nHost: ${plainHost}\r\n${login}Content-Length: ${hidden.length}\r\n\r\n${hidden}`,
      `POST http://${plainHost}/ HTTP/1.1\r\nHost: ${plainHost}\r\n${login}Upgrade: websocket\r\nContent-Length: ${hidden.length}\r\n\r\n${hidden}`,
      `CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n${login}Content-Length: ${hidden.length}\r\n\r\n${hidden}`,
      `POST http://${plainHost}/ HTTP/1.0\r\nHost: ${plainHost}\r\nContent-Length: ${hidden.length}\r\n\r\n${hidden}`,
    ]
    for (const refused of refusedHeads) {
      const mark = bench.mark()
      const client = await bench.client()
      client.write(refused + after)
      client.end()
      await client.closed()
      const line = refused.slice(0, refused.indexOf('\r\n'))
      expect([line, mark.plain().includes('/hidden')]).toEqual([line, false])
      expect([line, client.text]).toEqual([line, expect.stringMatching(/^HTTP\/1\.1 (4|501)/)])
      const answers = client.text.match(/HTTP\/1\.1 [0-9]{3} /g)?.length ?? 0
      await mark.decisions(answers)
      client.destroy()
    }
  })

  it('A108: a client cannot take the credential, the length or the host off its own request', async () => {
    const client = await bench.tunnel('s1', 'api.good.test')
    const placeholder = bench.placeholder('api')
    const request = `POST /v1/x HTTP/1.1\r\nHost: ${bench.at('api.good.test')}\r\nConnection: authorization, x-api-key, content-length, host\r\nAuthorization: Bearer ${placeholder}\r\nX-Api-Key-Other: 1\r\nContent-Length: 3\r\n\r\nabc`
    const { received } = await expectAllowed(bench, client, request)
    expect(received).toContain(`Authorization: Bearer ${bench.secrets.k1}\r\n`)
    expect(received).toContain(`Host: ${bench.at('api.good.test')}\r\n`)
    expect(received).toContain('Content-Length: 3\r\n')
    expect(received).not.toMatch(/^connection:/im)
    expect(received).toMatch(/\r\n\r\nabc$/)
  })

  it('A110: two Authorization lines never leave as two', async () => {
    const placeholder = bench.placeholder('api')
    for (const lines of [
      `Authorization: Bearer attacker\r\nauthorization: Bearer ${placeholder}`,
      `Authorization: Bearer ${placeholder}\r\nauthorization: Bearer attacker`,
      `Authorization: Bearer ${placeholder}\r\nAuthorization: Bearer ${placeholder}`,
    ]) {
      const client = await bench.tunnel('s1', 'api.good.test')
      const mark = bench.mark()
      client.write(`GET /v1/x HTTP/1.1\r\nHost: ${bench.at('api.good.test')}\r\n${lines}\r\n\r\n`)
      expect((await client.response()).status).toBe(403)
      expect((await mark.decisions(1))[0]).toMatchObject({
        agent: 'a1',
        verdict: 'deny',
        reason: 'handle_placement',
      })
      expect(mark.upstream()).toBe('')
      client.destroy()
    }
  })

  it('A111: field names that are special in JavaScript are ordinary, and thousands of fields are 431', async () => {
    const client = await bench.tunnel('s1', 'free.good.test')
    const names = ['__proto__', 'constructor', 'toString', 'hasOwnProperty', 'valueOf']
    const { received } = await expectAllowed(
      bench,
      client,
      head('GET /', ...names.map((name) => `${name}: 1`)),
    )
    for (const name of names) expect(received).toContain(`${name}: 1\r\n`)
    const request = head('GET /', ...Array.from({ length: 2_000 }, (_, i) => `${i}: 1`))
    await expectRefusedInside(bench, client, { request, status: 431, reason: 'too_large' })
  })

  it('A112: an HTTP/1.0 request is answered and its connection is not kept', async () => {
    const client = await bench.tunnel('s1', 'free.good.test')
    const mark = bench.mark()
    client.write(`GET /old HTTP/1.0\r\nHost: ${host}\r\nConnection: keep-alive\r\n\r\n`)
    await client.closed()
    expect(client.text).toMatch(/^HTTP\/1\.1 200 /)
    expect(client.text).toMatch(/\r\nConnection: close\r\n/)
    expect((await mark.decisions(1))[0]).toMatchObject({ verdict: 'allow', status: 200 })
    expect(mark.upstream()).toMatch(/^GET \/old HTTP\/1\.1\r\n/)
  })

  it('A118: in cleartext only absolute http and https URLs are taken, and https goes over verified TLS', async () => {
    for (const target of [
      '*',
      '/',
      '/v1/x',
      'ftp://free.good.test/',
      'gopher://free.good.test/',
      'file:///etc/passwd',
      'ws://plain.good.test/',
      'javascript:1',
    ]) {
      const mark = bench.mark()
      const { response, client } = await bench.ask(
        's1',
        `OPTIONS ${target} HTTP/1.1\r\nHost: free.good.test\r\n\r\n`,
      )
      expect([target, response.status]).toEqual([target, 400])
      await client.closed()
      expect((await mark.decisions(1))[0]).toMatchObject({
        agent: 'a1',
        verdict: 'deny',
        reason: 'malformed',
      })
      mark.nothingLeft()
    }
    const mark = bench.mark()
    const { response } = await bench.ask('s1', `GET https://${host}/secure HTTP/1.1\r\nHost: ${host}\r\n\r\n`)
    expect(response.status).toBe(200)
    expect(mark.upstream()).toMatch(/^GET \/secure HTTP\/1\.1\r\n/)
    expect(mark.plain()).toBe('')
    expect((await mark.decisions(1))[0]).toMatchObject({ scheme: 'https', verdict: 'allow' })
  })

  it('A120: a body of any method keeps its framing, and the next request begins where it ended', async () => {
    const client = await bench.tunnel('s1', 'free.good.test')
    for (const method of ['GET', 'DELETE', 'OPTIONS', 'PATCH', 'PUT']) {
      const length = await expectAllowed(bench, client, `${head(`${method} /a`, 'Content-Length: 5')}hello`)
      expect(length.received).toMatch(/\r\nContent-Length: 5\r\n(.*\r\n)*\r\nhello$/)
      const chunked = await expectAllowed(
        bench,
        client,
        `${head(`${method} /b`, 'Transfer-Encoding: chunked')}5\r\nhello\r\n0\r\n\r\n`,
      )
      expect(chunked.received).toMatch(
        /\r\nTransfer-Encoding: chunked\r\n(.*\r\n)*\r\n5\r\nhello\r\n0\r\n\r\n$/,
      )
    }
  })

  it('B043: a body without a body slot goes up with its own length, byte for byte', async () => {
    const client = await bench.tunnel('s1', 'api.good.test')
    const placeholder = bench.placeholder('api')
    const request = `POST /v1/upload HTTP/1.1\r\nHost: ${bench.at('api.good.test')}\r\nAuthorization: Bearer ${placeholder}\r\nContent-Length: 3\r\n\r\n\0\xff\n`
    const { received } = await expectAllowed(bench, client, request)
    expect(received).toMatch(/\r\nContent-Length: 3\r\n/)
    expect(received.endsWith('\r\n\r\n\0\xff\n')).toBe(true)
    expect(received).not.toMatch(/transfer-encoding/i)
  })
})

describe('what an upstream reads is what the log says', () => {
  let bench: AttackBench
  let origin: StrictOrigin

  beforeAll(async () => {
    origin = await startStrictOrigin()
    bench = await attackBench({
      allow: [`{ host: strict.good.test, scheme: http, ports: [${origin.port}], addresses: [127.0.0.0/8] }`],
      limits: { headMs: 5_000 },
    })
    bench.mayDial.add(`127.0.0.1:${origin.port}`)
  })
  afterEach(() => bench.standing())
  afterAll(async () => {
    await bench.stop()
    await origin.stop()
  })

  const methods = ['GET', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS', 'PROPFIND', 'REPORT']

  it(`A122: random valid requests arrive as they were sent and logged (OCTROI_SEED=${seed})`, async () => {
    const random = seeded(seed)
    const login = await bench.broker.auth('s1')
    const host = `strict.good.test:${origin.port}`
    const mark = bench.mark()
    const before = origin.requests.length
    const client = await bench.client()
    const wanted: { method: string; target: string; fields: string[]; bodySha256: string }[] = []
    const count = proofCount(200, 10_000)
    for (let i = 0; i < count; i++) {
      const method = random.pick(methods)
      const target = `/${i}/${random.pick(['a', 'a%20b', '%41', "!$&'()*+,;=", '~x', '//'])}${random.pick(['', '?', '?q=%00&x=y', '?a=//b'])}`
      const fields = Array.from(
        { length: random.below(5) },
        (_, n) =>
          `X-${random.pick(['a', 'B', 'c-d'])}-${n}: ${random.pick(['1', 'a, b', '\xe9', 'x'.repeat(300), '"q"'])}`,
      )
      const body = random.below(2) === 0 ? Buffer.alloc(0) : random.bytes(random.below(600))
      const isChunked = body.length > 0 && random.below(2) === 0
      const framing = isChunked
        ? ['Transfer-Encoding: chunked']
        : body.length > 0
          ? [`Content-Length: ${body.length}`]
          : []
      const lines = [
        `${method} http://${host}${target} HTTP/1.1`,
        `Host: ${host}`,
        login.trim(),
        ...fields,
        ...framing,
        '',
        '',
      ]
      client.write(lines.join('\r\n'))
      client.write(isChunked ? chunked(body, random) : body)
      expect((await client.response()).status).toBe(200)
      const empty =
        body.length === 0 && ['POST', 'PUT', 'PATCH'].includes(method) ? ['content-length: 0'] : []
      wanted.push({
        method,
        target,
        fields: [`host: ${host}`, ...fields.map(lowerName), ...framing.map(lowerName), ...empty].sort(),
        bodySha256: createHash('sha256').update(body).digest('hex'),
      })
    }
    client.destroy()
    const events = await mark.decisions(count)
    expect(origin.requests.slice(before)).toEqual(wanted)
    expect(events.map(({ method, path }) => `${method} ${path}`)).toEqual(
      wanted.map(({ method, target }) => `${method} ${target.split('?')[0]}`),
    )
    expect([origin.errors, origin.cut]).toEqual([[], []])
  })

  it(`A119: mutated requests reach a strict upstream exactly as often as the log allows them (OCTROI_SEED=${seed})`, async () => {
    const random = seeded(seed + 1)
    const login = await bench.broker.auth('s1')
    const mark = bench.mark()
    const before = origin.requests.length
    const cutBefore = origin.cut.length
    const count = proofCount(2_000, 100_000)
    const sent = Array.from({ length: count }, (_, i) =>
      mutated(random, { host: `strict.good.test:${origin.port}`, login, i }),
    )
    for (let i = 0; i < sent.length; i += 16)
      await Promise.all(sent.slice(i, i + 16).map((bytes) => sendOne(bytes)))
    const allowed = () =>
      mark.events().filter(({ kind, verdict }) => kind === 'exchange' && verdict === 'allow')
    await until(
      () => allowed().length >= origin.requests.length - before,
      'events of all requests',
      () => allowed().length,
    )
    await bench.standing()
    const seen = origin.requests
      .slice(before)
      .map(({ method, target }) => `${method} ${target.split('?')[0]}`)
    const named = ({ method, path }: LoggedEvent): string => `${method} ${path}`
    expect(without(seen, allowed().map(named))).toEqual([])
    // What a client cut or left reached the upstream as a request that never ended, or not at all.
    const left = allowed()
      .filter(({ end }) => end === 'client_gone')
      .map(named)
    expect(without(without(allowed().map(named), seen), [...origin.cut.slice(cutBefore), ...left])).toEqual(
      [],
    )
    // Most mutants must get somewhere, or the case proves nothing.
    expect(seen.length).toBeGreaterThan(count / 20)
    // Node knows the registered methods only; an unknown one is a token like any other to us.
    expect(
      origin.errors.filter(
        (code) => !['ECONNRESET', 'HPE_INVALID_EOF_STATE', 'HPE_INVALID_METHOD'].includes(code),
      ),
    ).toEqual([])
  })

  const sendOne = async (bytes: Buffer): Promise<void> => {
    const client: RawClient = await bench.client()
    client.write(bytes)
    client.end()
    await client.closed(10_000)
    client.destroy()
  }
})

/** `all` less one of each in `some`. */
function without(all: readonly string[], some: readonly string[]): string[] {
  const left = [...all]
  for (const one of some) {
    const at = left.indexOf(one)
    if (at >= 0) left.splice(at, 1)
  }
  return left
}

const lowerName = (field: string): string => field.replace(/^[^:]+/, (name) => name.toLowerCase())

function chunked(body: Buffer, random: Seeded): Buffer {
  const parts: Buffer[] = []
  for (let at = 0; at < body.length;) {
    const size = Math.min(body.length - at, 1 + random.below(200))
    parts.push(Buffer.from(`${size.toString(16)}\r\n`), body.subarray(at, at + size), Buffer.from('\r\n'))
    at += size
  }
  return Buffer.concat([...parts, Buffer.from('0\r\n\r\n')])
}

const pieces = [
  '\r',
  '\n',
  '\r\n',
  ' ',
  '\t',
  ':',
  '\0',
  ',',
  ';',
  '0',
  '5',
  'Content-Length: 5\r\n',
  'Content-Length: 0\r\n',
  'Transfer-Encoding: chunked\r\n',
  'Transfer-Encoding: identity\r\n',
  'Connection: close\r\n',
  'Connection: content-length\r\n',
  'Expect: 100-continue\r\n',
  '0\r\n\r\n',
  '5\r\nhello\r\n',
  'GET /smuggled HTTP/1.1\r\nHost: strict.good.test\r\n\r\n',
  'X: y\r\n z: w\r\n',
  '\x0b',
  '\x85',
  '%0d%0a',
  'HTTP/1.0',
  'HTTP/1.1',
  '\r\n\r\n',
]

/** One to three valid requests in a row, damaged in a few places. */
function mutated(random: Seeded, facts: { host: string; login: string; i: number }): Buffer {
  const { host, login, i } = facts
  const one = (n: number): string => {
    const start = `${random.pick(['GET', 'POST', 'PUT', 'HEAD'])} http://${host}/m${i}.${n} HTTP/1.1\r\nHost: ${host}\r\n${login}`
    return random.pick([
      `${start}\r\n`,
      `${start}Content-Length: 5\r\n\r\nhello`,
      `${start}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n`,
      `${start}Transfer-Encoding: chunked\r\n\r\n2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\nX-T: 1\r\n\r\n`,
    ])
  }
  let text = Array.from({ length: 1 + random.below(3) }, (_, n) => one(n)).join('')
  for (let n = 1 + random.below(3); n > 0; n--) {
    const at = random.below(text.length)
    const kind = random.below(5)
    if (kind === 0) text = text.slice(0, at) + text.slice(at + 1 + random.below(4))
    else if (kind === 1)
      text = text.slice(0, at) + String.fromCharCode(random.below(256)) + text.slice(at + 1)
    else if (kind === 2) text = text.slice(0, at) + random.pick(pieces) + text.slice(at)
    else if (kind === 3) {
      // After a line end, where fields are: most damage elsewhere ends in the same refusal.
      const line = text.indexOf('\r\n', at) + 2
      text = text.slice(0, line) + random.pick(pieces) + text.slice(line)
    } else text = text.slice(0, at) + text.slice(at, at + 30) + text.slice(at)
  }
  return Buffer.from(text, 'latin1')
}
