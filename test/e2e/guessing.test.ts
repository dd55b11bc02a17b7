import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { attackBench, until, type AttackBench } from '../helpers/attack-bench.ts'
import { ok } from '../helpers/origin.ts'
import type { RawResponse } from '../helpers/raw-client.ts'
import { seeded } from '../helpers/seeded.ts'
import { runSeed } from '../helpers/proof-count.ts'

const seed = runSeed()
const random = seeded(seed)
const letters = [...'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789']
const hex = [...'0123456789abcdef']

const drawn = (from: readonly string[], length: number): string =>
  Array.from({ length }, () => random.pick(from)).join('')

/** Formats of tokens with what all tokens of the format begin with, and what the rest is drawn from. */
const formats: readonly (readonly [start: string, from: readonly string[], length: number])[] = [
  ['ghp_', letters, 36],
  ['github_pat_11', letters, 80],
  ['glpat-', letters, 20],
  ['sk-proj-', letters, 148],
  ['sk-ant-api03-', letters, 93],
  ['sk_live_51AbCdEfGhIjKlMnO', letters, 82],
  ['pypi-AgEIcHlwaS5vcmcC', letters, 150],
  ['xoxb-', [...'0123456789'], 60],
  ['hvs.CAESI', letters, 90],
  ['glc_eyJvIjoi', letters, 100],
  ['sntrys_eyJpYXQiOjE3MzAwMDAwMDAuMSwidXJsIjoiaHR0cHM6Ly9zZW50cnkuaW8ifQ==_', letters, 43],
  ['ATATT3xFfGF0', letters, 180],
  ['dop_v1_', hex, 64],
  ['AGE-SECRET-KEY-1', [...'QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L'], 58],
]
const shapes = [...formats, ['', hex, 64] as const, ['', letters, 40] as const].map(
  ([start, from, length], i) => ({
    name: `f${i}`,
    start,
    value: start + drawn(from, length),
    other: start + drawn(from, length),
    from,
  }),
)

/** What a guesser finds out with what it already knows of a value. */
interface Found {
  readonly known: string
  readonly guesses: number
  readonly requests: number
  readonly last: RawResponse | undefined
}

