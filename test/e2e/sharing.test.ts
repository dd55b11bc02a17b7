import { networkInterfaces } from 'node:os'
import type { Socket } from 'node:net'
import {
  brotliCompressSync,
  deflateRawSync,
  deflateSync,
  gunzipSync,
  gzipSync,
  zstdCompressSync,
} from 'node:zlib'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { queryEvents } from '../../src/audit/query.ts'
import { attackBench, freshSecret, until, type AttackBench } from '../helpers/attack-bench.ts'
import { expectRefusedInside } from '../helpers/attack-cases.ts'
import { findLeaks } from '../helpers/leak-scanner.ts'
import { ok } from '../helpers/origin.ts'
import type { RawResponse } from '../helpers/raw-client.ts'

const withinMs = 10_000

const encoders: Readonly<Record<string, (bytes: Buffer) => Buffer>> = {
  identity: (bytes) => bytes,
  gzip: (bytes) => gzipSync(bytes),
  deflate: (bytes) => deflateSync(bytes),
  raw: (bytes) => deflateRawSync(bytes),
  br: (bytes) => brotliCompressSync(bytes),
  zstd: (bytes) => zstdCompressSync(bytes),
}

/** What a client asks of the stored text: how it is coded, and what Content-Encoding says of it. */
interface Stored {
  readonly coded: readonly string[]
  readonly declared: string
}

/** An upstream that keeps what it was sent and gives it back, coded as asked and in ranges. */
function bin(): { answer(request: { head: string; body: string; socket: Socket }): void; text: string } {
  const kept = {
    text: '',
    answer({ head, body, socket }: { head: string; body: string; socket: Socket }): void {
      const url = new URL(head.split(' ')[1] ?? '/', 'http://bin.test')
      if (url.pathname.endsWith('/store')) {
        kept.text = url.searchParams.has('field')
          ? (/authorization: Bearer (.*)\r\n/i.exec(head)?.[1] ?? '')
          : `${head}${body}`
        return void socket.write(ok('stored'))
      }
      const coded = url.searchParams.get('coded')?.split(',') ?? []
      const bytes = coded.reduce<Buffer>(
        (text, name) => encoders[name]?.(text) ?? text,
        Buffer.from(kept.text, 'latin1'),
      )
      const declared = url.searchParams.get('declared') ?? ''
      const fields = [
        ...(declared === '' ? [] : [`Content-Encoding: ${declared}`]),
        'ETag: "a"',
        'Accept-Ranges: bytes',
      ]
      const ranges = /\r\nrange: bytes=(.*)\r\n/i.exec(head)?.[1]?.split(',') ?? []
      const parts = ranges.map((range) => partOf(bytes, range.trim()))
      const [only] = parts
      if (only === undefined) socket.write(ok(bytes.toString('latin1'), fields), 'latin1')
      else if (parts.length === 1) socket.write(partial(only.text, [...fields, only.range]), 'latin1')
      else {
        const text = parts.map((part) => `--b\r\n${part.range}\r\n\r\n${part.text}\r\n`).join('')
        socket.write(
          partial(`${text}--b--\r\n`, [...fields, 'Content-Type: multipart/byteranges; boundary=b']),
          'latin1',
        )
      }
    },
  }
  return kept
}

const partial = (body: string, fields: readonly string[]): string =>
  ok(body, fields).replace(' 200 OK', ' 206 Partial Content')

function partOf(bytes: Buffer, range: string): { text: string; range: string } {
  const [first = '', last = ''] = range.split('-')
  const from = first === '' ? bytes.length - Number(last) : Number(first)
  const to = first === '' || last === '' ? bytes.length - 1 : Math.min(Number(last), bytes.length - 1)
  const text = bytes.toString('latin1', from, to + 1)
  return { text, range: `Content-Range: bytes ${from}-${to}/${bytes.length}` }
}

