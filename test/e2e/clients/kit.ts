import { execFileSync, spawn } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { createServer, type AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { delimiter, dirname, join } from 'node:path'
import { expect } from 'vitest'
import type { LoggedEvent } from '../../../src/audit/query.ts'
import { placeholdersOf } from '../../../src/cli/sandbox-facts.ts'
import { sandboxEnvironment } from '../../../src/sandbox/environment.ts'
import { findProgram } from '../../../src/sandbox/mounts.ts'
import type { TestBroker } from '../../helpers/broker.ts'

/** A program that ended. */
export interface Ran {
  /** `null` when a signal ended it. */
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
  /** Both, for searching. */
  readonly output: string
}

export interface RunOptions {
  readonly cwd?: string
  /** Written to the standard input, which is empty otherwise. */
  readonly input?: string
  /** On top of the environment of the sandbox. */
  readonly env?: Readonly<Record<string, string>>
  /** Ends the program and all it started after this time, `ms`; default 60 s. */
  readonly timeoutMs?: number
}

/** Where programs run as in a sandbox: an empty home, and no variables but PATH and what `octroi env` prints. */
export interface Shell {
  readonly home: string
  readonly env: Readonly<Record<string, string>>
  run(command: string, args: readonly string[], options?: RunOptions): Promise<Ran>
  stop(): Promise<void>
}

export interface ShellOptions {
  /** Folders that go in front of PATH, for programs that a version manager hides. */
  readonly path?: readonly string[]
}

export const hostPath = process.env['PATH'] ?? '/usr/local/bin:/usr/bin:/bin'

export async function openShell(
  broker: TestBroker,
  sandbox: string,
  options: ShellOptions = {},
): Promise<Shell> {
  const view = broker.app.holder.current().sandboxes.get(sandbox)
  if (view === undefined) throw new TypeError(`no sandbox ${sandbox}`)
  const proofs = view.identity.flat()
  const ownPort = proofs.find((proof) => proof.kind === 'port')?.port
  const takesToken = proofs.some((proof) => proof.kind === 'token')
  const { bundle, ca, javaTrustStore, aptConf } = broker.app.trust
  const home = await mkdtemp(join(tmpdir(), 'octroi-client-'))
  const env = {
    PATH: [...(options.path ?? []), hostPath].join(delimiter),
    HOME: home,
    ...sandboxEnvironment({
      proxyScheme: 'http',
      proxyHost: '127.0.0.1',
      proxyPort: ownPort ?? broker.port,
      login: takesToken ? { user: sandbox, token: await broker.token(sandbox) } : undefined,
      bundlePath: bundle,
      caPath: ca,
      javaTrustStore,
      aptConf,
      placeholders: placeholdersOf(view),
    }),
  }
  return {
    home,
    env,
    run: (command, args, run = {}) =>
      runProgram(command, args, { cwd: home, ...run, env: { ...env, ...run.env } }),
    stop: () => rm(home, { recursive: true, force: true, maxRetries: 3 }),
  }
}

// Never a synchronous child: the broker and the upstreams live in this process.
function runProgram(command: string, args: readonly string[], options: RunOptions): Promise<Ran> {
  const { cwd, input, env, timeoutMs = 60_000 } = options
  return new Promise((resolve, reject) => {
    // A group of its own, so that whatever a client starts ends with it.
    const child = spawn(command, args, { cwd, env, detached: true, stdio: ['pipe', 'pipe', 'pipe'] })
    const chunks = { stdout: [] as Buffer[], stderr: [] as Buffer[] }
    child.stdout.on('data', (chunk: Buffer) => chunks.stdout.push(chunk))
    child.stderr.on('data', (chunk: Buffer) => chunks.stderr.push(chunk))
    // A client may end before it has read everything.
    child.stdin.on('error', () => undefined)
    child.stdin.end(input ?? '')
    const timer = setTimeout(() => {
      try {
        if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL')
      } catch {
        // The group has just ended by itself.
      }
    }, timeoutMs)
    child.once('error', reject)
    child.once('close', (code) => {
      clearTimeout(timer)
      const stdout = Buffer.concat(chunks.stdout).toString('utf8')
      const stderr = Buffer.concat(chunks.stderr).toString('utf8')
      resolve({ code, stdout, stderr, output: `${stdout}\n${stderr}` })
    })
  })
}

/** Which exchanges of an agent to wait for. */
export interface Wanted {
  /** Absent: any. */
  readonly host?: string
  readonly method?: string
  readonly path?: string | RegExp
  /** How many at least; default one. */
  readonly count?: number
}

/** The ended exchanges of an agent that match, once there are `count` of them in the log, oldest first. */
export async function eventsOf(
  broker: TestBroker,
  agent: string,
  { host, method, path, count = 1 }: Wanted,
): Promise<LoggedEvent[]> {
  const isPath = (found: string | undefined): boolean =>
    path === undefined || (typeof path === 'string' ? found === path : path.test(found ?? ''))
  const ended = (events: readonly LoggedEvent[]): LoggedEvent[] =>
    events.filter(
      (event) =>
        event.kind === 'exchange' &&
        !event.isOpen &&
        event.agent === agent &&
        (host === undefined || event.host === host) &&
        (method === undefined || event.method === method) &&
        isPath(event.path),
    )
  return ended(await broker.events((events) => ended(events).length >= count))
}

/** A value of a credential in every place where it must not be: what clients printed and what the log holds. */
export async function expectNowhere(broker: TestBroker, secret: string, ran: readonly Ran[]): Promise<void> {
  // As Basic credentials have it behind a user name of any length: three alignments, without the edges.
  const encoded = ['', 'x', 'xx'].map((before) =>
    Buffer.from(before + secret)
      .toString('base64')
      .slice(4, -4),
  )
  const forms = [secret, ...encoded]
  const texts = [
    ...ran.map(({ output }) => output),
    JSON.stringify(await broker.events()),
    broker.log.join(''),
  ]
  for (const form of forms) for (const text of texts) expect(text).not.toContain(form)
}

/** A port of the loopback that nobody has at the moment. */
export async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  await new Promise((resolve) => server.close(resolve))
  return port
}

/** Is the program on this machine? */
export const has = (program: string): boolean => findProgram(program, hostPath) !== undefined

/**
 * What a program prints, in the machine's own environment, or `undefined` if it fails: for the file that a version manager's shim
 * stands for, since shims find nothing without the variables and the home that a sandbox has not.
 */
export function printedBy(command: string, args: readonly string[]): string | undefined {
  try {
    const found = execFileSync(command, args, {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    }).trim()
    return found === '' ? undefined : found
  } catch {
    return undefined
  }
}

/** The real Python, or `undefined`. */
export const python = printedBy('python3', ['-c', 'import sys; print(sys.executable)'])

/** The folder of the real cargo and rustc, or `undefined`. */
export const cargoFolder = ((): string | undefined => {
  const found = printedBy('rustup', ['which', 'cargo']) ?? findProgram('cargo', hostPath)
  return found === undefined ? undefined : dirname(found)
})()

/**
 * The name of a suite that may not run here: a reason is printed, since a reporter shows only the number of skipped
 * tests, and stands in the name.
 */
export function titleOf(title: string, reason: string | undefined): string {
  if (reason === undefined) return title
  process.stderr.write(`skipped: ${title}: ${reason}\n`)
  return `${title} (skipped: ${reason})`
}

/** Why one of these programs keeps a suite from running. */
export function missing(...programs: readonly string[]): string | undefined {
  const absent = programs.filter((program) => !has(program))
  return absent.length === 0 ? undefined : `${absent.join(', ')} is not installed`
}
