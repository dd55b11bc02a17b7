import {
  brotliCompressSync,
  constants,
  deflateRawSync,
  deflateSync,
  gzipSync,
  zstdCompressSync,
} from 'node:zlib'
import type { Socket } from 'node:net'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { attackBench, freshSecret, until, type AttackBench, type Mark } from '../helpers/attack-bench.ts'
import { findLeaks } from '../helpers/leak-scanner.ts'
import { ok } from '../helpers/origin.ts'
import { proofCount, runSeed } from '../helpers/proof-count.ts'
import type { RawClient, RawResponse } from '../helpers/raw-client.ts'
import { secretForms } from '../helpers/secret-forms.ts'
import { seeded } from '../helpers/seeded.ts'

const seed = runSeed()

type Answer = (socket: Socket, head: string) => void

/** A response of bytes, with a length. */
const reply = (body: string | Buffer, ...fields: string[]): Answer => {
  const text = typeof body === 'string' ? body : body.toString('latin1')
  return (socket) => void socket.write(ok(text, fields), 'latin1')
}

/** A chunked response whose pieces are written one after the other, `ms` apart. */
const pieces = (parts: readonly (string | Buffer)[], ms: number, ...fields: string[]): Answer => {
  return (socket) => {
    socket.write(
      `HTTP/1.1 200 OK\r\n${fields.map((field) => `${field}\r\n`).join('')}Transfer-Encoding: chunked\r\n\r\n`,
    )
    const left = [...parts]
    const next = (): void => {
      const part = left.shift()
      if (part === undefined) return void socket.write('0\r\n\r\n')
      const bytes = Buffer.from(part as string, 'latin1')
      if (bytes.length > 0)
        socket.write(
          Buffer.concat([Buffer.from(`${bytes.length.toString(16)}\r\n`), bytes, Buffer.from('\r\n')]),
        )
      if (ms === 0) setImmediate(next)
      else setTimeout(next, ms)
    }
    next()
  }
}

