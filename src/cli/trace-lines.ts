import type { TraceLine } from '../policy/model.ts'
import { printable, tableLines } from './table.ts'

/** Whom a decision is about. */
export interface Subject {
  readonly sandbox: string
  readonly tenant?: string | undefined
  readonly agent?: string | undefined
  readonly template?: string | undefined
  readonly destination: string
}

/** One check of a decision. */
export interface CheckLine {
  readonly check: string
  readonly passed: boolean
  readonly text: string
}

/** The first line of a trace. */
export function subjectLine({ sandbox, tenant, agent, template, destination }: Subject): string {
  const labels = [
    ...(tenant === undefined ? [] : [`tenant ${tenant}`]),
    ...(agent === undefined ? [] : [`agent ${agent}`]),
    ...(template === undefined ? [] : [`template ${template}`]),
  ]
  const who = labels.length === 0 ? '' : ` (${labels.join(', ')})`
  return printable(`sandbox ${sandbox}${who} to ${destination}`)
}

/** The checks and the rules that were looked at, as `octroi explain` and `octroi why` print them. */
export function traceLines(steps: readonly CheckLine[], trace: readonly TraceLine[]): string[] {
  const rows = steps.map(({ check, passed, text }) => ['', passed ? 'pass' : 'FAIL', check, text])
  const rules = trace.map(({ effect, rule, text, matched, missed }) => [
    ...['', effect, rule, matched ? 'matches' : `not this ${missed ?? 'request'}`, text],
  ])
  return [...tableLines(rows), ...(rules.length === 0 ? [] : ['rules looked at', ...tableLines(rules)])]
}
