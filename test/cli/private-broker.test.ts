import { spawn } from 'node:child_process'
import { readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it, onTestFinished } from 'vitest'
import { queryEvents } from '../../src/audit/query.ts'
import { installationOf } from '../../src/cli/offline.ts'
import type { Installation } from '../../src/cli/offline.ts'
import { privateLogPath } from '../../src/cli/private-broker.ts'
import { openSession } from '../../src/cli/run-session.ts'
import type { RunSession } from '../../src/cli/run.ts'
import { demoKey, installed } from '../helpers/installation.ts'
import type { Installed } from '../helpers/installation.ts'
import { memoryIo } from '../helpers/memory-io.ts'

const bin = join(import.meta.dirname, '../../bin/octroi.js')

interface Place extends Installed {
  readonly installation: Installation
  /** What runs said on stderr. */
  readonly err: string[]
  session(sandbox?: string): Promise<RunSession>
  /** Process of the broker that answers; it is ended with the test. */
  pid(): Promise<number>
}

/** An installation whose private brokers end soon after their last run. */
function place({ idleExit = '1s', ...own }: Record<string, string> = {}): Place {
  const made = installed()
  const env = { DEMO_KEY: demoKey, PATH: process.env['PATH'], OCTROI_IDLE_EXIT: idleExit, ...own }
  const { io, err } = memoryIo({ env })
  const installation = installationOf(made.configPath, env)
  return {
    ...made,
    installation,
    err,
    session: (sandbox = 'first') => openSession(installation, sandbox, { io, configPath: made.configPath }),
    async pid() {
      const { pid } = await installation.remote.status()
      onTestFinished(() => end(pid))
      return pid
    },
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

async function ended(pid: number): Promise<void> {
  for (let waited = 0; isAlive(pid); waited += 50) {
    if (waited > 10_000) throw new Error(`process ${pid} still runs`)
    await sleep(50)
  }
}

async function end(pid: number): Promise<void> {
  if (isAlive(pid)) process.kill(pid, 'SIGKILL')
  await ended(pid)
}

function serve({ configPath, folder }: Installed) {
  const child = spawn(process.execPath, [bin, 'serve', '--config', configPath], {
    cwd: folder,
    env: { DEMO_KEY: demoKey, PATH: process.env['PATH'] },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const exit = new Promise<number | null>((resolve) => child.once('exit', resolve))
  onTestFinished(async () => {
    child.kill('SIGKILL')
    await exit
  })
  return { child, exit, stderr: text(child.stderr) }
}

function readyLine(child: ReturnType<typeof serve>['child']): Promise<string> {
  return new Promise((resolve) => {
    let seen = ''
    child.stdout.on('data', (chunk: Buffer) => {
      seen += chunk.toString()
      if (seen.includes('ready')) resolve(seen)
    })
  })
}

describe('private broker of octroi run', () => {
  it('is started once for runs that come at the same time, and ends by itself after the last', async () => {
    const { session, pid, installation, state } = place({ idleExit: '1s' })
    const sessions = await Promise.all([session(), session(), session()])
    const broker = await pid()
    expect(await installation.remote.status()).toMatchObject({ private: true, runs: 3, ready: true })
    expect(new Set(sessions.map(({ socketPath }) => socketPath)).size).toBe(3)
    expect((await installation.remote.status()).listeners.map(({ address }) => address)).toEqual([
      `unix:${join(state, 'admin.sock')}`,
    ])
    await sessions[0].ended(0)
    await sessions[0].close()
    await sessions[1].close()
    await sleep(1_500)
    expect(isAlive(broker)).toBe(true)
    await sessions[2].close()
    await ended(broker)
    expect(queryEvents(state, { kind: 'run' })).toMatchObject([{ sandbox: 'first', exit: 0 }])
    expect(await installation.remote.isRunning()).toBe(false)
    const log = readFileSync(privateLogPath(state), 'utf8')
    expect(log.match(/a private broker is ready/g)).toHaveLength(1)
    expect(log).toContain('the private broker has ended')
    expect(statSync(privateLogPath(state)).mode & 0o777).toBe(0o600)
  })

  it('is started anew when it was killed, and the run that lost it says so', async () => {
    const { session, pid, err } = place()
    const first = await session()
    const killed = await pid()
    process.kill(killed, 'SIGKILL')
    await ended(killed)
    const second = await session()
    const fresh = await pid()
    expect(fresh).not.toBe(killed)
    expect(err).toEqual([expect.stringContaining('the broker has ended')])
    // The end of the first is written by the one that runs now.
    await first.ended(3)
    await first.close()
    await second.close()
    await ended(fresh)
  })

  it('does not outlive a run that was killed', async () => {
    const { configPath, folder, pid, installation } = place()
    const script = `const [{ installationOf }, { openSession }] = await Promise.all([
      import(${JSON.stringify(new URL('../../src/cli/offline.ts', import.meta.url).href)}),
      import(${JSON.stringify(new URL('../../src/cli/run-session.ts', import.meta.url).href)})])
      const io = { out() {}, err() {}, env: process.env, cwd: '/' }
      await openSession(installationOf(process.argv[1], process.env), 'first', { io, configPath: process.argv[1] })
      console.log('open'); setInterval(() => {}, 1000)`
    const run = spawn(
      process.execPath,
      ['--disable-warning=ExperimentalWarning', '--input-type=module', '-e', script, configPath],
      {
        cwd: folder,
        env: { DEMO_KEY: demoKey, PATH: process.env['PATH'], OCTROI_IDLE_EXIT: '1s' },
        stdio: ['ignore', 'pipe', 'inherit'],
      },
    )
    await new Promise((resolve) => run.stdout.once('data', resolve))
    const broker = await pid()
    expect((await installation.remote.status()).runs).toBe(1)
    run.kill('SIGKILL')
    await ended(broker)
  })

  it('is let go again when the sandbox is not there', async () => {
    const { session, pid, octroi } = place({ idleExit: '2s' })
    await expect(session('frist')).rejects.toThrow('did you mean first?')
    await ended(await pid())
    expect((await octroi('sandbox', 'pause', 'first')).code).toBe(0)
  })

  it('reads a changed configuration, since it outlives the run it was started for', async () => {
    const { session, pid, installation, configPath } = place()
    const opened = await session()
    const broker = await pid()
    const before = (await installation.remote.status()).policy
    writeFileSync(configPath, readFileSync(configPath, 'utf8').replace('example.org', 'example.net'))
    for (let waited = 0; (await installation.remote.status()).policy === before; waited += 50) {
      expect(waited).toBeLessThan(5_000)
      await sleep(50)
    }
    await opened.close()
    await ended(broker)
  })

  it('says why it cannot be started, with the end of its log', async () => {
    const { session, state } = place({ NODE_TLS_REJECT_UNAUTHORIZED: '0' })
    await expect(session()).rejects.toThrow(
      /the private broker ended with code 2:\n.*NODE_TLS_REJECT_UNAUTHORIZED/,
    )
    expect(readFileSync(privateLogPath(state), 'utf8')).toContain('NODE_TLS_REJECT_UNAUTHORIZED')
  })

  it('waits for a state folder that another command holds for a moment', async () => {
    const { session, pid, state } = place()
    const { lockState } = await import('../../src/store/sqlite-lock.ts')
    const lock = lockState(state)
    const opening = session()
    await sleep(1_000)
    lock.release()
    const opened = await opening
    const broker = await pid()
    await opened.close()
    await ended(broker)
  })
})

describe('octroi serve beside a private broker', () => {
  it('takes its place when no run uses it', async () => {
    const made = place({ idleExit: '60s' })
    await (await made.session()).close()
    const broker = await made.pid()
    const { child } = serve(made)
    expect(await readyLine(child)).toContain('ready  proxy')
    expect(isAlive(broker)).toBe(false)
    expect(await made.installation.remote.status()).toMatchObject({ private: false, pid: child.pid })
    expect(await made.installation.remote.handOver()).toBe('permanent')
  })

  it('says which process holds the state while runs use it', async () => {
    const made = place()
    const session = await made.session()
    const broker = await made.pid()
    const { exit, stderr } = serve(made)
    expect(await exit).toBe(1)
    expect(await stderr).toMatch(
      new RegExp(`private broker \\(process ${broker}\\).*for 1 run; .*kill ${broker}`),
    )
    await session.close()
    await ended(broker)
  })
})
