import { execFileSync, spawn, type ChildProcess } from 'node:child_process'
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { queryEvents, verifyEvents } from '../../src/audit/query.ts'
import { freshSecret } from '../helpers/attack-bench.ts'
import { ok, startOrigin, type Origin } from '../helpers/origin.ts'
import { proofCount, runSeed } from '../helpers/proof-count.ts'
import { basic, rawClient } from '../helpers/raw-client.ts'
import { seeded } from '../helpers/seeded.ts'
import { createTestCa } from '../helpers/test-ca.ts'

const seed = runSeed()
const main = join(import.meta.dirname, '../../src/main.ts')
const token = freshSecret()
const secret = freshSecret()

describe('a broker that is killed', () => {
  let folder: string
  let origin: Origin
  let port: number
  let child: ChildProcess | undefined

  const env = { PATH: process.env['PATH'] ?? '', KEY: secret, TOKEN: token, HOME: tmpdir() }
  const config = (): string => join(folder, 'octroi.yaml')
  const state = (): string => join(folder, 'data')

  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'octroi-crash-'))
    const ca = await createTestCa()
    const { cert, key } = await ca.issue({ names: ['api.good.test'] })
    origin = await startOrigin({ tls: { cert, key }, onRequest: ({ socket }) => void socket.write(ok('ok')) })
    port = await freePort()
    writeFileSync(join(folder, 'root.pem'), ca.cert)
    writeFileSync(
      config(),
      `
version: 1
state: data
listen: { proxy: 127.0.0.1:${port}, admin: 127.0.0.1:${await freePort()} }
resolver: { hosts: { api.good.test: [127.0.0.1] } }
trust: { system: false, ca: [root.pem] }
credentials: { key: { issuer: static, value: { env: KEY } } }
access:
  api:
    credential: key
    destinations: [{ host: api.good.test, port: ${origin.port}, addresses: [127.0.0.0/8] }]
    env: API_KEY
sandboxes: { s1: { agent: a1, identity: [{ token: { env: TOKEN } }], access: [api] } }
`,
      { mode: 0o600 },
    )
  })
  afterAll(async () => {
    child?.kill('SIGKILL')
    await origin.stop()
    rmSync(folder, { recursive: true, force: true })
  })

  const start = async (): Promise<number> => {
    const began = performance.now()
    child = spawn(process.execPath, [main, 'serve', '--config', config()], {
      cwd: folder,
      env,
      stdio: 'ignore',
    })
    for (;;) {
      const client = await rawClient(port).catch(() => undefined)
      client?.destroy()
      if (client !== undefined) return performance.now() - began
      if (child.exitCode !== null || performance.now() - began > 20_000)
        throw new Error('the broker did not start')
      await sleep(20)
    }
  }

  const kill = async (): Promise<void> => {
    const killed = child
    if (killed === undefined) return
    const exited = new Promise((resolve) => killed.once('exit', resolve))
    killed.kill('SIGKILL')
    await exited
  }

  const placeholder = (): string => {
    const text = execFileSync(
      process.execPath,
      [main, 'env', '--sandbox', 's1', '--format', 'json', '--config', config()],
      {
        cwd: folder,
        env,
        encoding: 'utf8',
      },
    )
    return (JSON.parse(text) as { API_KEY: string }).API_KEY
  }

  /** Swapped requests one after the other until the connection ends. */
  const load = async (name: string, handle: string, caPem: string): Promise<void> => {
    const authority = `api.good.test:${origin.port}`
    try {
      const raw = await rawClient(port)
      raw.write(
        `CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\nProxy-Authorization: ${basic('s1', token)}\r\n\r\n`,
      )
      if ((await raw.response()).status !== 200) return
      const client = await raw.startTls({ servername: 'api.good.test', ca: caPem })
      for (let i = 0; !client.isClosed; i++) {
        client.write(
          `GET /${name}-${i} HTTP/1.1\r\nHost: ${authority}\r\nAuthorization: Bearer ${handle}\r\n\r\n`,
        )
        await client.response(1_000)
      }
    } catch {
      // The broker is gone, which is what the case is about.
    }
  }

  it(`A283: every swap an upstream has seen is in the log, which verifies, and the store opens again (OCTROI_SEED=${seed})`, async () => {
    const random = seeded(seed)
    await start()
    const handle = placeholder()
    const caPem = execFileSync(process.execPath, [main, 'ca', 'show', '--config', config()], {
      cwd: folder,
      env,
      encoding: 'utf8',
    })
    for (let cycle = 0; cycle < proofCount(2, 200); cycle++) {
      const loads = Array.from({ length: 4 }, (_, n) => load(`c${cycle}n${n}`, handle, caPem))
      await sleep(150 + random.below(300))
      await kill()
      await Promise.all(loads)
      expect(verifyEvents(state())).toMatchObject({ ok: true })
      for (const name of ['events.db', 'store.db'].filter((file) => existsSync(join(state(), file)))) {
        const database = new DatabaseSync(join(state(), name))
        expect(database.prepare('PRAGMA integrity_check').get()).toEqual({ integrity_check: 'ok' })
        database.close()
      }
      const logged = new Set(queryEvents(state(), { sandbox: 's1' }).map(({ path }) => path))
      const swapped = origin.received.flatMap((text) =>
        [...text.matchAll(/^GET (\S+) HTTP/gm)].map((match) => match[1] ?? ''),
      )
      expect(swapped.length).toBeGreaterThan(0)
      expect(swapped.filter((path) => !logged.has(path))).toEqual([])
      // Ten times the two seconds of the row.
      expect(await start()).toBeLessThan(20_000)
      const open = queryEvents(state(), { sandbox: 's1' }).filter(({ isOpen }) => isOpen === true)
      expect(open.filter(({ path }) => path?.startsWith(`/c${cycle}`) === true)).toEqual([])
    }
    expect(placeholder()).toBe(handle)
    await kill()
  })
})

async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  await new Promise((resolve) => server.close(resolve))
  return port
}
