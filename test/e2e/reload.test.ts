import { createServer, type AddressInfo } from 'node:net'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startTestBroker, type TestBroker } from '../helpers/broker.ts'
import { startOrigin, type Origin } from '../helpers/origin.ts'
import { rawClient, rawUnixClient } from '../helpers/raw-client.ts'
import { createTestCa } from '../helpers/test-ca.ts'

async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  await new Promise((resolve) => server.close(resolve))
  return port
}

describe('a reload', () => {
  let broker: TestBroker
  let tls: Origin
  let plain: Origin
  let ports: { proxy: number; admin: number }

  const yaml = ({ trust = 'root.pem', proxy = ports.proxy, s2 = '{ token: generated }' } = {}): string => `
listen: { proxy: 127.0.0.1:${proxy}, admin: 127.0.0.1:${ports.admin} }
resolver: { hosts: { tls.good.test: [127.0.0.1], plain.good.test: [127.0.0.1] } }
trust: { system: false, ca: [${trust}] }
sandboxes:
  s1:
    identity: [{ token: generated }]
    allow: [{ host: tls.good.test, ports: [${tls.port}], addresses: [127.0.0.0/8] }]
  s2:
    identity: [${s2}]
    allow: [{ host: plain.good.test, scheme: http, ports: [${plain.port}], addresses: [127.0.0.0/8] }]
`

  beforeAll(async () => {
    const ca = await createTestCa()
    const { cert, key } = await ca.issue({ names: ['tls.good.test'] })
    tls = await startOrigin({ tls: { cert, key } })
    plain = await startOrigin()
    ports = { proxy: await freePort(), admin: await freePort() }
    broker = await startTestBroker({
      yaml: yaml(),
      files: { 'root.pem': ca.cert, 'other.pem': (await createTestCa()).cert },
    })
  })
  afterAll(async () => {
    await broker.stop()
    await tls.stop()
    await plain.stop()
  })

  it('whose trust cannot be read changes nothing', async () => {
    const { hash } = broker.app.holder.current()
    await writeFile(join(broker.folder, 'bad.pem'), 'not a certificate\n')
    const broken = yaml({ trust: 'bad.pem' }).replace(/allow: \[\{ host: tls.*\n/, 'allow: []\n')
    await expect(broker.reconfigure(broken)).rejects.toThrow('no PEM certificate')
    expect(broker.app.holder.current().hash).toBe(hash)
    await broker.reconfigure(yaml())
  })

  it('ends the use of connections that the trust of before had verified', async () => {
    const authority = `tls.good.test:${tls.port}`
    const client = await broker.tunnel('s1', authority)
    const request = `GET / HTTP/1.1\r\nHost: ${authority}\r\n\r\n`
    client.write(request)
    expect(await client.response()).toMatchObject({ status: 200 })
    await broker.reconfigure(yaml({ trust: 'other.pem' }))
    client.write(request)
    expect((await client.response()).statusLine).toContain('502 octroi upstream_tls')
    await broker.reconfigure(yaml())
  })

  it('leaves a socket alone that would become a proof, as it does a port', async () => {
    const path = join(broker.folder, 'proxy.sock')
    const shared = yaml()
      .replace('listen: { proxy: ', `listen: { proxy: ["unix:${path}", `)
      .replace(', admin', '], admin')
    await broker.reconfigure(shared)
    await expect(broker.reconfigure(yaml({ s2: `{ socket: ${path} }` }))).rejects.toThrow('by a restart')
    const client = await rawUnixClient(path)
    client.write('GET http://plain.good.test/ HTTP/1.1\r\nHost: plain.good.test\r\n\r\n')
    expect(await client.response()).toMatchObject({ status: 407 })
    client.destroy()
    await broker.reconfigure(yaml())
  })

  it('makes no proof of the port of a listener that was opened for everybody', async () => {
    // Refused while the port is taken by that listener; what counts is that nobody is s2 by it.
    await broker
      .reconfigure(yaml({ proxy: await freePort(), s2: `{ port: ${ports.proxy} }` }))
      .catch(() => undefined)
    const client = await rawClient(ports.proxy)
    const authority = `plain.good.test:${plain.port}`
    client.write(`GET http://${authority}/ HTTP/1.1\r\nHost: ${authority}\r\n\r\n`)
    expect(await client.response()).toMatchObject({ status: 407 })
    client.destroy()
    await broker.reconfigure(yaml())
  })
})
