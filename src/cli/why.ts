import { plainJson } from '../audit/chain.ts'
import { countedNear, eventsById, policyText } from '../audit/query.ts'
import type { LoggedEvent } from '../audit/query.ts'
import { OperatorError, catalogue } from '../core/errors.ts'
import type { Io, Register } from './io.ts'
import { timeText } from './log-lines.ts'
import { printable } from './table.ts'

/** What `octroi why` needs. */
export interface WhyAccess {
  stateFolder(configPath: string): Promise<string>
  /** The decision under the policy then in force, as `octroi explain` would print it; none when it cannot be redone. */
  explainStored?(policyText: string, event: LoggedEvent): readonly string[]
}

/** Fewer characters of an id name too many events. */
const leastPrefix = 6

/** `octroi why ID`: a past decision, what its reason means, and the policy then in force. */
export function registerWhy(access: WhyAccess): Register {
  return (program, context) => {
    program
      .command('why')
      .description('explain a past decision, under the policy then in force')
      .argument('<id>', 'id of the event, as in the refusal and in `octroi logs`; its beginning will do')
      .option('--json', 'JSON instead of text')
      .action(
        context.run(async (id: string, options: { readonly json?: true }) => {
          const folder = await access.stateFolder(context.configPath())
          const event = oneEvent(folder, id)
          const policy = event.policy === undefined ? undefined : policyText(folder, event.policy)
          const trace = policy === undefined ? [] : (access.explainStored?.(policy, event) ?? [])
          if (options.json === true)
            context.io.out(plainJson(JSON.stringify({ event, meaning: meaningOf(event), trace })))
          else explain({ io: context.io, event, hasPolicy: policy !== undefined, trace })
          return 0
        }),
      )
  }
}

function oneEvent(folder: string, id: string): LoggedEvent {
  if (!/^[0-9a-z]+$/i.test(id) || id.length < leastPrefix) {
    throw new OperatorError(`an id has at least ${leastPrefix} letters and digits`, { exitCode: 2 })
  }
  const found = eventsById(folder, id)
  const [event, second] = found
  if (event === undefined) throw new OperatorError(notFound(folder, id))
  if (second === undefined) return event
  const ids = found.map((one) => one.id).join(', ')
  throw new OperatorError(`${id} is the beginning of several ids: ${ids}`)
}

/** In a flood of identical refusals only some ids are those of events. */
function notFound(folder: string, id: string): string {
  const near = countedNear(folder, id)
  const none = `there is no event ${id}; retention may have deleted it`
  if (near.length === 0) return none
  return `${none}, or it is one of a flood of identical refusals that is counted in: ${near.map((e) => e.id).join(', ')}`
}

function meaningOf(event: LoggedEvent): { title: string; hint: string } | undefined {
  const entry = Object.entries(catalogue).find(([reason]) => reason === event.reason)?.[1]
  return entry === undefined ? undefined : { title: entry.title, hint: entry.hint }
}

interface Explanation {
  readonly io: Io
  readonly event: LoggedEvent
  readonly hasPolicy: boolean
  readonly trace: readonly string[]
}

function explain({ io, event, hasPolicy, trace }: Explanation): void {
  const out = (name: string, text: string): void => io.out(`${name.padEnd(12)} ${printable(text)}`)
  out('time', timeText(event.ts))
  for (const [name, value] of Object.entries(event)) {
    if (!['v', 'ts', 'isOpen'].includes(name))
      out(name, typeof value === 'object' ? JSON.stringify(value) : String(value))
  }
  if (event.isOpen === true) out('end', 'none yet: the exchange goes on')
  const meaning = meaningOf(event)
  if (meaning !== undefined) {
    out('meaning', meaning.title)
    out('hint', meaning.hint)
  }
  if (trace.length > 0) {
    io.out('')
    io.out(`under policy ${printable(event.policy ?? '')}, in force then:`)
    for (const line of trace) io.out(`  ${printable(line)}`)
  } else if (event.policy !== undefined && !hasPolicy) {
    io.err(
      `the text of policy ${printable(event.policy)} is not kept here, so the decision cannot be traced again`,
    )
  }
}