describe('what one call stores and another reads', () => {
  let bench: AttackBench
  const store = bin()

  beforeAll(async () => {
    bench = await attackBench({
      onRequest: store.answer,
      sandboxes: `
  far:
    agent: far
    tenant: elsewhere
    access: [elsewhere]
    allow: [{ host: free.good.test, ports: [TLS], addresses: [127.0.0.0/8] }]
`,
      edit: (yaml, { tls }) =>
        yaml
          .replace('[TLS]', `[${tls}]`)
          .replace(
            'access:\n  api:',
            `access:\n  elsewhere:\n    credential: k2\n    destinations: [{ host: other.good.test, port: ${tls}, addresses: [127.0.0.0/8] }]\n  api:`,
          ),
    })
  })
  afterEach(() => bench.standing())
  afterAll(() => bench.stop())

  const ask = async (sandbox: string, host: string, line: string, fields = ''): Promise<RawResponse> => {
    const client = await bench.tunnel(sandbox, host)
    client.write(`${line} HTTP/1.1\r\nHost: ${bench.at(host)}\r\n${fields}\r\n`)
    try {
      return await client.response()
    } finally {
      client.destroy()
    }
  }
  const bearer = (): string => `Authorization: Bearer ${bench.placeholder('api')}\r\n`
  const swapAndStore = (query = ''): Promise<RawResponse> =>
    ask('s1', 'api.good.test', `POST /v1/store${query}`, `${bearer()}Content-Length: 0\r\n`)
  const url = ({ coded, declared }: Stored): string =>
    `/v1/read?coded=${coded.join(',')}&declared=${encodeURIComponent(declared)}`
  const clean = (text: string): void =>
    expect(findLeaks(Buffer.from(text, 'latin1'), { value: bench.secrets.k1 })).toEqual([])

  /** Who can read it back at a destination of an access: its owner without the placeholder, and a neighbour. */
  const readers = ['s1', 's2']

  it('a reflection stored through a swapped call is replaced for whoever reads it, in ranges and parts', async () => {
    await swapAndStore()
    expect(store.text).toContain(bench.secrets.k1)
    const at = store.text.indexOf(bench.secrets.k1)
    const asked = [
      `Range: bytes=${at}-${at + 10}\r\n`,
      `Range: bytes=${at + 11}-${at + 21}\r\nIf-Range: "a"\r\n`,
      `Range: bytes=${at}-${at + 5},${at + 6}-${at + 11},${at + 12}-\r\n`,
      'Range: bytes=-9\r\n',
    ]
    for (const sandbox of readers) {
      for (const range of asked) {
        const mark = bench.mark()
        const response = await ask(sandbox, 'api.good.test', 'GET /v1/read', range)
        expect(mark.upstream()).not.toMatch(/\r\n(range|if-range):/i)
        expect(response).toMatchObject({ status: 200 })
        clean(response.raw)
        const expected = sandbox === 's1' ? bench.placeholder('api') : '[octroi:redacted]'
        expect(response.body).toContain(`Bearer ${expected}\r\n`)
      }
    }
  })

  const codings: readonly (Stored & { readonly status: number })[] = [
    { coded: ['identity'], declared: 'identity', status: 200 },
    { coded: ['gzip'], declared: 'gzip', status: 200 },
    { coded: ['gzip', 'gzip'], declared: 'gzip, gzip', status: 200 },
    { coded: ['raw'], declared: 'deflate', status: 200 },
    { coded: ['br'], declared: 'br', status: 200 },
    { coded: ['zstd'], declared: 'zstd', status: 200 },
    { coded: ['br', 'gzip'], declared: 'br, gzip', status: 200 },
    { coded: ['br'], declared: 'gzip', status: 502 },
    { coded: ['zstd'], declared: 'br', status: 502 },
    { coded: [''], declared: 'gzip', status: 502 },
    { coded: ['gzip'], declared: 'x-unknown', status: 502 },
    { coded: ['gzip'], declared: 'gzip, aws-chunked', status: 502 },
  ]

  it('a stored reflection is replaced in every declared coding, and what is declared wrongly is not passed on', async () => {
    await swapAndStore()
    for (const sandbox of readers) {
      for (const { status, ...stored } of codings) {
        const response = await ask(sandbox, 'api.good.test', `GET ${url(stored)}`)
        expect([stored, response.status]).toEqual([stored, status])
        clean(response.raw)
      }
    }
  })

  it('where no access names the host a stored reflection ends the exchange, in every declared coding', async () => {
    await swapAndStore()
    for (const { status, ...stored } of codings) {
      const client = await bench.tunnel('s1', 'free.good.test')
      client.write(
        `GET ${url(stored)} HTTP/1.1\r\nHost: ${bench.at('free.good.test')}\r\nConnection: close\r\n\r\n`,
      )
      await client.closed(withinMs)
      // Decoding takes a moment, in which the head may have gone: then nothing follows it.
      const reason =
        status === 200 ? 'credential_in_response' : '(unreadable_encoding|credential_in_response)'
      expect([stored, client.text]).toEqual([
        stored,
        expect.stringMatching(new RegExp(`^HTTP/1\\.1 (502 octroi ${reason} |200 OK\r\n[^]*\r\n\r\n$)`)),
      ])
      clean(client.text)
      client.destroy()
    }
  })

  it('where no access names the host a value cannot be read in parts that lie within it', async () => {
    await swapAndStore('?field')
    const { k1 } = bench.secrets
    expect(store.text).toBe(k1)
    for (const size of [1, 4, 11]) {
      let read = ''
      for (let at = 1; at + size <= k1.length; at += size) {
        const client = await bench.tunnel('s1', 'free.good.test')
        client.write(
          `GET /v1/read HTTP/1.1\r\nHost: ${bench.at('free.good.test')}\r\nRange: bytes=${at}-${at + size - 1}\r\nConnection: close\r\n\r\n`,
        )
        await client.closed(withinMs)
        const [head = '', body = ''] = client.text.split('\r\n\r\n')
        if (head.startsWith('HTTP/1.1 20')) read += body
        client.destroy()
      }
      expect([size, read]).toEqual([size, ''])
    }
    const many = await ask('s1', 'free.good.test', 'GET /v1/read', 'Range: bytes=0-4,5-9,10-14\r\n')
    expect(many.statusLine).toMatch(/^HTTP\/1\.1 502 octroi credential_in_response /)
  })

  it('a part that ends in a value, or begins in one, shows at most eleven characters of it', async () => {
    await swapAndStore()
    const { k1 } = bench.secrets
    const at = store.text.indexOf(k1)
    const range = async (from: number, to: number): Promise<RawResponse> =>
      ask('s1', 'free.good.test', 'GET /v1/read', `Range: bytes=${from}-${to}\r\n`)
    expect(await range(0, at + 10)).toMatchObject({ status: 206 })
    expect(await range(at + k1.length - 11, store.text.length - 1)).toMatchObject({ status: 206 })
    expect(await range(0, at + 11)).toMatchObject({ status: 502 })
    expect(await range(at + k1.length - 12, store.text.length - 1)).toMatchObject({ status: 502 })
  })

  it('parts of other content pass where no access names the host, also short ones', async () => {
    store.text = `PK\x05\x06${'some content '.repeat(100)}PAR1`
    for (const [range, expected] of [
      ['bytes=-8', 'ent PAR1'],
      ['bytes=0-0', 'P'],
      ['bytes=4-7', 'some'],
      ['bytes=0-3', 'PK\x05\x06'],
    ] as const) {
      const response = await ask('s1', 'free.good.test', 'GET /v1/read', `Range: ${range}\r\n`)
      expect([range, response.status, response.body]).toEqual([range, 206, expected])
      expect(response.fields['content-range']).toBeDefined()
    }
  })

  it('known miss: a compressed file that no Content-Encoding declares is passed as the file it is', async () => {
    await swapAndStore()
    const response = await ask('s1', 'api.good.test', `GET ${url({ coded: ['gzip'], declared: '' })}`)
    expect(response.status).toBe(200)
    expect(gunzipSync(Buffer.from(response.body, 'latin1')).toString('latin1')).toContain(bench.secrets.k1)
    const inner = await ask(
      's1',
      'api.good.test',
      `GET ${url({ coded: ['gzip', 'gzip'], declared: 'gzip' })}`,
    )
    expect(gunzipSync(Buffer.from(inner.body, 'latin1')).toString('latin1')).toContain(bench.secrets.k1)
  })

  it('known miss: a sandbox of another tenant reads what an upstream shows it, for its tenant’s values alone are looked for', async () => {
    await swapAndStore()
    const far = await bench.tunnel('far', 'free.good.test')
    const plain = far.socket.listenerCount('data')
    expect(plain).toBeGreaterThan(0)
    // The bench reads what clients receive and would call this a leak, which it is: only the length is looked at.
    far.socket.removeAllListeners('data')
    let body = ''
    far.socket.on('data', (chunk: Buffer) => (body += chunk.toString('latin1')))
    far.write(`GET /v1/read HTTP/1.1\r\nHost: ${bench.at('free.good.test')}\r\nConnection: close\r\n\r\n`)
    await until(() => body.includes(bench.secrets.k1), 'value of the other tenant')
    far.destroy()
  })
})

