import { connect, type Socket } from 'node:net'
import { DatabaseSync } from 'node:sqlite'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { attackBench, until, type AttackBench } from '../helpers/attack-bench.ts'
import { ok, startOrigin, type OnRequest } from '../helpers/origin.ts'

describe('what the log says of exchanges that went wrong', () => {
  let bench: AttackBench
  let waiting: Socket | undefined

  const answer: OnRequest = ({ head, socket }) => {
    const path = head.split(' ')[1] ?? ''
    if (path === '/leak') socket.write(ok(`token=${bench.secrets.k1}`))
    else if (path === '/slow') waiting = socket
    else socket.write(ok('ok'))
  }

  beforeAll(async () => {
    bench = await attackBench({ onRequest: answer })
  })
  afterAll(() => bench.stop())

  it('the status is the one that the client got', async () => {
    const client = await bench.tunnel('s1', 'free.good.test')
    const mark = bench.mark()
    client.write(`GET /leak HTTP/1.1\r\nHost: ${bench.at('free.good.test')}\r\n\r\n`)
    expect(await client.response()).toMatchObject({ status: 502 })
    const [event] = await mark.decisions(1)
    expect(event).toMatchObject({ status: 502, verdict: 'deny', reason: 'credential_in_response' })
  })

  it('a note is short, however many names the certificate of an upstream has', async () => {
    const names = Array.from({ length: 1_000 }, (_, n) => `a-name-of-the-upstream-${n}.evil.test`)
    const { cert, key } = await bench.ca.issue({ names })
    const other = await startOrigin({ tls: { cert, key } })
    const before = await bench.config()
    await bench.broker.reconfigure(before.replace(/(host: free.good.test, ports: \[)\d+/, `$1${other.port}`))
    bench.mayDial.add(`127.0.0.1:${other.port}`)
    const authority = `free.good.test:${other.port}`
    const client = await bench.tunnel('s1', authority)
    const mark = bench.mark()
    client.write(`GET / HTTP/1.1\r\nHost: ${authority}\r\n\r\n`)
    expect((await client.response()).statusLine).toContain('502 octroi upstream_tls')
    const [event] = await mark.decisions(1)
    expect(event?.note).toMatch(/^free\.good\.test: ERR_TLS_CERT_ALTNAME_INVALID: /)
    expect(event?.note?.length).toBeLessThanOrEqual(500)
    await bench.broker.reconfigure(before)
    await other.stop()
  })

  it('a request that is denied while its client is already gone is denied in the log too', async () => {
    const path = await bench.broker.app.openSandboxSocket('s1')
    const mark = bench.mark()
    // More refusals than the buffers of the socket hold: one is answered to nobody when the client goes.
    const requests = Array.from(
      { length: 1_500 },
      (_, n) => `GET http://denied${n}.test/ HTTP/1.1\r\nHost: denied${n}.test\r\n\r\n`,
    )
    const socket = bench.own(() => connect({ path }))
    socket.on('error', () => undefined)
    socket.pause()
    socket.write(requests.join(''))
    let count = -1
    await until(() => {
      const before = count
      count = mark.events().length
      return count > 100 && count === before
    }, 'client that blocks the broker')
    socket.destroy()
    await until(
      () => mark.events().length > count,
      'last refusal',
      () => mark.events().length,
    )
    const exchanges = mark.events().filter(({ kind }) => kind === 'exchange')
    expect(exchanges.filter(({ verdict }) => verdict !== 'deny')).toEqual([])
    expect(exchanges.at(-1)).toMatchObject({ reason: 'host_denied', end: 'client_gone' })
  })

  it('an exchange that was let in has its event although the queue is full by its end', async () => {
    const { events, newId } = bench.broker.app.foundation
    const client = await bench.client()
    const url = bench.url('plain.good.test')
    const mark = bench.mark()
    client.write(
      `GET ${url}/slow HTTP/1.1\r\nHost: ${new URL(url).host}\r\n${await bench.broker.auth('s1')}\r\n`,
    )
    await until(() => waiting !== undefined, 'request at the upstream')
    const lock = new DatabaseSync(join(bench.broker.stateFolder, 'events.db'))
    lock.exec('BEGIN IMMEDIATE')
    while (events.state !== 'full')
      events.append({ id: newId(), ts: Date.now(), kind: 'admin', note: 'filler' })
    waiting?.write(ok('done'))
    expect(await client.response()).toMatchObject({ status: 200 })
    lock.exec('ROLLBACK')
    lock.close()
    await until(() => events.state === 'ok', 'event log that works again')
    await until(() => mark.events().some(({ path }) => path === '/slow'), 'event of the exchange')
  })
})
