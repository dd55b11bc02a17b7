import { startApp, type App } from '../app.ts'
import { OperatorError } from '../core/errors.ts'
import { createLogger } from '../logger.ts'
import type { Io, Register } from './io.ts'

/** Signals of one key press may come twice (terminal and npm); only a later one means "now", `ms`. */
const repeatMs = 1_000

/** Adds `octroi serve`. Runs until SIGTERM or SIGINT, which drain; a second one ends what still drains. */
export function registerServe(hints: (app: App, configPath: string) => Promise<readonly string[]>): Register {
  return (program, context) => {
    program
      .command('serve')
      .description('run the broker: proxy, admin API')
      .action(
        context.run(async () => {
          const { io } = context
          const configPath = context.configPath()
          const log = createLogger({ format: io.isTerminal ? 'text' : 'json' })
          const app = await startApp({ configFile: configPath, env: { ...io.env }, log })
          const stopped = untilStopped(app, io, (message) => log.error({}, message))
          for (const { name, address } of app.listeners) io.out(`ready  ${name.padEnd(6)} ${address}`)
          for (const note of app.notes) io.out(`note   ${note}`)
          for (const line of await hints(app, configPath)) io.out(line)
          await stopped
          return 0
        }),
      )
  }
}

function untilStopped(app: App, io: Io, complain: (message: string) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    let first: number | undefined
    const stop = (): void => {
      const now = performance.now()
      if (first !== undefined && now - first < repeatMs) return
      if (first === undefined) io.err('octroi: stopping; a second signal ends what is still in flight')
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
    // A closed terminal or a pipe without a reader must not end the broker.
    process.on('SIGPIPE', () => undefined)
    process.stdout.on('error', () => undefined)
    process.stderr.on('error', () => undefined)
  })
}
