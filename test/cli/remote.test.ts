import { createServer } from 'node:http'
import type { RequestListener } from 'node:http'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { startAdminServer } from '../../src/admin/server.ts'
import { createRemote } from '../../src/cli/remote.ts'
import { OperatorError } from '../../src/core/errors.ts'
import { LifecycleError } from '../../src/identity/lifecycle-model.ts'
import { adminBench, attachedRun } from '../helpers/admin-bench.ts'
import { stateFolder } from '../helpers/state-folder.ts'

const configPath = '/etc/octroi/octroi.yaml'

async function running() {
  const folder = stateFolder()
  const made = adminBench()
  const server = await startAdminServer(made.deps, {
    stateFolder: folder,
    listen: { host: '127.0.0.1', port: 0 },
  })
  onTestFinished(() => server.stop())
  return { remote: createRemote({ stateFolder: folder, configPath }), made, stop: () => server.stop() }
}

/** A peer on the socket that is not quite a broker. */
async function strange(listener: RequestListener) {
  const folder = stateFolder()
  const server = createServer(listener)
  await new Promise<void>((resolve) => server.listen(join(folder, 'admin.sock'), resolve))
  onTestFinished(() => void server.closeAllConnections())
  onTestFinished(() => void server.close())
  return createRemote({ stateFolder: folder, configPath, timeoutMs: 200 })
}

describe('remote broker', () => {
  it('does the whole life cycle as the broker itself would', async () => {
    const { remote, made } = await running()
    const { sandbox, token } = await remote.create({
      template: 'coder',
      name: 's1',
      agent: 'agent-7',
      ttlMs: 60_000,
    })
    expect(sandbox).toEqual(JSON.parse(JSON.stringify(await made.bench.lifecycle.show('s1'))))
    expect(await made.bench.accepts('s1', token)).toBe(true)
    expect((await remote.pause('s1')).state).toBe('paused')
    expect((await remote.resume('s1')).state).toBe('active')
    expect((await remote.rotateToken('s1', 1000)).sandbox.tokens).toBe(2)
    const handle = await made.bench.addHandle('s1', 'openai')
    expect(await remote.revoke({ kind: 'handle', target: handle.id })).toMatchObject({ handles: 1 })
    expect((await remote.show('s1')).handles).toMatchObject([{ id: handle.id, state: 'revoked' }])
    await remote.destroy('s1')
    expect(await remote.list()).toEqual([])
  })

  it('attaches a run for as long as it holds on, and tells when the broker ended first', async () => {
    const { remote, made, stop } = await running()
    const first = await remote.attach()
    const second = await remote.attach()
    expect(first.run).toBe(attachedRun)
    expect(made.asked).toEqual(['attach', 'attach'])
    let isLost = false
    void first.lost.then(() => (isLost = true))
    first.release()
    const detached = () => made.asked.filter((what) => what === 'detach').length
    await expect.poll(detached).toBe(1)
    await stop()
    await second.lost
    await expect.poll(detached).toBe(2)
    expect(isLost).toBe(false)
    expect(await remote.isRunning()).toBe(false)
  })

  it('counts a broker that is about to end as one that does not run', async () => {
    const { remote, made } = await running()
    made.failWith = new OperatorError('about to end')
    await expect(remote.attach()).rejects.toThrow('the broker is not running')
    expect(await remote.handOver()).toBe('permanent')
  })

  it('asks for the rest of what a broker does', async () => {
    const { remote, made } = await running()
    await remote.create({ template: 'coder', name: 's1' })
    expect(await remote.status()).toMatchObject({ policy: 'abc123', ready: true })
    expect(await remote.reload()).toEqual({ policy: 'def456' })
    await remote.secretsChanged()
    expect(await remote.sandboxSocket('s1')).toBe('/run/octroi/s1.sock')
    expect(await remote.sandboxSocket('s1', attachedRun)).toBe('/run/octroi/s1.sock')
    expect(made.asked).toEqual(['reload', 'secretsChanged', 'socket s1', `socket s1 ${attachedRun}`])
    await expect(remote.sandboxSocket('s1', '../../etc')).rejects.toThrow('run: ')
  })

  it('keeps the kind and the text of a failure', async () => {
    const { remote } = await running()
    const error: unknown = await remote.create({ template: 'codre' }).catch((cause: unknown) => cause)
    expect(error).toBeInstanceOf(LifecycleError)
    expect(error).toMatchObject({ fault: 'not_found', exitCode: 1 })
    expect(String(error)).toContain('did you mean coder?')
    await expect(remote.create({ template: 'coder', name: 'a:b' })).rejects.toMatchObject({ exitCode: 2 })
  })

  it.each(['..', 'a/b', 'a?b', '%00', ''])('never reaches another route with the name %j', async (name) => {
    const { remote, made } = await running()
    await expect(remote.pause(name)).rejects.toThrow(OperatorError)
    expect(made.bench.store.writes).toEqual([])
  })

  it('gives the id of a failure of the broker itself', async () => {
    const { remote, made } = await running()
    made.failWith = new TypeError('boom')
    await expect(remote.reload()).rejects.toThrow(
      /^the broker failed; its log has the cause under [0-9a-f]{16}$/,
    )
  })

  it('says how to start the broker when none runs', async () => {
    const remote = createRemote({ stateFolder: stateFolder(), configPath })
    expect(await remote.isRunning()).toBe(false)
    await expect(remote.reload()).rejects.toThrow(
      'the broker is not running; start it with: octroi serve --config /etc/octroi/octroi.yaml',
    )
  })

  it.each<[string, RequestListener, string]>([
    ['speaks no JSON', (_, response) => void response.end('hello'), 'does not understand'],
    ['speaks another schema', (_, response) => void response.end('{"a":1}'), 'does not understand'],
    ['fails with an unknown body', (_, response) => void response.writeHead(502).end('{}'), 'status 502'],
    ['breaks off', (request) => void request.socket.destroy(), 'broke off'],
    ['stays silent', () => undefined, 'did not answer within 0.2 s'],
  ])('is an error and not "not running" when the peer %s', async (_case, listener, text) => {
    const remote = await strange(listener)
    await expect(remote.isRunning()).rejects.toThrow(text)
  })
})
