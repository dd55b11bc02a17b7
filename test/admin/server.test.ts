import { randomBytes } from 'node:crypto'
import { chmodSync, lstatSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { createConnection, createServer } from 'node:net'
import type { Server } from 'node:net'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { operatorToken } from '../../src/admin/auth.ts'
import { ownerSocketPath } from '../../src/admin/owner-socket.ts'
import { startAdminServer } from '../../src/admin/server.ts'
import type { AdminServer } from '../../src/admin/server.ts'
import { createRemote } from '../../src/cli/remote.ts'
import { adminBench } from '../helpers/admin-bench.ts'
import type { AdminBench } from '../helpers/admin-bench.ts'
import { stateFolder } from '../helpers/state-folder.ts'

const loopback = { host: '127.0.0.1', port: 0 }

async function start(folder: string, made: AdminBench = adminBench()): Promise<AdminServer> {
  const server = await startAdminServer(made.deps, { stateFolder: folder, listen: loopback })
  onTestFinished(() => server.stop())
  return server
}

function remoteOf(folder: string) {
  return createRemote({ stateFolder: folder, configPath: '/etc/octroi/octroi.yaml' })
}

/** Sends bytes to the TCP listener and returns the status line of the answer. */
function rawStatus(port: number, lines: readonly string[]): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = createConnection({ host: '127.0.0.1', port })
    let text = ''
    socket.on('data', (chunk) => {
      text += chunk.toString('latin1')
      if (!text.includes('\r\n')) return
      socket.destroy()
      resolve(text.split('\r\n', 1)[0] ?? '')
    })
    socket.on('error', reject)
    socket.on('close', () => resolve(text))
    socket.write(`${lines.join('\r\n')}\r\n\r\n`)
  })
}

/** A unix socket file on which nobody answers any more, as `kill -9` leaves it. */
async function leaveStaleSocket(path: string): Promise<void> {
  const { rename } = await import('node:fs/promises')
  const server = await listen(`${path}.old`)
  // Node unlinks the path it bound, so the file survives under another name.
  await rename(`${path}.old`, path)
  await new Promise((resolve) => server.close(resolve))
}

function listen(path: string): Promise<Server> {
  return new Promise((resolve) => {
    const server = createServer().listen(path, () => resolve(server))
  })
}

