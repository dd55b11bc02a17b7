import { mkdtempSync, rmSync, statSync } from 'node:fs'
import { Server } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, describe, expect, it, vi } from 'vitest'
import { defaultLimits } from '../../src/proxy/limits.ts'
import { listen } from '../../src/proxy/listener.ts'
import type { DataPlane } from '../../src/proxy/plane.ts'

const folder = mkdtempSync(join(tmpdir(), 'octroi-listener-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))
afterEach(() => vi.restoreAllMocks())

const lines: string[] = []
const log = { error: (_: object, message: string) => void lines.push(message) }
// `as`: nobody connects, so that nothing else of the plane is looked at.
const plane = { limits: defaultLimits, log } as unknown as DataPlane

/** Calls `look` with each server right after it was told to listen. */
function watchListen(look: (server: Server) => void): void {
  const original = Server.prototype.listen as (...args: unknown[]) => Server
  vi.spyOn(Server.prototype, 'listen').mockImplementation(function (this: Server, ...args: unknown[]) {
    original.apply(this, args)
    look(this)
    return this
  })
}

describe('a listener', () => {
  it('on a unix socket is never anybody else’s, whatever the umask, not even for a moment', async () => {
    const path = join(folder, 'proxy.sock')
    const modes: number[] = []
    watchListen(() => void modes.push(statSync(path).mode & 0o777))
    const umask = process.umask(0)
    try {
      const listener = await listen(plane, { kind: 'unix', path })
      modes.push(statSync(path).mode & 0o777)
      await listener.close()
      expect(process.umask()).toBe(0)
    } finally {
      process.umask(umask)
    }
    expect(modes).toEqual([0o600, 0o600])
  })

  it('outlives a connection that the system could not give it', async () => {
    const servers: Server[] = []
    watchListen((server) => void servers.push(server))
    const listener = await listen(plane, { kind: 'tcp', host: '127.0.0.1', port: 0, tls: false })
    servers[0]?.emit('error', Object.assign(new Error('accept ENOBUFS'), { code: 'ENOBUFS' }))
    expect(lines).toEqual(['a connection could not be accepted'])
    await listener.close()
  })
})
