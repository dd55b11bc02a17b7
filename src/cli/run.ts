import { mkdir } from 'node:fs/promises'
import { resolve } from 'node:path'
import { OperatorError } from '../core/errors.ts'
import type { TrustFiles } from '../sandbox/bundle.ts'
import type { PlaceholderVariable } from '../sandbox/environment.ts'
import { launch, octroiFailed } from '../sandbox/launcher.ts'
import type { Launched } from '../sandbox/launcher.ts'
import type { Io, Register } from './io.ts'

/** A broker that serves one sandbox for the length of one run: the running one, or a private one. */
export interface RunSession {
  /** Unix socket that is the identity of the sandbox, made for this run. */
  readonly socketPath: string
  readonly trust: TrustFiles
  readonly placeholders: readonly PlaceholderVariable[]
  /** Paths that no sandbox may see: the state folder, files with credentials. */
  readonly protectedPaths: readonly string[]
  /** Records the end of the run. */
  ended(exit: number): Promise<void>
  /** Closes the socket, and a private broker. */
  close(): Promise<void>
}

/** Where sessions come from; wired by the program. */
export interface RunDeps {
  /** Opens a session for a living sandbox. Throws `OperatorError` when there is none or the broker refuses. */
  open(configPath: string, sandbox: string): Promise<RunSession>
}

interface RunOptions {
  readonly sandbox: string
  readonly input?: string
  readonly output?: string
  readonly ro: readonly string[]
  readonly env: readonly string[]
}

const forwarded: readonly NodeJS.Signals[] = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT', 'SIGUSR2', 'SIGWINCH']

const collect = (value: string, previous: readonly string[]): string[] => [...previous, value]

/** Adds `octroi run`. Its exit code is the command's; 125 says that Octroi failed before or around it. */
export function registerRun(deps: RunDeps): Register {
  return (program, context) => {
    program
      .command('run')
      .description('run a command, such as an MCP server over stdio, with no network but the broker')
      .requiredOption('--sandbox <name>', 'the sandbox whose policy applies')
      .option('--input <dir>', 'folder it sees read-only as /workspace/input')
      .option('--output <dir>', 'folder it may write, as /workspace/output; made if missing')
      .option('--ro <path>', 'path it sees read-only where it is (repeatable)', collect, [])
      .option('--env <name[=value]>', 'variable to set, or to pass on (repeatable)', collect, [])
      .argument('<command>', 'the command')
      .argument('[args...]', 'its arguments')
      .passThroughOptions()
      .addHelpText(
        'after',
        '\nWhere no broker runs, the first run starts one for itself and for the others; it ends 30 s after the last\n' +
          '(OCTROI_IDLE_EXIT=2m: after two minutes), logs to private-broker.log in the state folder, and has the\n' +
          'environment of the run that started it.',
      )
      .action(
        context.run(async (command: string, args: readonly string[], options: RunOptions) => {
          try {
            return await run({
              deps,
              io: context.io,
              configPath: context.configPath(),
              command,
              args,
              options,
            })
          } catch (error) {
            // stdout belongs to the command's protocol, and every other exit code to the command.
            context.io.err(`octroi: ${error instanceof Error ? error.message : 'unexpected failure'}`)
            return octroiFailed
          }
        }),
      )
  }
}

async function run(what: {
  readonly deps: RunDeps
  readonly io: Io
  readonly configPath: string
  readonly command: string
  readonly args: readonly string[]
  readonly options: RunOptions
}): Promise<number> {
  const { io, options } = what
  const env = variables(options.env, io.env)
  const at = (path: string) => resolve(io.cwd, path)
  const output = options.output === undefined ? undefined : at(options.output)
  if (output !== undefined) await makeFolder(output)
  const session = await what.deps.open(what.configPath, options.sandbox)
  try {
    const launched = await launch({
      command: what.command,
      args: what.args,
      socketPath: session.socketPath,
      trust: session.trust,
      placeholders: session.placeholders,
      env,
      workspace: {
        input: options.input === undefined ? undefined : at(options.input),
        output,
        readOnly: options.ro.map(at),
        protectedPaths: session.protectedPaths,
      },
      hostPath: io.env['PATH'] ?? '',
    })
    const exit = await withSignals(launched)
    await session.ended(exit)
    return exit
  } finally {
    await session.close()
  }
}

async function withSignals(launched: Launched): Promise<number> {
  const forward = (signal: NodeJS.Signals) => launched.signal(signal)
  for (const signal of forwarded) process.on(signal, forward)
  try {
    return await launched.exit
  } finally {
    for (const signal of forwarded) process.off(signal, forward)
  }
}

async function makeFolder(path: string): Promise<void> {
  await mkdir(path, { recursive: true }).catch((cause: unknown) => {
    throw new OperatorError(`cannot make the folder ${path}`, { cause, exitCode: 2 })
  })
}

/** Variables from `NAME=VALUE` and `NAME`, the latter taken from our own environment. */
function variables(words: readonly string[], own: Io['env']): Record<string, string> {
  const env: Record<string, string> = {}
  for (const word of words) {
    const [, name, value] = /^([A-Za-z_][A-Za-z0-9_]*)(?:=([^\0]*))?$/s.exec(word) ?? []
    if (name === undefined)
      throw new OperatorError(`--env takes NAME or NAME=VALUE: "${word}"`, { exitCode: 2 })
    const taken = value ?? own[name]
    if (taken === undefined)
      throw new OperatorError(`--env ${name}: there is no such variable here`, { exitCode: 2 })
    env[name] = taken
  }
  return env
}