describe('what comes back', () => {
  let bench: AttackBench
  let k1: string
  let client: RawClient
  const answers = new Map<string, Answer>()
  let requests = 0

  beforeAll(async () => {
    bench = await attackBench({
      // The cases have upstreams repeat more parts than a guesser is allowed.
      limits: { guessedParts: Infinity },
      onRequest: ({ head, socket }) => {
        const path = head.split(' ')[1]?.split('?')[0] ?? ''
        const found = answers.get(path)
        if (found === undefined) socket.write(ok('nothing'))
        else found(socket, head)
      },
    })
    k1 = bench.secrets.k1
  })
  afterEach(() => bench.standing())
  afterAll(() => bench.stop())

  const marker = (): string => bench.placeholder('api')

  /** One swapped request whose answer is `answer`; the connection is made anew when the last one ended. */
  const fetch = async (
    answer: Answer,
    fields = '',
  ): Promise<{ response: RawResponse; mark: Mark; head: string }> => {
    const path = `/v1/r${requests++}`
    answers.set(path, answer)
    if (client === undefined || client.isClosed) client = await bench.tunnel('s1', 'api.good.test')
    const mark = bench.mark()
    client.write(
      `GET ${path} HTTP/1.1\r\nHost: ${bench.at('api.good.test')}\r\nAuthorization: Bearer ${marker()}\r\n${fields}\r\n`,
    )
    const response = await client.response()
    return { response, mark, head: mark.upstream() }
  }

  /** The same at a host that no access names. */
  const fetchFree = async (
    answer: Answer,
    fields = '',
  ): Promise<{ text: string; mark: Mark; client: RawClient }> => {
    const path = `/f${requests++}`
    answers.set(path, answer)
    const free = await bench.tunnel('s1', 'free.good.test')
    const mark = bench.mark()
    free.write(
      `GET ${path} HTTP/1.1\r\nHost: ${bench.at('free.good.test')}\r\n${fields}Connection: close\r\n\r\n`,
    )
    await free.closed()
    return { text: free.text, mark, client: free }
  }

  const clean = (text: string, secret = k1): void =>
    expect(findLeaks(Buffer.from(text, 'latin1'), { value: secret })).toEqual([])

  it('A181: every copy is replaced and the rest of the body is as it was', async () => {
    const filler = 'line of text without a secret\n'
    const bodies = [k1, `${k1}end`, `start${k1}`, `a${k1}b`, `${`${filler}${k1}`.repeat(1_000)}${filler}`]
    for (const body of bodies) {
      const { response, mark } = await fetch(reply(body))
      expect(response.body).toBe(body.replaceAll(k1, marker()))
      if (response.fields['content-length'] !== undefined)
        expect(Number(response.fields['content-length'])).toBe(response.body.length)
      const [event] = await mark.decisions(1)
      expect(event).toMatchObject({
        agent: 'a1',
        access: 'api',
        verdict: 'allow',
        redactions: body.split(k1).length - 1,
      })
    }
  })

  it('A182, B049: a value cut at any offset between two writes is found, in a stream and in a held body', async () => {
    for (const [ms, type] of [
      [0, 'text/event-stream'],
      [5, 'text/event-stream'],
      [0, 'text/plain'],
    ] as const) {
      for (let cut = 1; cut < k1.length; cut++) {
        const { response } = await fetch(
          pieces([`data: ${k1.slice(0, cut)}`, `${k1.slice(cut)}\n\n`], ms, `Content-Type: ${type}`),
        )
        expect([ms, cut, response.body]).toEqual([ms, cut, `data: ${marker()}\n\n`])
      }
    }
    const third = Math.floor(k1.length / 3)
    const { response } = await fetch(
      pieces(
        [k1.slice(0, third), k1.slice(third, 2 * third), k1.slice(2 * third)],
        60,
        'Content-Type: text/plain',
      ),
    )
    expect(response.body).toBe(marker())
  })

  it('B049: a beginning that never becomes the value is delivered unchanged', async () => {
    const { response } = await fetch(
      pieces(
        ['data: ', `${k1.slice(0, 11)}`, '-and no more\n\n', k1.slice(0, 8)],
        20,
        'Content-Type: text/event-stream',
      ),
    )
    expect(response.body).toBe(`data: ${k1.slice(0, 11)}-and no more\n\n${k1.slice(0, 8)}`)
  })

  const codings: readonly (readonly [string, (bytes: Buffer) => Buffer])[] = [
    ['gzip', (bytes) => gzipSync(bytes)],
    ['x-gzip', (bytes) => gzipSync(bytes)],
    ['deflate', (bytes) => deflateSync(bytes)],
    ['deflate', (bytes) => deflateRawSync(bytes)],
    ['br', (bytes) => brotliCompressSync(bytes)],
    ['zstd', (bytes) => zstdCompressSync(bytes)],
    ['gzip, br', (bytes) => brotliCompressSync(gzipSync(bytes))],
  ]

  it('A184, B051: a value in a coded body is found, and what the client gets is readable', async () => {
    for (const [name, encode] of codings) {
      const body = `before ${k1} after`
      const { response } = await fetch(reply(encode(Buffer.from(body)), `Content-Encoding: ${name}`))
      expect([name, response.body]).toEqual([name, body.replace(k1, marker())])
      expect(response.fields['content-encoding']).toBeUndefined()
    }
  })

  it('A187, B051: what cannot be decoded to its end is 502 or a cut connection, never a silent end', async () => {
    const whole = gzipSync(Buffer.from(`text ${k1} text`))
    const named = Buffer.concat([
      Buffer.from([0x1f, 0x8b, 8, 0x18, 0, 0, 0, 0, 0, 3]),
      Buffer.from(`${k1}\0${k1}\0`),
      whole.subarray(10),
    ])
    const cases: readonly (readonly [string, Buffer, string])[] = [
      ['truncated', whole.subarray(0, -9), 'gzip'],
      ['trailing bytes', Buffer.concat([whole, Buffer.from(k1)]), 'gzip'],
      ['unknown', Buffer.from(k1), 'xyz'],
      ['no gzip at all', Buffer.from(`${k1}${k1}`), 'gzip'],
      ['too deep', gzipSync(gzipSync(gzipSync(whole))), 'gzip, gzip, gzip, gzip'],
    ]
    for (const [what, bytes, coding] of cases) {
      const { response, mark } = await fetch(reply(bytes, `Content-Encoding: ${coding}`))
      expect([what, response.statusLine]).toEqual([
        what,
        expect.stringMatching(/^HTTP\/1\.1 502 octroi (unreadable_encoding|bomb) /),
      ])
      clean(response.raw)
      expect((await mark.decisions(1))[0]).toMatchObject({ agent: 'a1', verdict: 'deny', status: 502 })
    }
    for (const bytes of [
      named,
      Buffer.concat([gzipSync(Buffer.from(k1)), gzipSync(Buffer.from(`x${k1}`))]),
    ]) {
      const { response } = await fetch(reply(bytes, 'Content-Encoding: gzip'))
      clean(response.raw)
      expect([200, 502]).toContain(response.status)
    }
  })

  it('A188: an upstream is offered only codings that are decoded here', async () => {
    const offers = 'Accept-Encoding: dcb, dcz, zstd, xyz, *\r\nTE: gzip, trailers\r\n'
    const bound = await fetch(reply('x'), offers)
    expect(bound.head).toMatch(/\r\naccept-encoding: identity\r\n/i)
    expect(bound.head).not.toMatch(/\r\nte:/i)
    const { mark } = await fetchFree(reply('x'), offers)
    expect(mark.upstream()).toMatch(/\r\nAccept-Encoding: zstd\r\n/)
    expect(mark.upstream()).not.toMatch(/dcb|dcz|xyz|\*|\r\nte:/i)
  })

  it(`A189, A191, A192, A193, A197: the value is found in every guaranteed form (OCTROI_SEED=${seed})`, async () => {
    const random = seeded(seed)
    for (const form of secretForms.filter(({ isGuaranteed }) => isGuaranteed)) {
      const { response } = await fetch(reply(`{"before":1} ${form.render(k1, random)} {"after":2}`))
      expect([form.name, findLeaks(Buffer.from(response.body, 'latin1'), { value: k1 })]).toEqual([
        form.name,
        [],
      ])
      expect([form.name, response.body]).toEqual([
        form.name,
        expect.stringMatching(/^\{"before":1\}[\s\S]*\{"after":2\}$/),
      ])
    }
  })

  it('A202: a client cannot ask for the value in parts', async () => {
    const fields =
      'Range: bytes=0-9\r\nIf-Range: "a"\r\nIf-None-Match: "a"\r\nIf-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n'
    const { head, response } = await fetch(reply(k1, 'ETag: "a"', 'Accept-Ranges: bytes'), fields)
    expect(head).not.toMatch(/\r\n(range|if-)/i)
    expect(response.body).toBe(marker())
    expect(response.fields['accept-ranges']).toBeUndefined()
    expect(response.fields['etag']).toBeUndefined()
  })

  it('A204: a part of the value of twelve characters or more is taken out', async () => {
    const most = Math.ceil(k1.length * 0.6)
    const parts = [
      k1.slice(0, -4),
      k1.slice(0, most),
      k1.slice(4),
      `${k1.slice(0, 14)}****${k1.slice(-14)}`,
      k1.slice(3, 15),
    ]
    const encode: readonly ((text: string) => string)[] = [
      (text) => text,
      (text) => Buffer.from(text).toString('base64'),
      (text) => [...text].map((c) => `%${c.charCodeAt(0).toString(16)}`).join(''),
      (text) => [...text].map((c) => `\\u00${c.charCodeAt(0).toString(16)}`).join(''),
    ]
    for (const part of parts) {
      for (const render of encode) {
        const { response } = await fetch(reply(`[${render(part)}]`))
        clean(response.body)
      }
    }
  })

  it('A205: no exact length of a body that depends on the value is told', async () => {
    const { response } = await fetch(reply(`pad ${k1}`, 'Content-MD5: x', 'Digest: x'))
    expect(Number(response.fields['content-length'])).toBe(response.body.length)
    expect(response.fields['content-md5'] ?? response.fields['digest']).toBeUndefined()
    answers.set(
      '/length',
      (socket) => void socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${k1.length}\r\n\r\n`),
    )
    const echo = await bench.tunnel('s1', 'echo.good.test')
    const mark = bench.mark()
    echo.write(
      `HEAD /length HTTP/1.1\r\nHost: ${bench.at('echo.good.test')}\r\nX-Api-Key: ${bench.placeholder('echo')}\r\n\r\n`,
    )
    const head = await echo.read((text) => text.endsWith('\r\n\r\n'))
    expect(head).toMatch(/^HTTP\/1\.1 200 OK\r\n/)
    expect(head).not.toMatch(/content-length/i)
    expect((await mark.decisions(1))[0]).toMatchObject({ agent: 'a1', access: 'echo', status: 200 })
    echo.destroy()
  })

  it('the value is taken out of field values, field names, the status text and trailers', async () => {
    const { response } = await fetch(
      (socket) =>
        void socket.write(
          `HTTP/1.1 200 Fine ${k1}\r\nX-Echo: ${k1}\r\nX-${k1}: name\r\nSet-Cookie: a=${Buffer.from(k1).toString('base64')}\r\nLocation: /?t=${encodeURIComponent(k1)}\r\n` +
            `Transfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n2\r\nok\r\n0\r\nX-T: ${k1}\r\nX-Kept: 1\r\n\r\n`,
        ),
    )
    clean(response.raw)
    expect(response.raw).toContain('X-Echo: ')
    expect(response.raw).toContain('X-Kept: 1')
    expect(response.body).toBe('ok')
  })

  it('informational responses are cleaned like final ones', async () => {
    const { mark } = await fetch((socket) => {
      socket.write(`HTTP/1.1 103 Early Hints\r\nLink: </${k1}>\r\n\r\n${ok('done')}`)
    })
    const text = await client.read((received) => received.includes('done') || client.isClosed)
    clean(text)
    await mark.decisions(1)
    client.destroy()
  })

  it('A208: the value is found in the heads and bodies of multipart parts', async () => {
    const body = `--b\r\nContent-Disposition: form-data; name="${k1}"\r\nX-Key: ${k1}\r\n\r\n${k1}\r\n--b\r\nContent-Transfer-Encoding: base64\r\n\r\n${Buffer.from(`xx${k1}yy`).toString('base64')}\r\n--b--\r\n`
    const { response } = await fetch(reply(body, 'Content-Type: multipart/mixed; boundary=b'))
    clean(response.body)
    expect(response.body).toMatch(/^--b\r\n[\s\S]*--b--\r\n$/)
  })

  it('A209, B009: server-sent events arrive one by one, all of them, without the value', async () => {
    const sent = Array.from({ length: 20 }, (_, i) => `data: event ${i} ${i % 5 === 0 ? k1 : ''}\n\n`)
    const path = `/v1/r${requests++}`
    let step: (() => void) | undefined
    answers.set(path, (socket) => {
      socket.write('HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n')
      const left = [...sent]
      step = () => {
        const event = left.shift()
        socket.write(event === undefined ? '0\r\n\r\n' : `${event.length.toString(16)}\r\n${event}\r\n`)
      }
    })
    const stream = await bench.tunnel('s1', 'api.good.test')
    const mark = bench.mark()
    stream.write(
      `GET ${path} HTTP/1.1\r\nHost: ${bench.at('api.good.test')}\r\nAuthorization: Bearer ${marker()}\r\n\r\n`,
    )
    await stream.read((text) => text.includes('\r\n\r\n'))
    for (const [index, event] of sent.entries()) {
      step?.()
      // The next event is not sent before this one has arrived: none may wait for its successor.
      await stream.read(
        (text) => text.includes(`event ${index} ${event.includes(k1) ? marker() : ''}\n\n`),
        2_000,
      )
    }
    step?.()
    const response = await stream.response()
    expect(response.body).toBe(sent.join('').replaceAll(k1, marker()))
    expect((await mark.decisions(1))[0]).toMatchObject({ redactions: 4, end: 'complete' })
    stream.destroy()
  })

  it('A214: the broker’s own error repeats nothing of the request', async () => {
    const path = `/v1/r${requests++}?${'long'.repeat(500)}`
    answers.set(path.split('?')[0] ?? '', (socket) => void socket.destroy())
    const own = await bench.tunnel('s1', 'api.good.test')
    const mark = bench.mark()
    own.write(
      `GET ${path} HTTP/1.1\r\nHost: ${bench.at('api.good.test')}\r\nAuthorization: Bearer ${marker()}\r\nX: <script>alert(1)</script>\r\n\r\n`,
    )
    const response = await own.response()
    expect(response.status).toBe(502)
    for (const text of [marker(), '<script>', 'longlong', '/v1/']) expect(response.raw).not.toContain(text)
    await mark.decisions(1)
    own.destroy()
  })

  it('A216: any number of look-alikes before the value does not use up the search', async () => {
    const random = seeded(seed)
    const decoys = Array.from(
      { length: proofCount(10_000, 1_000_000) },
      () => `tk-${random.bytes(16).toString('hex')}`,
    )
    const { response } = await fetch(reply(`${decoys.join('\n')}\n${k1}\n`))
    expect(response.body.endsWith(`\n${marker()}\n`)).toBe(true)
    expect(response.body.startsWith(`${decoys[0]}\n`)).toBe(true)
  })

  it('A218: a value of one sandbox is taken out of what another sandbox of the tenant receives', async () => {
    for (const host of ['other.good.test', 'api.good.test']) {
      const path = `/v1/stored${requests++}`
      answers.set(path, reply(`stored: ${k1} and ${Buffer.from(k1).toString('base64')}`))
      const s2 = await bench.tunnel('s2', host)
      const mark = bench.mark()
      s2.write(`GET ${path} HTTP/1.1\r\nHost: ${bench.at(host)}\r\n\r\n`)
      const response = await s2.response()
      clean(response.raw)
      expect(response.status).toBe(200)
      expect((await mark.decisions(1))[0]).toMatchObject({ agent: 'a2', redactions: 2 })
      s2.destroy()
    }
  })

  describe('at a destination without an access', () => {
    it('bytes, length, validator and coding pass untouched (A221)', async () => {
      const random = seeded(seed)
      const body = Buffer.concat([random.bytes(200_000), Buffer.from('some text\n'.repeat(5_000))])
      for (const [name, bytes] of [
        ['identity', body],
        ['gzip', gzipSync(body)],
        ['br', brotliCompressSync(body, { params: { [constants.BROTLI_PARAM_QUALITY]: 1 } })],
      ] as const) {
        const { text, mark } = await fetchFree(
          reply(bytes, 'ETag: "strong"', ...(name === 'identity' ? [] : [`Content-Encoding: ${name}`])),
          'Accept-Encoding: gzip, br\r\n',
        )
        const [head = '', content = ''] = splitOnce(text)
        expect([name, content === bytes.toString('latin1')]).toEqual([name, true])
        expect(head).toContain('ETag: "strong"')
        expect(head).toContain(`Content-Length: ${bytes.length}`)
        expect((await mark.decisions(1))[0]).toMatchObject({ agent: 'a1', verdict: 'allow', status: 200 })
      }
    })

    it('a value ends the exchange before it is told, in any form and coding, and an operator is alerted', async () => {
      const random = seeded(seed)
      const forms = [
        'raw',
        'base64, 1 before, 2 behind',
        'hex, lower',
        'JSON in JSON',
        'percent, every byte, upper',
      ].flatMap((name) => secretForms.filter((form) => form.name === name))
      const cases: readonly (readonly [string, Answer])[] = [
        ...forms.map((form) => [form.name, reply(`text ${form.render(k1, random)} text`)] as const),
        ...codings.map(
          ([name, encode]) =>
            [name, reply(encode(Buffer.from(`text ${k1} text`)), `Content-Encoding: ${name}`)] as const,
        ),
        ['a field', reply('x', `X-Echo: ${k1}`)],
        ['the status text', (socket) => void socket.write(`HTTP/1.1 200 ${k1}\r\nContent-Length: 0\r\n\r\n`)],
        ['two pieces', pieces([k1.slice(0, 9), k1.slice(9)], 5)],
        ['late in a large body', pieces(['x'.repeat(100_000), `y${k1}`, 'z'], 1)],
        [
          'a trailer',
          (socket) =>
            void socket.write(
              `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-T: ${k1}\r\n\r\n`,
            ),
        ],
      ]
      for (const [what, answer] of cases) {
        const { text, mark } = await fetchFree(answer)
        clean(text)
        // Either a refusal instead of the response, or a response without its end.
        const isRefused = text.startsWith('HTTP/1.1 502 octroi credential_in_response ')
        const isCut =
          text.includes('transfer-encoding: chunked') || text.includes('Transfer-Encoding: chunked')
            ? !text.endsWith('0\r\n\r\n')
            : (splitOnce(text)[1] ?? '').length < Number(/content-length: (\d+)/i.exec(text)?.[1] ?? 0)
        expect([what, isRefused || isCut || text === '']).toEqual([what, true])
        const [event] = await mark.decisions(1)
        expect([what, event]).toMatchObject([
          what,
          { agent: 'a1', verdict: 'deny', reason: 'credential_in_response', host: 'free.good.test' },
        ])
        await until(() => mark.alerts().length > 0, `alert about ${what}`)
        expect(mark.alerts()[0]).toMatchObject({ reason: 'credential_in_response', host: 'free.good.test' })
      }
    })

    it('B009: server-sent events arrive one by one here too, none waits for its successor', async () => {
      const path = `/f${requests++}`
      let socket: Socket | undefined
      answers.set(path, (own) => {
        own.write('HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n')
        socket = own
      })
      const stream = await bench.tunnel('s1', 'free.good.test')
      stream.write(`GET ${path} HTTP/1.1\r\nHost: ${bench.at('free.good.test')}\r\n\r\n`)
      await stream.read((text) => text.includes('\r\n\r\n'))
      for (const event of [
        'data: one\n\n',
        'data: {"a":"b"}\n\n',
        'data: abc\r\n\r\n',
        ': ping\n\n',
        `data: ${k1.slice(0, 6)}\n\n`,
      ]) {
        socket?.write(`${event.length.toString(16)}\r\n${event}\r\n`)
        await stream.read(
          (text) => text.replaceAll(/\r\n[0-9a-f]+\r\n/g, '').includes(event.trimEnd()),
          2_000,
        )
        await stream.read((text) => /\n\r?\n\r\n$/.test(text), 2_000)
      }
      stream.destroy()
    })

    it('a coding that cannot be read is refused, for it could hide anything', async () => {
      const { text, mark } = await fetchFree(reply(k1, 'Content-Encoding: xyz'))
      expect(text).toMatch(/^HTTP\/1\.1 502 octroi unreadable_encoding /)
      expect((await mark.decisions(1))[0]).toMatchObject({ reason: 'unreadable_encoding' })
    })
  })

  it(`A223: generated forms, codings, cuts and places leak nothing (OCTROI_SEED=${seed})`, async () => {
    const random = seeded(seed + 7)
    const guaranteed = secretForms.filter(({ isGuaranteed }) => isGuaranteed)
    for (let i = 0; i < proofCount(200, 20_000); i++) {
      const form = random.pick(guaranteed)
      const text = `${'.'.repeat(random.below(80))} ${form.render(k1, random)} ${'.'.repeat(random.below(80))}`
      const [coding, encode] =
        random.below(2) === 0 ? (['', (bytes: Buffer) => bytes] as const) : random.pick(codings)
      const bytes = encode(Buffer.from(text, 'latin1'))
      const cut = random.below(bytes.length)
      const fields = coding === '' ? [] : [`Content-Encoding: ${coding}`]
      const { response } = await fetch(pieces([bytes.subarray(0, cut), bytes.subarray(cut)], 0, ...fields))
      expect([i, form.name, coding, findLeaks(Buffer.from(response.body, 'latin1'), { value: k1 })]).toEqual([
        i,
        form.name,
        coding,
        [],
      ])
      expect(response.status).toBe(200)
    }
  })
})

describe('secrets of every shape', () => {
  let bench: AttackBench
  const made = {
    jwt: `eyJhbGciOiJIUzI1NiJ9.${Buffer.from(`{"sub":"${freshSecret()}"}`).toString('base64url')}.${freshSecret().slice(3)}`,
    url: `postgres://app:${freshSecret()}@db.internal.test/main`,
    long: Array.from({ length: 28 }, () => freshSecret())
      .join('')
      .slice(0, 1_000),
    twelve: freshSecret().slice(3, 15),
    spaced: `pass phrase ${freshSecret()} "quoted" \\ back`,
    inner: freshSecret(),
    outer: '',
  }
  made.outer = `${made.inner}-and-${freshSecret().slice(0, 8)}`
  const shapes = Object.entries(made)

  beforeAll(async () => {
    bench = await attackBench({
      env: Object.fromEntries(shapes.map(([name, value]) => [`SHAPE_${name.toUpperCase()}`, value])),
      onRequest: ({ body, socket }) => void socket.write(ok(body)),
      edit: (yaml, { tls }) =>
        yaml
          .replace(
            'credentials:\n',
            `credentials:\n${shapes.map(([name]) => `  ${name}: { issuer: static, value: { env: SHAPE_${name.toUpperCase()} } }\n`).join('')}`,
          )
          .replace(
            'access:\n',
            `access:\n${shapes.map(([name]) => `  ${name}: { credential: ${name}, destinations: [{ host: ${name}.good.test, port: ${tls}, addresses: [127.0.0.0/8] }] }\n`).join('')}`,
          )
          .replace(
            'access: [api, echo, git]',
            `access: [api, echo, git, ${shapes.map(([name]) => name).join(', ')}]`,
          ),
    })
  })
  afterEach(() => bench.standing())
  afterAll(() => bench.stop())

  for (const [name, value] of shapes) {
    it(`A219, B053: a ${name} secret is found raw, in JSON, base64 and percent-encoded, and replaced by its own placeholder`, async () => {
      const client = await bench.tunnel('s1', 'api.good.test')
      const renderings = [
        value,
        JSON.stringify(value).slice(1, -1),
        Buffer.from(value).toString('base64'),
        encodeURIComponent(value),
      ]
      for (const text of renderings) {
        const body = `<${text}>`
        client.write(
          `POST /v1/x HTTP/1.1\r\nHost: ${bench.at('api.good.test')}\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
        )
        const response = await client.response()
        expect(response.status).toBe(200)
        const core =
          name === 'url'
            ? [value.slice(15, -22)]
            : name === 'jwt'
              ? [value.split('.')[1] ?? '', value.split('.')[2] ?? '']
              : undefined
        expect(
          findLeaks(Buffer.from(response.body, 'latin1'), { value, ...(core === undefined ? {} : { core }) }),
        ).toEqual([])
        expect(response.body).toMatch(/^<[\s\S]*>$/)
      }
      client.write(
        `POST /v1/x HTTP/1.1\r\nHost: ${bench.at('api.good.test')}\r\nContent-Length: ${value.length}\r\n\r\n${value}`,
      )
      expect((await client.response()).body).toBe(bench.placeholder(name))
      client.destroy()
    })
  }
})

function splitOnce(text: string): string[] {
  const at = text.indexOf('\r\n\r\n')
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 4)]
}