describe(`guessing a value from what is taken out of answers (OCTROI_SEED=${seed})`, () => {
  let bench: AttackBench

  beforeAll(async () => {
    bench = await attackBench({
      env: Object.fromEntries(shapes.map(({ name, value }) => [name.toUpperCase(), value])),
      onRequest: ({ body, socket, head }) =>
        void socket.write(ok(body, [`X-Echo: ${/x-say: (.*)\r\n/i.exec(head)?.[1] ?? ''}`])),
      sandboxes: `
templates:
  guesser:
    access: [api, f15]
    allow: [{ host: free.good.test, ports: [TLS], addresses: [127.0.0.0/8] }]
`,
      edit: (yaml, { tls }) =>
        yaml
          .replace('[TLS]', `[${tls}]`)
          .replace(
            'credentials:\n',
            `credentials:\n${shapes.map(({ name }) => `  ${name}: { issuer: static, value: { env: ${name.toUpperCase()} } }\n`).join('')}`,
          )
          .replace(
            'access: [api, echo, git]',
            `access: [api, echo, git, ${shapes.map(({ name }) => name).join(', ')}]`,
          )
          .replace(
            'access:\n',
            `access:\n${shapes.map(({ name }) => `  ${name}: { credential: ${name}, destinations: [{ host: ${name}.good.test, port: ${tls}, addresses: [127.0.0.0/8] }] }\n`).join('')}`,
          ),
    })
  })
  afterEach(() => bench.standing())
  afterAll(() => bench.stop())

  const made = async (name: string): Promise<void> => {
    const { answer } = await bench.admin('POST', '/v1/sandboxes', { template: 'guesser', name, agent: name })
    bench.guard(`password of ${name}`, String(answer['token']))
  }
  const say = async (
    sandbox: string,
    host: string,
    body: string,
    field = '',
  ): Promise<RawResponse | undefined> => {
    const { client, response } = await bench.connect(sandbox, bench.at(host))
    if (response.status !== 200) return response
    const inside = await client.startTls({ servername: host, ca: bench.broker.ca })
    inside.write(
      `POST /v1/x HTTP/1.1\r\nHost: ${bench.at(host)}\r\n${field === '' ? '' : `X-Say: ${field}\r\n`}Content-Length: ${body.length}\r\n\r\n${body}`,
    )
    const answer = await inside.response().catch(() => undefined)
    inside.destroy()
    return answer
  }

  /** One character after the other: of the guesses in an echo, the right one comes back replaced. */
  const guess = async (
    sandbox: string,
    start: string,
    options: { host?: string; length: number; render?: (text: string) => string; run?: number },
  ): Promise<Found> => {
    const { host = 'api.good.test', length, render = (text: string) => text, run = 12 } = options
    let known = start
    let guesses = 0
    let last: RawResponse | undefined
    for (let requests = 1; known.length < length; requests++) {
      const tail = known.slice(-(run - 1))
      const lines = letters.map((letter) => render(tail + letter))
      last = await say(sandbox, host, lines.join('\n'))
      guesses += letters.length
      const back = last?.status === 200 ? last.body.split('\n') : []
      const hit = lines.findIndex((line, i) => back[i] !== undefined && back[i] !== line)
      if (hit < 0) return { known, guesses, requests, last }
      known += letters[hit] ?? ''
    }
    return { known, guesses, requests: length - start.length, last }
  }

  it('who knows eleven characters in a row learns at most four more, then the sandbox is paused and an operator alerted', async () => {
    const value = shapes.at(-1)?.value ?? ''
    await made('eleven')
    const mark = bench.mark()
    const found = await guess('eleven', value.slice(0, 11), { length: value.length })
    expect(found.known.length - 11).toBeLessThanOrEqual(4)
    expect(found.guesses).toBeLessThanOrEqual(5 * letters.length)
    await until(
      () => mark.alerts().some(({ reason }) => reason === 'credential_guessed'),
      'alert',
      mark.alerts,
    )
    expect(mark.alerts().map(({ reason }) => reason)).toEqual([
      ...Array.from({ length: 3 }, () => 'credential_part'),
      'credential_guessed',
    ])
    expect(mark.alerts()[0]).toMatchObject({ sandbox: 'eleven', agent: 'eleven', host: 'api.good.test' })
    const refused = await bench.connect('eleven', bench.at('api.good.test'))
    expect(refused.response.statusLine).toMatch(/ 403 octroi sandbox_paused /)
    refused.client.destroy()
    // Nobody else is held up, and an operator who has looked at it lets it go on.
    expect((await say('s1', 'api.good.test', 'hello'))?.body).toBe('hello')
    await until(
      () => mark.events().some(({ kind, note }) => kind === 'admin' && note?.includes('paused') === true),
      'pause',
    )
    expect((await bench.admin('POST', '/v1/sandboxes/eleven/resume')).status).toBe(200)
    expect((await say('eleven', 'api.good.test', 'hello'))?.body).toBe('hello')
  })

  it('a sandbox made again, and other codings of the guesses, start from the same count', async () => {
    const value = shapes.at(-1)?.value ?? ''
    await made('again')
    const base64 = (text: string): string => Buffer.from(text).toString('base64')
    // Nine characters are enough where the guess is in base64: they make twelve characters there.
    const first = await guess('again', value.slice(0, 8), { length: 10, render: base64, run: 9 })
    expect(first.known).toBe(value.slice(0, 10))
    await bench.admin('DELETE', '/v1/sandboxes/again')
    await made('again')
    const second = await guess('again', value.slice(0, 11), { length: value.length })
    expect(second.known.length - 11).toBeLessThanOrEqual(2)
  })

  it('the same echo again and again, and whole values, pause nobody', async () => {
    const value = shapes.at(-1)?.value ?? ''
    await made('plain')
    for (let i = 0; i < 10; i++) {
      const answer = await say(
        'plain',
        'api.good.test',
        `key ${value.slice(0, 14)}… is wrong, ${value} is not`,
      )
      expect(answer?.status).toBe(200)
    }
  })

  it('where no access names the host each guess that is right ends an exchange, and they count alike', async () => {
    const value = shapes.at(-1)?.value ?? ''
    await made('free')
    const mark = bench.mark()
    for (let i = 0; i < 4; i++) await say('free', 'free.good.test', value.slice(i, i + 12))
    await until(
      () => mark.alerts().some(({ reason }) => reason === 'credential_guessed'),
      'alert',
      mark.alerts,
    )
    const refused = await bench.connect('free', bench.at('free.good.test'))
    expect(refused.response.statusLine).toMatch(/ 403 octroi sandbox_paused /)
    refused.client.destroy()
  })

  it('guesses that are echoed in a field count like those in a body', async () => {
    const value = shapes.at(-1)?.value ?? ''
    await made('fields')
    const mark = bench.mark()
    for (const [i, host] of (['api', 'api', 'free', 'free'] as const).entries())
      await say('fields', `${host}.good.test`, '', value.slice(i, i + 12))
    await until(
      () => mark.alerts().some(({ reason }) => reason === 'credential_guessed'),
      'alert',
      mark.alerts,
    )
  })

  it.each(shapes)(
    'a token that begins with "$start" like another one passes unchanged, and the beginning is no guess',
    async ({ start, other }) => {
      const mark = bench.mark()
      const texts = [other, Buffer.from(other).toString('base64'), start, `${start}${other.at(-1)}`]
      for (const host of ['api.good.test', 'free.good.test']) {
        const client = await bench.tunnel('s1', host)
        for (const text of texts) {
          client.write(
            `POST /v1/x HTTP/1.1\r\nHost: ${bench.at(host)}\r\nContent-Length: ${text.length}\r\n\r\n${text}`,
          )
          expect([host, (await client.response()).body]).toEqual([host, text])
        }
        client.destroy()
      }
      const events = await mark.decisions(2 * texts.length)
      expect(events.filter(({ redactions }) => redactions !== undefined)).toEqual([])
      expect(mark.alerts()).toEqual([])
    },
  )
})
