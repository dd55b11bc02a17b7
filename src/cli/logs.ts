import { setTimeout as sleep } from 'node:timers/promises'
import type { Command } from 'commander'
import { Option } from 'commander'
import { plainJson } from '../audit/chain.ts'
import { domainsOf, followEvents, lastRun, lastSeq, visitEvents, visitRawLines } from '../audit/query.ts'
import type { DomainUse, EventFilter, LoggedEvent } from '../audit/query.ts'
import { parseDuration } from '../config/units.ts'
import { OperatorError } from '../core/errors.ts'
import type { CommandContext, Io, Register } from './io.ts'
import { csvHeading, csvLine, eventLine, headingLine, sizeText, timeText } from './log-lines.ts'
import { tableLines } from './table.ts'

/** Lines shown when neither `--since` nor `--limit` says how many. */
const usualLimit = 200
const pollMs = 500

/** What the commands on events need. */
export interface LogAccess {
  /** State folder that the configuration names. */
  stateFolder(configPath: string): Promise<string>
  /** Ends `--follow`; without it only the end of the process does. */
  readonly stop?: AbortSignal
}

interface LogOptions {
  readonly agent?: string
  readonly sandbox?: string
  readonly run?: string
  readonly tool?: string
  readonly host?: string
  readonly verdict?: 'allow' | 'deny'
  readonly kind?: LoggedEvent['kind']
  readonly since?: string
  readonly limit?: string
  readonly follow?: true
  readonly json?: true
  readonly csv?: true
  readonly raw?: true
}

/** `octroi logs` and `octroi domains`; both read the event database and need no running broker. */
export function registerLogs(access: LogAccess): Register {
  return (program, context) => {
    addLogs(program, context, access)
    addDomains(program, context, access)
  }
}

function addLogs(program: Command, context: CommandContext, access: LogAccess): void {
  program
    .command('logs')
    .description('events: who contacted what, allowed and refused')
    .option('--agent <label>', 'only of this agent')
    .option('--sandbox <name>', 'only of this sandbox')
    .option('--run <id>', 'only of this run; `last` is the one seen last')
    .option('--tool <name>', 'only of this tool')
    .option('--host <name>', 'only of this host; *.NAME is every host below it')
    .addOption(new Option('--verdict <verdict>', 'only these').choices(['allow', 'deny']))
    .addOption(new Option('--kind <kind>', 'only this kind of event').choices(kinds))
    .option('--since <time>', 'only what is younger: 10m, 2h, 7d, or a time such as 2030-01-31T12:00:00Z')
    .option('--limit <n>', `only the newest so many (default ${usualLimit}; none with --since)`)
    .option('--follow', 'go on with what comes')
    .addOption(new Option('--json', 'JSON lines').conflicts('csv'))
    .option('--csv', 'CSV, safe to open in a spreadsheet')
    .addOption(
      new Option('--raw', 'the rows as they are chained, one JSON object each').conflicts(['csv', 'follow']),
    )
    .addHelpText('after', '\noctroi why ID explains one event, octroi verify checks them all.')
    .action(
      context.run(async (options: LogOptions) => {
        const folder = await access.stateFolder(context.configPath())
        const filter = filterOf(options, folder)
        if (options.raw === true) {
          visitRawLines(folder, filter, (line) => context.io.out(line))
          return 0
        }
        await print({ folder, filter, options, io: context.io, stop: access.stop })
        return 0
      }),
    )
}

const kinds = ['exchange', 'decision', 'outcome', 'dns', 'run', 'credential', 'approval', 'admin', 'alert']

interface Printing {
  readonly folder: string
  readonly filter: EventFilter
  readonly options: LogOptions
  readonly io: Io
  readonly stop: AbortSignal | undefined
}

async function print({ folder, filter, options, io, stop }: Printing): Promise<void> {
  const show = showing(options, io)
  // Before the query: what is written between the two is then shown once by the follower, not lost.
  let seq = options.follow === true ? lastSeq(folder) : 0
  let shown = 0
  visitEvents(folder, options.follow === true ? { ...filter, upToSeq: seq } : filter, (event) => {
    show(event)
    shown += 1
  })
  if (shown === usualLimit && options.limit === undefined && filter.limit === usualLimit) {
    io.err(`only the newest ${usualLimit} are shown; --limit or --since shows more`)
  }
  if (shown === 0 && options.follow !== true) io.err('no events match')
  while (options.follow === true && stop?.aborted !== true) {
    await sleep(pollMs, undefined, stop === undefined ? {} : { signal: stop }).catch(() => undefined)
    const more = followEvents(folder, { ...filter, limit: undefined, afterSeq: seq })
    for (const event of more.lines) show(event)
    seq = more.seq
  }
}

