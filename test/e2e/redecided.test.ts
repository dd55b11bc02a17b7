import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { attackBench, type AttackBench } from '../helpers/attack-bench.ts'
import type { OnRequest } from '../helpers/origin.ts'

/** A stream that begins and never ends. */
const stream: OnRequest = ({ socket }) =>
  void socket.write(
    'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n#### ## \r\n',
  )

describe('streams and tunnels under a new policy', () => {
  let bench: AttackBench
  let standard: string

  beforeAll(async () => {
    bench = await attackBench({
      onRequest: stream,
      allow: ['{ host: wide.good.test, ports: [TLS], addresses: [127.0.0.0/8], tls: splice }'],
      edit: (yaml, { tls }) => yaml.replace('ports: [TLS]', `ports: [${tls}]`),
    })
    standard = await bench.config()
  })
  afterAll(() => bench.stop())

  const ask = (host: string, ...fields: string[]): string =>
    `GET /v1/stream HTTP/1.1\r\nHost: ${bench.at(host)}\r\n${fields.map((field) => `${field}\r\n`).join('')}\r\n`
  const withoutRange = (yaml: string, host: string): string =>
    yaml.replace(new RegExp(`(host: ${host}, ports: \\[\\d+\\]), addresses: \\[127\\.0\\.0\\.0/8\\]`), '$1')

  it('a stream to an address whose range no rule names any more ends', async () => {
    const client = await bench.tunnel('s1', 'free.good.test')
    client.write(ask('free.good.test'))
    await client.read((text) => text.includes('###'))
    await bench.broker.reconfigure(withoutRange(standard, 'free.good.test'))
    await client.closed(1_000)
    await bench.broker.reconfigure(standard)
  })

  it('a spliced tunnel to such an address ends', async () => {
    const { client } = await bench.connect('s1', bench.at('wide.good.test'))
    client.write(await bench.hello('wide.good.test'))
    await client.read((text) => text.length > 0)
    await bench.broker.reconfigure(withoutRange(standard, 'wide.good.test'))
    await client.closed(1_000)
    await bench.broker.reconfigure(standard)
  })

  it('a stream with a credential ends when the access is narrowed, though a rule allows the host still', async () => {
    const withRule = standard.replace(
      'allow:\n',
      `allow:\n      - { host: api.good.test, ports: [${bench.upstream.port}], addresses: [127.0.0.0/8] }\n`,
    )
    await bench.broker.reconfigure(withRule)
    const client = await bench.tunnel('s1', 'api.good.test')
    client.write(ask('api.good.test', `Authorization: Bearer ${bench.placeholder('api')}`))
    await client.read((text) => text.includes('###'))
    const plain = await bench.tunnel('s1', 'api.good.test')
    plain.write(ask('api.good.test'))
    await plain.read((text) => text.includes('###'))
    await bench.broker.reconfigure(withRule.replace('paths: ["/v1/**"]', 'paths: ["/v2/**"]'))
    await client.closed(1_000)
    expect(plain.isClosed).toBe(false)
    plain.destroy()
    await bench.broker.reconfigure(standard)
  })
})
