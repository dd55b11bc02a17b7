import { existsSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { queryEvents } from '../../src/audit/query.ts'
import { createRemote } from '../../src/cli/remote.ts'
import { attackBench, until, type AttackBench } from '../helpers/attack-bench.ts'

describe('the socket of a sandbox', () => {
  let bench: AttackBench

  beforeAll(async () => {
    bench = await attackBench({
      more: `
templates:
  free: { allow: [{ host: free.good.test, ports: [TLS], addresses: [127.0.0.0/8] }] }
`,
      edit: (yaml, { tls }) => yaml.replace('ports: [TLS]', `ports: [${tls}]`),
    })
  })
  afterAll(() => bench.stop())

  it('is closed with its sandbox and never that of another one of its name', async () => {
    const create = () => bench.admin('POST', '/v1/sandboxes', { template: 'free', name: 'again' })
    expect(await create()).toMatchObject({ status: 201 })
    const path = await bench.broker.app.openSandboxSocket('again')
    const first = await bench.unixClient(path)
    const second = await bench.unixClient(path)
    const request = `GET https://${bench.at('free.good.test')}/ HTTP/1.1\r\nHost: ${bench.at('free.good.test')}\r\n\r\n`
    first.write(request)
    expect(await first.response()).toMatchObject({ status: 200 })
    await bench.admin('DELETE', '/v1/sandboxes/again')
    expect(await create()).toMatchObject({ status: 201 })
    second.write(request)
    expect(await second.closed(1_000)).toBe('')
    await until(() => !existsSync(path), 'end of the socket')
    expect(await bench.broker.app.openSandboxSocket('again')).not.toBe(path)
  })

  it('is each run’s own, names the run in its events, and ends with it', async () => {
    const remote = createRemote({ stateFolder: bench.broker.stateFolder, configPath: 'octroi.yaml' })
    const attached = await remote.attach()
    const path = await remote.sandboxSocket('s1', attached.run)
    expect(path).not.toBe(await remote.sandboxSocket('s1'))
    expect(path).toBe(await remote.sandboxSocket('s1', attached.run))
    const mark = bench.mark()
    const client = await bench.unixClient(path)
    client.write(`CONNECT run.denied.test:443 HTTP/1.1\r\nHost: run.denied.test:443\r\n\r\n`)
    expect(await client.response()).toMatchObject({ status: 403 })
    await remote.runEnded({ sandbox: 's1', exit: 3, run: attached.run })
    expect((await mark.decisions(1))[0]).toMatchObject({ sandbox: 's1', run: attached.run })
    expect(queryEvents(bench.broker.stateFolder, { run: attached.run ?? '' })).toMatchObject([
      { kind: 'exchange', host: 'run.denied.test' },
      { kind: 'run', exit: 3 },
    ])
    attached.release()
    await client.closed(1_000)
    await until(() => !existsSync(path), 'end of the socket')
    await expect(remote.sandboxSocket('s1', attached.run)).rejects.toThrow('no such run')
  })
})
