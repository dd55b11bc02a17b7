import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { attackBench, freshSecret, type AttackBench } from '../helpers/attack-bench.ts'
import { expectAllowed, expectRefused, expectRefusedInside } from '../helpers/attack-cases.ts'
import { ok, type OnRequest } from '../helpers/origin.ts'
import { proofCount } from '../helpers/proof-count.ts'
import { basic } from '../helpers/raw-client.ts'

const unfit: Readonly<Record<string, string>> = {
  crlf: 'value-with-break-9f\r\nX-Injected: 1',
  tab: 'value\twith-tab-2281ks',
  snowman: 'value-with-\u2603-2281ksPq',
  space: ' leading-space-2281ksPq',
  trailing: 'trailing-space-2281ksPq ',
  long: `v${'q1W2e3R4'.repeat(8 * 1024)}`,
  empty: '',
  undefined: 'undefined',
  common: 'application/json',
  short: 'k9X2',
}

const answer: OnRequest = ({ head, body, socket }) => {
  const path = head.split(' ')[1] ?? ''
  if (path === '/v1/close') socket.destroy()
  else if (path.startsWith('/v1/redirect'))
    socket.write('HTTP/1.1 302 Found\r\nLocation: https://evil.test/?r=1\r\nContent-Length: 0\r\n\r\n')
  else if (path === '/v1/json')
    socket.write(
      ok(JSON.stringify({ headers: head.split('\r\n'), data: body }), ['Content-Type: application/json']),
    )
  else socket.write(ok(`${head}${body}`, ['Content-Type: text/plain']))
}

