import { setTimeout as sleep } from 'node:timers/promises'
import { Option } from 'commander'
import type { App, AppOptions } from '../app.ts'
import { OperatorError } from '../core/errors.ts'
import { StateTaken } from '../store/sqlite-lock.ts'
import type { Io, Register } from './io.ts'
import { durationOption } from './lifecycle-access.ts'

/** Exit code of `serve --private` when another process has the state folder: EX_TEMPFAIL of sysexits.h. */
export const stateTakenExit = 75
/** Signals of one key press may come twice (terminal and npm); only a later one means "now", `ms`. */
const repeatMs = 1_000
/** How long a private broker that hands over may need to end, `ms`. */
const handOverWithinMs = 10_000
const tryEveryMs = 100

interface ServeOptions {
  readonly private?: true
  readonly idleExit?: string
}

/** Adds `octroi serve`. Runs until SIGTERM or SIGINT, which drain; a second one ends what still drains. */
export const registerServe: Register = (program, context) => {
  program
    .command('serve')
    .description('run the broker: proxy, admin API')
    .addOption(new Option('--private', 'serve runs alone').hideHelp())
    .addOption(
      new Option('--idle-exit <duration>', 'with --private: end after so long without a run').hideHelp(),
    )
    .action(
      context.run((options: ServeOptions) => {
        const { io } = context
        const configPath = context.configPath()
        return options.private === true ? servePrivate(io, configPath, options) : serve(io, configPath)
      }),
    )
}

async function serve(io: Io, configPath: string): Promise<number> {
  const { createLogger } = await import('../logger.ts')
  const log = createLogger({ format: io.isTerminal ? 'text' : 'json' })
  const app = await start({ configFile: configPath, env: { ...io.env }, log })
  const stopped = untilStopped(
    app,
    (message) => log.error({}, message),
    () => {
      io.err('octroi: stopping; a second signal ends what is still in flight')
    },
  )
  for (const { name, address } of app.listeners) io.out(`ready  ${name.padEnd(6)} ${address}`)
  for (const note of app.notes) io.out(`note   ${note}`)
  const { serveHints } = await import('./serve-hints.ts')
  for (const line of await serveHints(app, { io, configPath })) io.out(line)
  await stopped
  return 0
}

/** The private broker of `octroi run`: everything it has to say goes to a log. */
async function servePrivate(io: Io, configPath: string, { idleExit = '30s' }: ServeOptions): Promise<number> {
  const idleExitMs = durationOption('--idle-exit', idleExit) ?? 0
  const [{ startApp }, { createLogger }] = await Promise.all([import('../app.ts'), import('../logger.ts')])
  const log = createLogger()
  try {
    const app = await startApp({ configFile: configPath, env: { ...io.env }, log, private: { idleExitMs } })
    log.info({ pid: process.pid }, 'a private broker is ready')
    const stopped = untilStopped(app, (message) => log.error({}, message))
    await stopped
    log.info({ pid: process.pid }, 'the private broker has ended')
    return 0
  } catch (error) {
    if (!(error instanceof StateTaken)) throw error
    io.err(`octroi: ${error.message}`)
    return stateTakenExit
  }
}

/** Starts the broker, in the place of a private one that no run uses. */
async function start(options: AppOptions): Promise<App> {
  const { startApp } = await import('../app.ts')
  let end: number | undefined
  for (;;) {
    try {
      return await startApp(options)
    } catch (error) {
      if (!(error instanceof StateTaken)) throw error
      if (end === undefined) await takeOver(error, options.configFile)
      end ??= performance.now() + handOverWithinMs
      if (performance.now() > end) throw error
      await sleep(tryEveryMs)
    }
  }
}

/** Asks a private broker to end; says who has the state folder when it cannot. */
async function takeOver(taken: StateTaken, configPath: string): Promise<void> {
  const { createRemote } = await import('./remote.ts')
  const remote = createRemote({ stateFolder: taken.folder, configPath })
  // An older broker, or one that is starting or stopping.
  const status = await remote.status().catch(() => undefined)
  if (status?.private !== true) throw taken
  if ((await remote.handOver()) === 'stopping') return
  const { pid, runs } = status
  throw new OperatorError(
    `a private broker (process ${pid}), started by octroi run, uses the state folder ${taken.folder} for ` +
      `${runs} ${runs === 1 ? 'run' : 'runs'}; end them and start again, or end it with: kill ${pid} ` +
      '(they then have no network)',
    { cause: taken },
  )
}

function untilStopped(app: App, complain: (message: string) => void, announce?: () => void): Promise<void> {
  return new Promise((resolve, reject) => {
    let first: number | undefined
    const stop = (): void => {
      const now = performance.now()
      if (first !== undefined && now - first < repeatMs) return
      if (first === undefined) announce?.()
      first ??= now
      app.stop().then(resolve, reject)
    }
    process.on('SIGTERM', stop)
    process.on('SIGINT', stop)
    process.on('SIGHUP', () => {
      app.reload().catch((error: unknown) => {
        complain(error instanceof OperatorError ? error.message : `reload failed: ${String(error)}`)
      })
    })
    void app.idle.then(() => app.stop()).then(resolve, reject)
    // A closed terminal or a pipe without a reader must not end the broker.
    process.on('SIGPIPE', () => undefined)
    process.stdout.on('error', () => undefined)
    process.stderr.on('error', () => undefined)
  })
}
