import { plainJson } from '../audit/chain.ts'
import { countedNear, eventsById, policyText } from '../audit/query.ts'
import type { LoggedEvent } from '../audit/query.ts'
import { OperatorError, catalogue } from '../core/errors.ts'
import type { Io, Register } from './io.ts'
import { timeText } from './log-lines.ts'
import type { Retraced } from './past-decision.ts'
import { printable } from './table.ts'

/** What `octroi why` needs. */
export interface WhyAccess {
  stateFolder(configPath: string): Promise<string>
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
          // Loaded here: no other command that reads events needs the rules.
          const { decisionLines, retrace } = await import('./past-decision.ts')
          const retraced = retrace(event, policy)
          if (options.json === true) context.io.out(asJson(event, retraced))
          else {
            show(context.io, event)
            if (retraced?.ok === true) {
              context.io.out(`\nunder policy ${printable(retraced.decision.policy)}, in force then:`)
              for (const line of decisionLines(event, retraced.decision)) context.io.out(printable(line))
            }
          }
          if (retraced?.ok === false) context.io.err(printable(retraced.problem))
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

function asJson(event: LoggedEvent, retraced: Retraced): string {
  const decision = retraced?.ok === true ? retraced.decision : undefined
  return plainJson(JSON.stringify({ event, meaning: meaningOf(event), decision }))
}

function show(io: Io, event: LoggedEvent): void {
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
  const remedy = remedies[event.reason ?? '']
  if (remedy !== undefined) out('remedy', remedy)
}

/** What the operator can do, where the hint for the client must not say it. */
const remedies: Readonly<Record<string, string>> = {
  ip_denied: 'if the address in the note is meant, let the rule name its range: addresses: [RANGE]',
}