describe('placeholders and the credentials behind them', () => {
  let bench: AttackBench

  beforeAll(async () => {
    bench = await attackBench({
      onRequest: answer,
      sandboxes: `
  s4:
    agent: a4
    tenant: elsewhere
    access: [api4]
templates:
  short-lived: { access: [api] }
`,
      allow: [
        '{ host: api.good.test, scheme: http, ports: [PLAIN], addresses: [127.0.0.0/8] }',
        '{ host: api.good.test, ports: [ALT], addresses: [127.0.0.0/8] }',
      ],
      edit: (yaml, { tls, plain }) =>
        yaml
          .replace('PLAIN', String(plain))
          .replace('ALT', String(tls === 65_535 ? tls - 1 : tls + 1))
          .replace(
            'access:\n  api:',
            `access:\n  api4:\n    credential: k2\n    destinations: [{ host: api.good.test, port: ${tls}, addresses: [127.0.0.0/8] }]\n  api:`,
          ),
    })
  })
  afterEach(() => bench.standing())
  afterAll(() => bench.stop())

  const get = (host: string, path: string, ...fields: string[]): string =>
    `GET ${path} HTTP/1.1\r\nHost: ${bench.at(host)}\r\n${fields.map((field) => `${field}\r\n`).join('')}\r\n`
  const h1 = (): string => bench.placeholder('api')
  const bearer = (placeholder = h1()): string => `Authorization: Bearer ${placeholder}`

  /** Refused in a fresh tunnel; the upstream sees nothing. */
  const refused = async (
    host: string,
    request: string,
    reason: string,
    who: { sandbox: string; agent: string } = { sandbox: 's1', agent: 'a1' },
  ) => {
    const client = await bench.tunnel(who.sandbox, host)
    const event = await expectRefusedInside(bench, client, { request, status: 403, reason, agent: who.agent })
    client.destroy()
    return event
  }

  it('A145: a placeholder in its slot becomes the credential once, upstream alone', async () => {
    const client = await bench.tunnel('s1', 'api.good.test')
    const { received, event, response } = await expectAllowed(
      bench,
      client,
      get('api.good.test', '/v1/x', bearer()),
    )
    expect(received.split(bench.secrets.k1)).toHaveLength(2)
    expect(received).toContain(`Authorization: Bearer ${bench.secrets.k1}\r\n`)
    expect(received).not.toContain(h1())
    expect(response.body).toContain(bearer())
    expect(event).toMatchObject({
      agent: 'a1',
      sandbox: 's1',
      reason: 'access',
      access: 'api',
      redactions: 1,
    })
    expect(event.handle).toBeDefined()
    expect(event.lease).toBeDefined()
    expect(JSON.stringify(event)).not.toContain(h1())
  })

  it('A145: the scheme is matched in any case and a header slot is exact', async () => {
    const client = await bench.tunnel('s1', 'api.good.test')
    const { received } = await expectAllowed(
      bench,
      client,
      get('api.good.test', '/v1/x', `authorization: bEaReR ${h1()}`),
    )
    expect(received).toContain(`Bearer ${bench.secrets.k1}\r\n`)
    const echo = await bench.tunnel('s1', 'echo.good.test')
    const exact = await expectAllowed(
      bench,
      echo,
      get('echo.good.test', '/', `X-Api-Key: ${bench.placeholder('echo')}`),
    )
    expect(exact.received).toContain(`X-Api-Key: ${bench.secrets.k1e}\r\n`)
  })

  it('A146, B047: a placeholder at an allowed host that is not its own is refused', async () => {
    for (const host of ['echo.good.test', 'free.good.test', 'a.wild.test', 'good.cdn.test']) {
      const event = await refused(host, get(host, '/', bearer()), 'handle_wrong_destination')
      expect(event).toMatchObject({ access: 'api', host })
    }
  })

  it('A147: a placeholder of another sandbox is unknown on the wire, and its owner is alerted', async () => {
    const mark = bench.mark()
    const event = await refused('api.good.test', get('api.good.test', '/v1/x', bearer()), 'handle_unknown', {
      sandbox: 's2',
      agent: 'a2',
    })
    expect(event).toMatchObject({ note: 'handle_wrong_sandbox', sandbox: 's2' })
    expect(mark.alerts()).toMatchObject([
      {
        sandbox: 's1',
        reason: 'handle_wrong_sandbox',
        access: 'api',
        note: expect.stringContaining('s2') as string,
      },
    ])
  })

  it('A149: never issued, revoked, deleted and other sandboxes’ placeholders get one and the same answer', async () => {
    const { answer: made } = await bench.admin('POST', '/v1/sandboxes', {
      template: 'short-lived',
      name: 'gone',
    })
    bench.guard('password of gone', String(made['token']))
    const deleted = bench.placeholder('api', 'gone')
    expect((await bench.admin('DELETE', '/v1/sandboxes/gone')).status).toBe(200)
    const { answer: other } = await bench.admin('POST', '/v1/sandboxes', {
      template: 'short-lived',
      name: 'revoked',
    })
    bench.guard('password of revoked', String(other['token']))
    const revoked = bench.placeholder('api', 'revoked')
    expect((await bench.admin('POST', '/v1/revoke', { kind: 'handle', target: revoked })).status).toBe(200)
    const flip = (text: string): string => text.slice(0, -1) + (text.endsWith('a') ? 'b' : 'a')
    const cases: [string, string][] = [
      [flip(deleted), 'handle_never_issued'],
      [deleted, 'handle_wrong_sandbox'],
      [revoked, 'handle_wrong_sandbox'],
      [bench.placeholder('other', 's2'), 'handle_wrong_sandbox'],
      [bench.placeholder('api4', 's4'), 'handle_wrong_sandbox'],
    ]
    const answers = new Set<string>()
    for (const [placeholder, note] of cases) {
      const client = await bench.tunnel('s1', 'api.good.test')
      const mark = bench.mark()
      client.write(get('api.good.test', '/v1/x', bearer(placeholder)))
      answers.add((await client.response()).raw.replaceAll(/[0-9A-Z]{26}/g, 'ID'))
      const [event] = await mark.decisions(1)
      expect(event).toMatchObject({ agent: 'a1', verdict: 'deny', reason: 'handle_unknown', note })
      expect(mark.upstream()).toBe('')
      client.destroy()
    }
    expect(answers.size).toBe(1)
    const own = await bench.tunnel('revoked', 'api.good.test')
    const mark = bench.mark()
    own.write(get('api.good.test', '/v1/x', bearer(revoked)))
    expect((await own.response()).raw.replaceAll(/[0-9A-Z]{26}/g, 'ID')).toBe([...answers][0])
    expect((await mark.decisions(1))[0]).toMatchObject({ sandbox: 'revoked', note: 'handle_revoked' })
    expect(mark.upstream()).toBe('')
    own.destroy()
  })

  it('A151: a placeholder anywhere but in its slot is refused and never swapped', async () => {
    const handle = h1()
    const requests = [
      get('api.good.test', `/v1/x?key=${handle}`),
      get('api.good.test', `/v1/x?key=${encodeURIComponent(encodeURIComponent(handle))}`),
      get('api.good.test', `/v1/${handle}`),
      get('api.good.test', `/v1/${[...handle].map((c) => `%${c.charCodeAt(0).toString(16)}`).join('')}`),
      get('api.good.test', '/v1/x', `Cookie: session=${handle}`),
      get('api.good.test', '/v1/x', `User-Agent: ${handle}`),
      get('api.good.test', '/v1/x', `Referer: https://a/${handle}`),
      get('api.good.test', '/v1/x', `Origin: ${handle}`),
      get('api.good.test', '/v1/x', `X-Request-Id: ${handle}`),
      get('api.good.test', '/v1/x', `${handle}: 1`),
      get('api.good.test', '/v1/x', `X-Api-Key: ${handle}`),
      get('api.good.test', '/v1/x', bearer(), `X-Copy: ${handle}`),
      get('api.good.test', `/v1/x?copy=${handle}`, bearer()),
    ]
    for (const request of requests) await refused('api.good.test', request, 'handle_placement')
  })

  it('A151, A178: a body is passed byte for byte, whatever placeholder it quotes', async () => {
    const client = await bench.tunnel('s1', 'api.good.test')
    const body = JSON.stringify({
      mine: h1(),
      made_up: `${h1().slice(0, -4)}zzzz`,
      prefix: h1().slice(0, 12),
    })
    const request = `POST /v1/x HTTP/1.1\r\nHost: ${bench.at('api.good.test')}\r\n${bearer()}\r\nContent-Length: ${body.length}\r\n\r\n${body}`
    const { received } = await expectAllowed(bench, client, request)
    expect(received.slice(received.indexOf('\r\n\r\n') + 4)).toBe(body)
    const free = await bench.tunnel('s1', 'free.good.test')
    const other = await expectAllowed(
      bench,
      free,
      `POST / HTTP/1.1\r\nHost: ${bench.at('free.good.test')}\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    )
    expect(other.received.slice(other.received.indexOf('\r\n\r\n') + 4)).toBe(body)
    expect(other.response.body.endsWith(body)).toBe(true)
  })

  it('A152: a slot that holds more than the placeholder alone is refused whole', async () => {
    const handle = h1()
    const values = [
      `Basic ${handle}`,
      `Bearer x${handle}`,
      `Bearer ${handle} ${handle}`,
      `Bearer ${handle},foo`,
      `Bearer "${handle}"`,
      `Bearer  ${handle}`,
      `Bearer\t${handle}`,
      handle,
      `Token ${handle}`,
      `Bearer ${handle};x`,
      `Bearer ${handle}\t`,
      basic('x', handle),
      basic(handle, ''),
    ]
    for (const value of values) {
      // A tab at the end is outer white space, which is no part of a value.
      if (value.endsWith('\t')) continue
      await refused(
        'api.good.test',
        get('api.good.test', '/v1/x', `Authorization: ${value}`),
        'handle_placement',
      )
    }
    await refused('api.good.test', get('api.good.test', '/v1/x', bearer(), bearer()), 'handle_placement')
  })

  it('A153: a placeholder that is a character off is none, and nothing a client adds shapes the value', async () => {
    const handle = h1()
    const last = handle.at(-1) ?? ''
    const otherCase = last === last.toLowerCase() ? last.toUpperCase() : last.toLowerCase()
    const flipped = handle.slice(0, -1) + (otherCase === last ? (Number(last) + 1) % 10 : otherCase)
    for (const value of [
      handle.slice(0, -1),
      `${handle}x`,
      flipped,
      `x${handle}`,
      `${handle}[0:4]`,
      `${handle}?format=raw`,
      `{{${handle}}}`,
    ]) {
      const client = await bench.tunnel('s1', 'api.good.test')
      const mark = bench.mark()
      client.write(get('api.good.test', '/v1/x', bearer(value)))
      const response = await client.response()
      expect([value, response.status]).toEqual([value, 403])
      await mark.decisions(1)
      expect(mark.upstream()).not.toContain(bench.secrets.k1)
      client.destroy()
    }
  })

  it('A157: an upstream that returns the request as JSON gives the client its own placeholder back', async () => {
    const client = await bench.tunnel('s1', 'echo.good.test')
    const request = get(
      'echo.good.test',
      '/v1/json',
      `X-Api-Key: ${bench.placeholder('echo')}`,
      'X-Other: kept',
    )
    const { response, received, event } = await expectAllowed(bench, client, request)
    expect(received).toContain(bench.secrets.k1e)
    const { headers } = JSON.parse(response.body) as { headers: string[] }
    expect(headers).toContain(`X-Api-Key: ${bench.placeholder('echo')}`)
    expect(headers).toContain('X-Other: kept')
    expect(event.redactions).toBe(1)
  })

  it('A158: methods that reflect the request are 405', async () => {
    for (const method of ['TRACE', 'TRACK', 'DEBUG']) {
      const client = await bench.tunnel('s1', 'api.good.test')
      const request = get('api.good.test', '/v1/x', bearer()).replace('GET', method)
      await expectRefusedInside(bench, client, { request, status: 405, reason: 'method_unsupported' })
      client.destroy()
    }
  })

  it('A160: a redirect of a bound upstream is not followed, and the placeholder goes nowhere else', async () => {
    const client = await bench.tunnel('s1', 'api.good.test')
    const mark = bench.mark()
    client.write(get('api.good.test', '/v1/redirect', bearer()))
    expect(await client.response()).toMatchObject({
      status: 302,
      fields: { location: 'https://evil.test/?r=1' },
    })
    await mark.decisions(1)
    expect(mark.upstream().match(/ HTTP\/1\.1\r\n/g)).toHaveLength(1)
    await expectRefused(
      bench,
      `GET https://evil.test/?r=1 HTTP/1.1\r\nHost: evil.test\r\n${bearer()}\r\n\r\n`,
      { status: 403, reason: 'host_denied' },
    )
  })

  it('A162: a credential of the client’s own at a bound upstream is refused, in every field that takes one', async () => {
    const requests = [
      get('api.good.test', '/v1/x', 'Authorization: Bearer attacker-key'),
      get('api.good.test', '/v1/x', `Authorization: ${basic('a', 'b')}`),
      get('api.good.test', '/v1/x', 'X-Api-Key: attacker-key'),
      get('api.good.test', '/v1/x', 'Cookie: session=1'),
      get('api.good.test', '/v1/x?access_token=attacker'),
      get('api.good.test', '/v1/x?a=1&API%5FKEY=attacker'),
      get('api.good.test', '/v1/x', bearer(), 'X-Api-Key: attacker-key'),
      // Gateways that put fields into environment variables read these as the same field.
      get('api.good.test', '/v1/x', bearer(), 'X_Api_Key: attacker-key'),
      get('api.good.test', '/v1/x?authorization=Bearer%20attacker'),
      get('api.good.test', '/v1/x?X-Api-Key=attacker'),
    ]
    for (const request of requests) await refused('api.good.test', request, 'foreign_credential')
    const client = await bench.tunnel('s1', 'free.good.test')
    const { received } = await expectAllowed(
      bench,
      client,
      get('free.good.test', '/', 'Authorization: Bearer own-key'),
    )
    expect(received).toContain('Authorization: Bearer own-key')
  })

  it('A166: a placeholder works for the methods, paths and port of its access only', async () => {
    await refused(
      'api.good.test',
      get('api.good.test', '/v1/x', bearer()).replace('GET', 'DELETE'),
      'method_denied',
    )
    await refused('api.good.test', get('api.good.test', '/admin', bearer()), 'path_denied')
    const other = `api.good.test:${bench.upstream.port === 65_535 ? bench.upstream.port - 1 : bench.upstream.port + 1}`
    const client = await bench.tunnel('s1', other)
    const request = `GET /v1/x HTTP/1.1\r\nHost: ${other}\r\n${bearer()}\r\n\r\n`
    await expectRefusedInside(bench, client, { request, status: 403, reason: 'handle_wrong_destination' })
    client.destroy()
  })

  it('I2, B045: a placeholder is never swapped in cleartext, nor for a Host without the tunnel', async () => {
    const host = `api.good.test:${bench.plain.port}`
    await expectRefused(bench, `GET http://${host}/v1/x HTTP/1.1\r\nHost: ${host}\r\n${bearer()}\r\n\r\n`, {
      status: 403,
      reason: 'handle_wrong_destination',
    })
    await expectRefused(
      bench,
      `GET http://198.51.100.7/ HTTP/1.1\r\nHost: api.good.test\r\n${bearer()}\r\n\r\n`,
      {
        status: 421,
        reason: 'authority_mismatch',
      },
    )
    const client = await bench.tunnel('s1', 'a.wild.test')
    await expectRefusedInside(bench, client, {
      request: get('api.good.test', '/v1/x', bearer()),
      status: 421,
      reason: 'authority_mismatch',
    })
  })

  it('A118: an absolute https URL outside a tunnel is swapped over TLS like one inside', async () => {
    const mark = bench.mark()
    const { response } = await bench.ask(
      's1',
      `GET https://${bench.at('api.good.test')}/v1/x HTTP/1.1\r\nHost: ${bench.at('api.good.test')}\r\n${bearer()}\r\n\r\n`,
    )
    expect(response.status).toBe(200)
    expect(mark.upstream()).toContain(`Bearer ${bench.secrets.k1}\r\n`)
    expect((await mark.decisions(1))[0]).toMatchObject({ agent: 'a1', access: 'api', verdict: 'allow' })
  })

  it('B041: a placeholder inside Basic credentials is swapped in its half and encoded again', async () => {
    const client = await bench.tunnel('s1', 'git.good.test')
    const handle = bench.placeholder('git')
    const { received } = await expectAllowed(
      bench,
      client,
      get('git.good.test', '/r.git/info/refs', `Authorization: ${basic('x-access-token', handle)}`),
    )
    expect(received).toContain(`Authorization: ${basic('x-access-token', bench.secrets.k1b)}\r\n`)
    for (const value of [basic(handle, ''), basic(handle, handle), `Bearer ${handle}`, `Basic ${handle}`]) {
      await refused('git.good.test', get('git.good.test', '/', `Authorization: ${value}`), 'handle_placement')
    }
    // One more character makes it another placeholder, which was never issued.
    await refused(
      'git.good.test',
      get('git.good.test', '/', `Authorization: ${basic('x', `${handle}x`)}`),
      'handle_unknown',
    )
    await refused(
      'free.good.test',
      get('free.good.test', '/', `Authorization: ${basic('x', handle)}`),
      'handle_wrong_destination',
    )
  })

  it('A177: an upstream that hangs up is not asked twice for a POST', async () => {
    const client = await bench.tunnel('s1', 'api.good.test')
    await expectAllowed(bench, client, get('api.good.test', '/v1/warm', bearer()))
    const mark = bench.mark()
    client.write(
      `POST /v1/close HTTP/1.1\r\nHost: ${bench.at('api.good.test')}\r\n${bearer()}\r\nContent-Length: 2\r\n\r\n{}`,
    )
    expect((await client.response()).status).toBe(502)
    const [event] = await mark.decisions(1)
    expect(event).toMatchObject({ agent: 'a1', access: 'api', status: 502, end: 'upstream_failed' })
    expect(mark.upstream().match(/POST \/v1\/close/g)).toHaveLength(1)
  })

  it('A180: what two sandboxes do side by side never mixes', async () => {
    const s1 = await bench.tunnel('s1', 'api.good.test')
    const s2 = await bench.tunnel('s2', 'api.good.test')
    const canary = freshSecret()
    const mark = bench.mark()
    let seen = ''
    const count = proofCount(100, 50_000)
    for (let i = 0; i < count; i++) {
      s1.write(get('api.good.test', `/v1/${canary}`, bearer()))
      s2.write(get('api.good.test', `/v1/own${i}`))
      const [mine, theirs] = await Promise.all([s1.response(), s2.response()])
      expect([mine.status, theirs.status]).toEqual([200, 200])
      expect(theirs.body).toMatch(new RegExp(`^GET /v1/own${i} `))
      seen += theirs.raw
    }
    for (const secret of [bench.secrets.k1, canary, h1()]) {
      for (let at = 0; at + 8 <= secret.length; at++) expect(seen).not.toContain(secret.slice(at, at + 8))
    }
    const events = await mark.decisions(2 * count)
    expect(events.filter(({ agent, path }) => agent === 'a2' && path?.includes('own') === true)).toHaveLength(
      count,
    )
    expect(events.filter(({ agent, access }) => agent === 'a1' && access === 'api')).toHaveLength(count)
  })
})