describe('what an access reaches beyond its secret', () => {
  let bench: AttackBench
  const minted = `mint-${freshSecret()}`
  let streams = 0

  beforeAll(async () => {
    bench = await attackBench({
      onRequest: ({ head, socket }) => {
        const path = head.split(' ')[1] ?? ''
        if (path.startsWith('/v1/token')) return void socket.write(ok(JSON.stringify({ token: minted })))
        if (path.startsWith('/v1/presign'))
          return void socket.write(ok(JSON.stringify({ url: `https://free.good.test/o?X-Sig=${minted}` })))
        if (!path.startsWith('/v1/stream')) return void socket.write(ok(head))
        socket.write(
          'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n',
        )
        const timer = setInterval(() => socket.write('6\r\n: up\n\n\r\n'), 10)
        streams++
        socket.on('close', () => {
          clearInterval(timer)
          streams--
        })
      },
      sandboxes: `
templates:
  counted:
    allow: [{ host: free.good.test, ports: [TLS], addresses: [127.0.0.0/8] }]
    limits: { requests_per_minute: 5, tunnels: 2 }
`,
      edit: (yaml, { tls }) => yaml.replace('[TLS]', `[${tls}]`),
    })
  })
  afterEach(() => bench.standing())
  afterAll(() => bench.stop())

  const get = (host: string, path: string, ...fields: string[]): string =>
    `GET ${path} HTTP/1.1\r\nHost: ${bench.at(host)}\r\n${fields.map((field) => `${field}\r\n`).join('')}\r\n`
  const bearer = (): string => `Authorization: Bearer ${bench.placeholder('api')}`
  const asked = async (sandbox: string, host: string, request: string): Promise<RawResponse> => {
    const client = await bench.tunnel(sandbox, host)
    client.write(request)
    const response = await client.response()
    client.destroy()
    return response
  }

  it('a token or link that a permitted call mints reaches the sandbox, and the token is refused as a credential on the same host', async () => {
    for (const path of ['/v1/token', '/v1/presign']) {
      const made = await asked('s1', 'api.good.test', get('api.good.test', path, bearer()))
      expect(made.body).toContain(minted)
    }
    const client = await bench.tunnel('s1', 'api.good.test')
    await expectRefusedInside(bench, client, {
      request: get('api.good.test', '/v1/x', `Authorization: Bearer ${minted}`),
      status: 403,
      reason: 'foreign_credential',
    })
    client.destroy()
    // Elsewhere it is a credential of the client's own.
    const elsewhere = await asked(
      's1',
      'free.good.test',
      get('free.good.test', '/o', `Authorization: Bearer ${minted}`),
    )
    expect(elsewhere.body).toContain(minted)
  })

  it('a token endpoint that is denied stays denied for a placeholder, in every case and encoding of its path', async () => {
    const before = await bench.config()
    const denied = `deny: [{ host: api.good.test, paths: ["/v1/token/**", "/v1/presign/**"], ports: [${bench.upstream.port}] }, `
    await bench.broker.reconfigure(before.replace('deny: [', denied))
    const spellings = [
      ...['/v1/token', '/v1/token/', '/v1/TOKEN', '/V1/token', '/v1/%74oken', '/v1/%54OKEN', '/v1/%2574oken'],
      ...[
        '//v1/token',
        '/v1//token',
        '/v1/./token',
        '/v1/x/../token',
        '/v1/token;a=b',
        '/v1/token%2f',
        '/v1/tok%65n?x',
      ],
      ...['/v1/presign', '/v1/Presign/x', '/v1/%70resign', '/v1/presign%00', '/v1\\presign'],
    ]
    const mark = bench.mark()
    for (const path of spellings) {
      const { status } = await asked('s1', 'api.good.test', get('api.good.test', path, bearer()))
      expect([path, [400, 403].includes(status)]).toEqual([path, true])
    }
    expect(mark.upstream()).toBe('')
    await mark.decisions(spellings.length)
    await bench.broker.reconfigure(before)
  })

  it('a swapped stream and a swapped upload that a tightened access no longer covers end, and nothing more goes up', async () => {
    const before = await bench.config()
    const stream = await bench.tunnel('s1', 'api.good.test')
    stream.write(get('api.good.test', '/v1/stream', bearer()))
    await stream.read((text) => text.includes(': up'))
    const upload = await bench.tunnel('s1', 'api.good.test')
    upload.write(
      `POST /v1/upload HTTP/1.1\r\nHost: ${bench.at('api.good.test')}\r\n${bearer()}\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n`,
    )
    const mark = bench.mark()
    await until(() => bench.upstream.received.some((text) => text.includes('first')), 'upload upstream')
    await bench.broker.reconfigure(before.replace('paths: ["/v1/**"], addr', 'paths: ["/v1/kept/**"], addr'))
    await Promise.all([
      stream.closed(withinMs),
      upload.read((text) => upload.isClosed || text.includes(' 403 octroi revoked '), withinMs),
    ])
    expect(stream.text.endsWith('0\r\n\r\n')).toBe(false)
    upload.write('6\r\nsecond\r\n0\r\n\r\n')
    const ended = (): unknown[] =>
      queryEvents(bench.broker.stateFolder, { sandbox: 's1' }).flatMap(({ path, end }) =>
        end === 'revoked' ? [path] : [],
      )
    await until(() => ended().length === 2, 'two revoked exchanges', ended)
    expect(ended().sort()).toEqual(['/v1/stream', '/v1/upload'])
    expect(mark.upstream()).not.toContain('second')
    await until(() => streams === 0, 'stream closed upstream')
    const again = await bench.tunnel('s1', 'api.good.test')
    await expectRefusedInside(bench, again, {
      request: get('api.good.test', '/v1/stream', bearer()),
      status: 403,
      reason: 'path_denied',
    })
    await bench.broker.reconfigure(before)
    for (const one of [stream, upload, again]) one.destroy()
  })

  it('a sandbox that is destroyed and made again has the budget that the old one left, also under another name', async () => {
    const made = async (name: string, agent: string): Promise<void> => {
      const { status, answer } = await bench.admin('POST', '/v1/sandboxes', {
        template: 'counted',
        name,
        agent,
      })
      expect(status).toBe(201)
      bench.guard(`password of ${name} ${agent}`, String(answer['token']))
    }
    const request = (): string => get('free.good.test', '/')
    await made('thrifty', 'spender')
    for (let i = 0; i < 5; i++) expect((await asked('thrifty', 'free.good.test', request())).status).toBe(200)
    expect((await asked('thrifty', 'free.good.test', request())).status).toBe(429)
    for (const name of ['thrifty', 'another']) {
      expect((await bench.admin('DELETE', '/v1/sandboxes/thrifty')).status).toBe(200)
      await made(name, 'spender')
      expect([name, (await asked(name, 'free.good.test', request())).status]).toEqual([name, 429])
      if (name === 'another') await bench.admin('DELETE', '/v1/sandboxes/another')
    }
    // Another agent has a budget of its own.
    await made('other-agent', 'saver')
    expect((await asked('other-agent', 'free.good.test', request())).status).toBe(200)
    // A tunnel that is still open counts for the sandbox made next.
    const held = await Promise.all([1, 2].map(() => bench.tunnel('other-agent', 'free.good.test')))
    const third = await bench.connect('other-agent', bench.at('free.good.test'))
    expect(third.response.status).toBe(429)
    for (const one of [...held, third.client]) one.destroy()
    await bench.admin('DELETE', '/v1/sandboxes/other-agent')
  })

  it('a public name of the broker is no destination, whether it leads to this machine or is listed in self', async () => {
    const before = await bench.config()
    const { port, adminPort } = bench.broker
    const lan = Object.values(networkInterfaces())
      .flatMap((entries) => entries ?? [])
      .find(({ family, internal }) => family === 'IPv4' && !internal)?.address
    const rule = (more: string): string =>
      `- { host: broker.wild.test, ports: [${port}, ${adminPort}, 443], addresses: [127.0.0.0/8, 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16] }${more}\n      - {`
    const opened = before.replace('allow:\n      - {', `allow:\n      ${rule('')}`)
    await bench.broker.reconfigure(opened)
    for (const address of ['127.0.0.1', ...(lan === undefined ? [] : [lan])]) {
      bench.names.set('broker.wild.test', () => [address])
      for (const at of [port, adminPort]) {
        const mark = bench.mark()
        const { client, response } = await bench.connect('s1', `broker.wild.test:${at}`)
        expect([address, response.statusLine]).toEqual([
          address,
          expect.stringMatching(/ 403 octroi (self|ip_denied) /),
        ])
        client.destroy()
        expect(mark.dials()).toEqual([])
      }
    }
    // Behind a load balancer or a port mapping nothing tells that the address is the broker's own: `self` does.
    bench.names.set('broker.wild.test', () => ['203.0.113.7'])
    for (const self of ['[broker.wild.test]', '[203.0.113.7]']) {
      await bench.broker.reconfigure(`${opened}\nself: ${self}\n`)
      const mark = bench.mark()
      const { client, response } = await bench.connect('s1', 'broker.wild.test:443')
      expect([self, response.statusLine]).toEqual([self, expect.stringMatching(/ 403 octroi self /)])
      client.destroy()
      expect(mark.dials()).toEqual([])
    }
    await bench.broker.reconfigure(before)
  })
})
