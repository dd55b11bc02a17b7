import { createServer } from 'node:net'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startTestBroker, type TestBroker } from '../helpers/broker.ts'
import { rawClient, type RawClient } from '../helpers/raw-client.ts'

const plain = 'sandboxes:\n  s: { agent: a }\n'
const withPort = (port: number): string => `${plain}  p: { agent: b, identity: [{ port: ${port} }] }\n`

async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  await new Promise((resolve) => server.close(resolve))
  return port
}

const ask = async (client: RawClient): Promise<string> => {
  client.write('GET http://denied.test/ HTTP/1.1\r\nHost: denied.test\r\n\r\n')
  return (await client.response()).statusLine
}

describe('a reload', () => {
  let broker: TestBroker
  beforeAll(async () => {
    broker = await startTestBroker({ yaml: plain })
  })
  afterAll(() => broker.stop())

  const addresses = (): string[] => broker.app.listeners.map(({ address }) => address)

  it('opens the port of a new identity, and closes it with its connections when the identity is gone', async () => {
    const port = await freePort()
    await broker.reconfigure(withPort(port))
    expect(addresses()).toContain(`http://127.0.0.1:${port}`)
    const client = await rawClient(port)
    expect(await ask(client)).toMatch(/^HTTP\/1\.1 403 octroi host_denied /)
    await broker.reconfigure(plain)
    await client.closed()
    await expect(rawClient(port)).rejects.toThrow('ECONNREFUSED')
    expect(addresses()).not.toContain(`http://127.0.0.1:${port}`)
  })

  it('opens the socket of a new identity', async () => {
    const path = join(broker.folder, 'own.sock')
    await broker.reconfigure(`${plain}  p: { agent: b, identity: [{ socket: own.sock }] }\n`)
    expect(addresses()).toContain(`unix:${path}`)
    await broker.reconfigure(plain)
  })

  it('changes nothing when a port it needs is taken, and names the holder', async () => {
    const server = createServer()
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const { port } = server.address() as AddressInfo
    const before = broker.app.holder.current()
    await expect(broker.reconfigure(withPort(port))).rejects.toThrow(`127.0.0.1:${port} is taken by `)
    expect(broker.app.holder.current()).toBe(before)
    expect(before.sandboxes.has('p')).toBe(false)
    await new Promise((resolve) => server.close(resolve))
  })

  it('keeps the ports that stay, with their connections', async () => {
    const client = await broker.client()
    const auth = await broker.auth('s')
    await broker.reconfigure('sandboxes:\n  s: { agent: other }\n')
    client.write(`GET http://denied.test/ HTTP/1.1\r\nHost: denied.test\r\n${auth}\r\n`)
    expect((await client.response()).statusLine).toMatch(/^HTTP\/1\.1 403 octroi host_denied /)
    client.destroy()
    await broker.reconfigure(plain)
  })

  it('changes nothing when a file of `trust.ca` has no certificate', async () => {
    const before = broker.app.holder.current()
    const yaml = `trust: { ca: [octroi.yaml] }\nsandboxes:\n  other: { agent: a }\n`
    await expect(broker.reconfigure(yaml)).rejects.toThrow('trust.ca.0')
    expect(broker.app.holder.current()).toBe(before)
  })

  it('does not move the state folder of a running broker', async () => {
    const before = broker.app.holder.current()
    await expect(broker.reconfigure(`state: elsewhere\n${plain}`)).rejects.toThrow(
      'the key `state` cannot change while the broker runs',
    )
    expect(broker.app.holder.current()).toBe(before)
  })

  it('says what takes effect at the next start only', async () => {
    await broker.reconfigure(`audit: { retention: 7d }\n${plain}`)
    expect(broker.log.join('')).toContain('a changed `audit` takes effect at the next start')
    await broker.reconfigure(plain)
  })
})