describe('credentials that cannot be sent', () => {
  let bench: AttackBench
  const names = Object.keys(unfit)

  beforeAll(async () => {
    bench = await attackBench({
      env: Object.fromEntries(
        Object.entries(unfit).map(([name, value]) => [`BAD_${name.toUpperCase()}`, value]),
      ),
      edit: (yaml, { tls }) =>
        yaml
          .replace(
            'credentials:\n',
            `credentials:\n${[...names, 'unset'].map((name) => `  bad-${name}: { issuer: static, value: { env: BAD_${name.toUpperCase()} } }\n`).join('')}`,
          )
          .replace(
            'access:\n',
            `access:\n${[...names, 'unset'].map((name) => `  bad-${name}: { credential: bad-${name}, destinations: [{ host: ${name}.good.test, port: ${tls}, addresses: [127.0.0.0/8] }] }\n`).join('')}`,
          )
          .replace(
            'access: [api, echo, git]',
            `access: [api, echo, git, ${[...names, 'unset'].map((name) => `bad-${name}`).join(', ')}]`,
          ),
    })
  })
  afterEach(() => bench.standing())
  afterAll(() => bench.stop())

  for (const name of [...names, 'unset']) {
    it(`A155, A220: a value that is ${name} leaves its handle dead, loudly, and nothing is sent`, async () => {
      const host = bench.at(`${name}.good.test`)
      const client = await bench.tunnel('s1', `${name}.good.test`)
      const mark = bench.mark()
      client.write(
        `GET / HTTP/1.1\r\nHost: ${host}\r\nAuthorization: Bearer ${bench.placeholder(`bad-${name}`)}\r\n\r\n`,
      )
      const response = await client.response()
      expect(response.statusLine).toMatch(
        /^HTTP\/1\.1 (502 octroi credential_invalid|503 octroi issuer_unavailable) /,
      )
      expect(mark.upstream()).toBe('')
      expect((await mark.decisions(1))[0]).toMatchObject({
        agent: 'a1',
        verdict: 'deny',
        access: `bad-${name}`,
      })
      // A tab may stand in other slots than this one, so only the swap tells.
      if (name !== 'tab') expect(bench.broker.log.some((line) => line.includes(`bad-${name}`))).toBe(true)
      const value = unfit[name]
      if (value !== undefined && value.length > 12 && name !== 'common') {
        expect(bench.broker.log.join('')).not.toContain(JSON.stringify(value).slice(1, 13))
        expect(response.raw).not.toContain(value.slice(0, 12))
      }
    })
  }
})
