import type { LoadResult } from '../config/load.ts'
import type { Config } from '../config/model.ts'
import { formatProblem } from '../config/problem.ts'
import { systemClock } from '../core/clock.ts'
import { OperatorError } from '../core/errors.ts'
import type { Answer, Records } from './explain.ts'
import type { Io, Register } from './io.ts'
import { printable } from './table.ts'
import { subjectLine, traceLines } from './trace-lines.ts'

/** What the commands need of the parts that make keys and open the store. */
export interface CheckDeps {
  /** Makes the certificate authority of a state folder, if it has none. */
  makeAuthority(stateFolder: string): Promise<void>
  /** What the store of a configuration holds, read without changing it; `undefined` while there is none. */
  readRecords(config: Config): Promise<Records | undefined>
}

/** Adds `octroi check`, `octroi init` and `octroi explain`. */
export function registerCheck(deps: CheckDeps): Register {
  return (program, context) => {
    const { io } = context
    program
      .command('check')
      .description('check the configuration and execute nothing')
      .option('--json', 'print problems and warnings as JSON')
      .action(
        context.run((options: { json?: boolean }) => check(io, context.configPath(), options.json === true)),
      )
    program
      .command('init')
      .argument('[dir]', 'where to (default: the folder that commands look in)')
      .description('write a commented first configuration and make the certificate authority')
      .action(
        context.run(async (dir: string | undefined) => {
          const { initConfig } = await import('./init.ts')
          return initConfig(io, dir, deps.makeAuthority)
        }),
      )
    program
      .command('explain')
      .description('show how a request would be decided, and by which rule')
      .requiredOption('--sandbox <name>', 'the sandbox that asks')
      .argument('<method>', 'HTTP method, or CONNECT')
      .argument('<url>', 'absolute URL, or HOST:PORT for CONNECT')
      .option('--address <ip>', 'address that the host would resolve to')
      .option('--placeholder <text>', 'placeholder that the request would carry')
      .option('--json', 'print the trace as JSON')
      .action(
        context.run(async (method: string, url: string, options: ExplainOptions) => {
          const config = configOrThrow(await load(io, context.configPath()))
          const { explainRequest } = await import('./explain.ts')
          const records = (await deps.readRecords(config)) ?? { sandboxes: [], tokens: [], handles: [] }
          const question = { method, url, ...options }
          const answer = explainRequest({ config, records, now: systemClock.now() }, question)
          if (options.json === true) io.out(JSON.stringify(answer))
          else for (const line of answerLines(answer)) io.out(line)
          return answer.verdict === 'allow' ? 0 : 1
        }),
      )
  }
}

interface ExplainOptions {
  readonly sandbox: string
  readonly address?: string
  readonly placeholder?: string
  readonly json?: boolean
}

async function load(io: Io, path: string): Promise<LoadResult> {
  const { loadConfig } = await import('../config/load.ts')
  return loadConfig(path, { env: io.env, now: systemClock.now() })
}

async function check(io: Io, path: string, asJson: boolean): Promise<number> {
  const loaded = await load(io, path)
  const problems = loaded.ok ? [] : loaded.problems
  if (asJson) {
    io.out(JSON.stringify({ ok: loaded.ok, file: path, problems, warnings: loaded.warnings }))
    return loaded.ok ? 0 : 2
  }
  for (const problem of problems) io.err(printable(formatProblem(problem)))
  for (const warning of loaded.warnings) io.err(`warning: ${printable(formatProblem(warning))}`)
  if (!loaded.ok) {
    io.err(`${path}: ${problems.length === 1 ? '1 problem' : `${problems.length} problems`}`)
    return 2
  }
  io.out(`${path}: ${summary(loaded.config)}`)
  return 0
}

function summary({ files, sandboxes, templates, access }: Config): string {
  const count = (number: number, noun: string): string => `${number} ${noun}${number === 1 ? '' : 's'}`
  const accesses = `${access.size} access${access.size === 1 ? '' : 'es'}`
  const others = files.length > 1 ? ` in ${files.length} files` : ''
  return `good: ${count(sandboxes.size, 'sandbox').replace(/xs$/, 'xes')}, ${count(templates.size, 'template')}, ${accesses}${others}`
}

function configOrThrow(loaded: LoadResult): Config {
  if (loaded.ok) return loaded.config
  const lines = loaded.problems.map((problem) => printable(formatProblem(problem)))
  throw new OperatorError(['the configuration has problems', ...lines].join('\n'), { exitCode: 2 })
}

function answerLines(answer: Answer): string[] {
  const by = answer.rule === undefined ? '' : ` by ${answer.rule}`
  const truth = answer.truth === undefined ? '' : ` (${answer.truth})`
  return [
    subjectLine(answer),
    ...traceLines(answer.steps, answer.trace),
    printable(`${answer.verdict}: ${answer.reason}${truth}${by}`),
    ...(answer.hint === undefined ? [] : [printable(`hint: ${answer.hint}`)]),
    `policy ${answer.policy}`,
  ]
}
