import { existsSync, readFileSync } from 'node:fs'
import { isAbsolute, join, resolve } from 'node:path'
import { Command, CommanderError } from 'commander'
import { OperatorError, Refusal } from '../core/errors.ts'
import type { CommandContext, Io, Register } from './io.ts'
import { printable } from './table.ts'

/** Everything a run of the program is made of. */
export interface ProgramOptions {
  readonly io: Io
  /** Command groups in the order of the help text. */
  readonly groups: readonly Register[]
}

/**
 * Runs one command line (without the program's own path) and returns the exit code: the command's own, 0 for help and
 * version, 2 for wrong usage.
 */
export async function runProgram(argv: readonly string[], options: ProgramOptions): Promise<number> {
  const { io } = options
  let exitCode = 0
  let configFlag: string | undefined
  const context: CommandContext = {
    io,
    run:
      (action) =>
      async (...args) => {
        exitCode = await guarded(io, () => action(...args))
      },
    configPath: () => configPath(io, configFlag),
  }
  const program = createProgram(io)
  for (const register of options.groups) register(program, context)
  takeConfigEverywhere(program, (path) => (configFlag = path))
  try {
    await program.parseAsync([...argv], { from: 'user' })
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error
    const isAnswer = error.code === 'commander.helpDisplayed' || error.code === 'commander.version'
    return isAnswer ? 0 : 2
  }
  return exitCode
}

function createProgram(io: Io): Command {
  return (
    new Command('octroi')
      .description('Egress proxy and secret broker for sandboxed MCP servers and the agents behind them.')
      .version(version(), '-V, --version')
      .option(
        '--config <file>',
        'configuration (default: OCTROI_CONFIG, the XDG folder, /etc/octroi/octroi.yaml)',
      )
      // `run` must leave the options of the command it starts alone.
      .enablePositionalOptions()
      .showHelpAfterError('(octroi --help lists the commands)')
      .addHelpText('after', '\nExit codes: 0 good, 1 denied or failed, 2 wrong usage or configuration.')
      .exitOverride()
      .configureOutput({
        writeOut: (text) => io.out(text.trimEnd()),
        writeErr: (text) => io.err(text.trimEnd()),
        outputError: (text, write) => write(`octroi: ${printableLines(text.replace(/^error: /, ''))}`),
      })
  )
}

/** Wrong usage quotes what was typed. */
function printableLines(text: string): string {
  return text.split('\n').map(printable).join('\n')
}

/** Positional options would make `octroi check --config F` unknown: each command takes it as the program does. */
function takeConfigEverywhere(command: Command, take: (path: string) => void): void {
  if (!command.options.some((option) => option.long === '--config'))
    command.addOption(command.createOption('--config <file>').hideHelp())
  command.on('option:config', take)
  for (const child of command.commands) takeConfigEverywhere(child, take)
}

async function guarded(io: Io, action: () => Promise<number>): Promise<number> {
  try {
    return await action()
  } catch (error) {
    if (error instanceof OperatorError) {
      io.err(`octroi: ${error.message}`)
      return error.exitCode
    }
    if (error instanceof Refusal) {
      io.err(`octroi: ${error.detail ?? error.hint} (${error.reason})`)
      return 1
    }
    io.err(`octroi: unexpected failure: ${error instanceof Error ? error.message : 'unknown'}`)
    if (io.env['OCTROI_DEBUG'] === '1' && error instanceof Error) io.err(error.stack ?? '')
    else io.err('octroi: OCTROI_DEBUG=1 shows where')
    return 1
  }
}

/** Never the working directory: a hostile repository must not bring a policy. */
function configPath(io: Io, flag: string | undefined): string {
  const named = flag ?? (io.env['OCTROI_CONFIG'] || undefined)
  if (named !== undefined) return resolve(io.cwd, named)
  const places = [...xdgPlaces(io.env), '/etc/octroi/octroi.yaml']
  const found = places.find((path) => existsSync(path))
  if (found !== undefined) return found
  throw new OperatorError(
    `no configuration: ${places.join(' and ')} do not exist; ` +
      'name one with --config FILE or OCTROI_CONFIG, or write a first one with: octroi init',
    { exitCode: 2 },
  )
}

function xdgPlaces(env: Io['env']): string[] {
  const { XDG_CONFIG_HOME: xdg, HOME: home } = env
  // XDG base directory specification: a relative path is invalid and must be ignored.
  if (xdg !== undefined && isAbsolute(xdg)) return [join(xdg, 'octroi', 'octroi.yaml')]
  return home !== undefined && isAbsolute(home) ? [join(home, '.config', 'octroi', 'octroi.yaml')] : []
}

function version(): string {
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8')
  const parsed: unknown = JSON.parse(text)
  return typeof parsed === 'object' && parsed !== null && 'version' in parsed ? String(parsed.version) : ''
}