function showing(options: LogOptions, io: Io): (event: LoggedEvent) => void {
  if (options.json === true) return (event) => io.out(plainJson(JSON.stringify(event)))
  if (options.csv === true) {
    io.out(csvHeading())
    return (event) => io.out(csvLine(event))
  }
  const hasColour = io.isTerminal && (io.env['NO_COLOR'] ?? '') === ''
  let isFirst = true
  return (event) => {
    if (isFirst) io.out(headingLine())
    isFirst = false
    io.out(eventLine(event, hasColour))
  }
}

function filterOf(options: LogOptions, folder: string): EventFilter {
  const { agent, sandbox, tool, host, verdict, kind } = options
  const since = sinceOption(options.since)
  const limit = limitOption(options.limit) ?? (since === undefined ? usualLimit : undefined)
  const run = options.run === 'last' ? lastRun(folder) : options.run
  if (options.run === 'last' && run === undefined) throw new OperatorError('no event belongs to a run yet')
  return { agent, sandbox, run, tool, host: host?.toLowerCase(), verdict, kind, since, limit }
}

function limitOption(text: string | undefined): number | undefined {
  if (text === undefined) return undefined
  if (!/^[1-9]\d{0,8}$/.test(text))
    throw new OperatorError('--limit: a whole number above zero', { exitCode: 2 })
  return Number(text)
}

/** A time option: a duration back from now, or a point in time. */
export function sinceOption(text: string | undefined, now = Date.now()): number | undefined {
  if (text === undefined) return undefined
  const back = parseDuration(text)
  if (back.ok) return now - back.value
  const point = /^\d{4}-\d\d-\d\d/.test(text) ? Date.parse(text) : NaN
  if (!Number.isNaN(point)) return point
  throw new OperatorError(
    '--since: a duration such as 10m, 2h or 7d, or a time such as 2030-01-31T12:00:00Z',
    {
      exitCode: 2,
    },
  )
}

/** As JSON shows it: field names and times as in the other answers. */
const wireOf = (use: DomainUse) => ({
  host: use.host,
  first_seen: new Date(use.firstSeen).toISOString(),
  last_seen: new Date(use.lastSeen).toISOString(),
  count: use.count,
  refused: use.refused,
  bytes_up: use.bytesUp,
  bytes_down: use.bytesDown,
  access: use.access,
})

interface DomainOptions {
  readonly agent: string
  readonly since?: string
  readonly new?: true
  readonly json?: true
}

function addDomains(program: Command, context: CommandContext, access: LogAccess): void {
  program
    .command('domains')
    .description('domains an agent contacted: first seen, count, bytes, refused, access used')
    .requiredOption('--agent <label>', 'the agent')
    .option('--since <time>', 'count only what is younger: 10m, 2h, 7d, or a time')
    .option('--new', 'only domains never seen before --since (default: the last 24 h)')
    .option('--json', 'JSON lines')
    .action(
      context.run(async (options: DomainOptions) => {
        const folder = await access.stateFolder(context.configPath())
        const newOnly = options.new === true
        const since = sinceOption(options.since ?? (newOnly ? '24h' : undefined))
        const found = domainsOf(folder, { agent: options.agent, since, newOnly })
        if (options.json === true)
          for (const use of found) context.io.out(plainJson(JSON.stringify(wireOf(use))))
        else if (found.length === 0) context.io.err(`agent ${options.agent}: no domain matches`)
        else {
          const rows = found.map((use) => [
            use.host,
            timeText(use.firstSeen),
            String(use.count),
            String(use.refused),
            `${sizeText(use.bytesUp)}/${sizeText(use.bytesDown)}`,
            use.access.join(',') || '-',
          ])
          const heading = ['DOMAIN', 'FIRST SEEN', 'COUNT', 'REFUSED', 'UP/DOWN', 'ACCESS']
          for (const line of tableLines([heading, ...rows])) context.io.out(line)
        }
        return 0
      }),
    )
}