describe('admin server', () => {
  it('opens an owner-only socket and a TCP listener with a token, and ends both', async () => {
    const folder = stateFolder()
    const server = await start(folder)
    expect(server.socketPath).toBe(join(folder, 'admin.sock'))
    expect(statSync(server.socketPath).mode & 0o777).toBe(0o600)
    expect(statSync(join(folder, 'admin.token')).mode & 0o777).toBe(0o600)
    const origin = `http://127.0.0.1:${String(server.port)}`
    expect((await fetch(`${origin}/healthz`)).status).toBe(200)
    expect((await fetch(`${origin}/v1/status`)).status).toBe(401)
    const token = readFileSync(join(folder, 'admin.token'), 'utf8').trim()
    const status = await fetch(`${origin}/v1/status`, { headers: { authorization: `Bearer ${token}` } })
    expect(await status.json()).toMatchObject({ policy: 'abc123', ready: true })
    await server.stop()
    await expect(fetch(`${origin}/healthz`)).rejects.toThrow('fetch failed')
    expect(await remoteOf(folder).isRunning()).toBe(false)
  })

  it.each([
    ['a foreign Host', ['GET /healthz HTTP/1.1', 'Host: evil.test:PORT']],
    ['two Host lines', ['GET /healthz HTTP/1.1', 'Host: 127.0.0.1:PORT', 'Host: evil.test']],
    ['a target of another authority', ['GET http://evil.test/healthz HTTP/1.1', 'Host: 127.0.0.1:PORT']],
    ['no Host', ['GET /healthz HTTP/1.0']],
    ['an asterisk', ['OPTIONS * HTTP/1.1', 'Host: 127.0.0.1:PORT']],
  ])('refuses %s on the wire', async (_case, lines) => {
    const { port } = await start(stateFolder())
    const status = await rawStatus(
      port,
      lines.map((line) => line.replace('PORT', String(port))),
    )
    expect(status).toMatch(/^HTTP\/1\.1 (421|400) /)
  })

  it.each(['TRACE', 'PROPFIND', 'PURGE'])('answers the method %s 401', async (method) => {
    const { port } = await start(stateFolder())
    const status = await rawStatus(port, [
      `${method} /v1/sandboxes HTTP/1.1`,
      `Host: 127.0.0.1:${String(port)}`,
    ])
    expect(status).toMatch(/^HTTP\/1\.1 401 /)
  })

  it('is no proxy: CONNECT gets no tunnel', async () => {
    const { port } = await start(stateFolder())
    const own = `127.0.0.1:${String(port)}`
    expect(await rawStatus(port, [`CONNECT ${own} HTTP/1.1`, `Host: ${own}`])).not.toMatch(/ 2\d\d/)
  })

  it('keeps its token over a restart', async () => {
    const folder = stateFolder()
    await (await start(folder)).stop()
    const before = readFileSync(join(folder, 'admin.token'), 'utf8')
    await start(folder)
    expect(readFileSync(join(folder, 'admin.token'), 'utf8')).toBe(before)
  })

  it('takes over a socket that nobody answers on', async () => {
    const folder = stateFolder()
    await leaveStaleSocket(join(folder, 'admin.sock'))
    expect(lstatSync(join(folder, 'admin.sock')).isSocket()).toBe(true)
    expect(await remoteOf(folder).isRunning()).toBe(false)
    await start(folder)
    expect(await remoteOf(folder).isRunning()).toBe(true)
  })

  it('refuses to start beside a broker that answers, and leaves that one alone', async () => {
    const folder = stateFolder()
    await start(folder)
    await expect(start(folder)).rejects.toThrow('another broker answers on')
    expect(await remoteOf(folder).isRunning()).toBe(true)
  })

  it('does not remove a file that is not a socket', async () => {
    const folder = stateFolder()
    writeFileSync(join(folder, 'admin.sock'), 'precious')
    await expect(start(folder)).rejects.toThrow('is in the way and is not a socket')
    expect(readFileSync(join(folder, 'admin.sock'), 'utf8')).toBe('precious')
  })

  it('refuses a socket path that the system would cut off, and a folder that others can enter', async () => {
    const deep = join(stateFolder(), 'd'.repeat(100))
    mkdirSync(deep, { mode: 0o700 })
    await expect(start(deep)).rejects.toThrow('set `state` to a shorter path')
    expect(() => ownerSocketPath(`/${'a'.repeat(96)}`)).toThrow('has 108 bytes')
    expect(ownerSocketPath(`/${'a'.repeat(95)}`)).toHaveLength(107)
    const open = stateFolder()
    chmodSync(open, 0o755)
    await expect(start(open)).rejects.toThrow('is open to others; run: chmod 700')
  })

  it('names the key to change and the holder when its port is taken', async () => {
    const { port } = await start(stateFolder())
    const options = {
      stateFolder: stateFolder(),
      listen: { host: '127.0.0.1', port },
      holderOf: () => 'process 42',
    }
    await expect(startAdminServer(adminBench().deps, options)).rejects.toThrow(
      `127.0.0.1:${String(port)} is taken by process 42; stop it or change \`listen.admin\``,
    )
    expect(await remoteOf(options.stateFolder).isRunning()).toBe(false)
  })
})

describe('operator token', () => {
  it.each([
    ['empty', ''],
    ['short', 'abc\n'],
    ['a hostile text', `${'a'.repeat(43)}\nX: y`],
  ])('does not replace or take a file that is %s', (_case, text) => {
    const folder = stateFolder()
    writeFileSync(join(folder, 'admin.token'), text, { mode: 0o600 })
    expect(() => operatorToken(folder, randomBytes)).toThrow('does not hold an operator token')
    expect(readFileSync(join(folder, 'admin.token'), 'utf8')).toBe(text)
  })

  it('refuses a file that others can read', () => {
    const folder = stateFolder()
    writeFileSync(join(folder, 'admin.token'), 'a'.repeat(43))
    chmodSync(join(folder, 'admin.token'), 0o644)
    expect(() => operatorToken(folder, randomBytes)).toThrow('chmod 600')
  })
})
