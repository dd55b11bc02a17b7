import { styleText } from 'node:util'
import type { LoggedEvent } from '../audit/query.ts'
import { printable } from './table.ts'

interface Column {
  readonly name: string
  /** Characters it is padded to; a longer cell pushes the rest, so that lines can be printed one by one. */
  readonly width: number
  readonly cell: (event: LoggedEvent) => string | undefined
}

const columns: readonly Column[] = [
  { name: 'TIME', width: 20, cell: (event) => timeText(event.ts) },
  { name: 'AGENT', width: 10, cell: (event) => event.agent },
  { name: 'SANDBOX', width: 12, cell: (event) => event.sandbox },
  { name: 'VERDICT', width: 7, cell: (event) => event.verdict ?? event.kind },
  { name: 'METHOD', width: 7, cell: (event) => event.method },
  { name: 'DESTINATION', width: 44, cell: destinationText },
  { name: 'STATUS', width: 6, cell: (event) => event.status?.toString() },
  { name: 'REASON', width: 16, cell: reasonText },
  { name: 'ACCESS', width: 10, cell: (event) => event.access },
  { name: 'UP/DOWN', width: 11, cell: bytesText },
  { name: 'ID', width: 26, cell: (event) => event.id },
]

/** The line above the events. */
export function headingLine(): string {
  return row(columns.map((column) => column.name))
}

/** One event as a line for people: nothing in it steers a terminal, absent values are `-`. */
export function eventLine(event: LoggedEvent, hasColour: boolean): string {
  const line = row(columns.map((column) => printable(column.cell(event) || '-')))
  if (!hasColour || event.verdict === undefined) return line
  return styleText(event.verdict === 'deny' ? 'red' : 'green', line, { validateStream: false })
}

function row(cells: readonly string[]): string {
  return cells
    .map((cell, at) => cell.padEnd(columns[at]?.width ?? 0))
    .join('  ')
    .trimEnd()
}

/** UTC to the second, RFC 3339. */
export function timeText(ms: number): string {
  const date = new Date(ms)
  return Number.isNaN(date.getTime()) ? String(ms) : `${date.toISOString().slice(0, 19)}Z`
}

/** `12`, `3.4k`, `5.6M`, in powers of 1000. */
export function sizeText(bytes: number): string {
  const units = ['', 'k', 'M', 'G', 'T']
  const power = bytes < 1000 ? 0 : Math.min(units.length - 1, Math.floor(Math.log10(bytes) / 3))
  const value = bytes / 1000 ** power
  return `${power === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)}${units[power] ?? ''}`
}

function destinationText(event: LoggedEvent): string | undefined {
  if (event.host === undefined) return event.note
  const host = event.host.includes(':') ? `[${event.host}]` : event.host
  return `${host}${event.port === undefined ? '' : `:${event.port}`}${event.path ?? ''}`
}

function reasonText(event: LoggedEvent): string {
  const end = event.isOpen === true ? 'open' : event.end
  // The reason of a refusal says more than its end: `dns_failed` tells that the upstream failed, and how.
  const isSaid = end === 'complete' || (event.verdict === 'deny' && end === 'upstream_failed')
  const parts = [event.reason, isSaid ? undefined : end]
  const count = event.count === undefined ? '' : ` x${event.count}`
  return `${parts.filter((part) => part !== undefined).join(',')}${count}`
}

function bytesText(event: LoggedEvent): string | undefined {
  if (event.bytes_up === undefined && event.bytes_down === undefined) return undefined
  return `${sizeText(event.bytes_up ?? 0)}/${sizeText(event.bytes_down ?? 0)}`
}

const csvFields = [
  ...([
    'id',
    'seq',
    'ts',
    'kind',
    'tenant',
    'agent',
    'sandbox',
    'run',
    'tool',
    'method',
    'scheme',
    'host',
  ] as const),
  ...([
    'port',
    'path',
    'verdict',
    'reason',
    'would',
    'rule',
    'policy',
    'access',
    'handle',
    'lease',
    'status',
  ] as const),
  ...(['bytes_up', 'bytes_down', 'duration_ms', 'redactions', 'end', 'count', 'note'] as const),
]

/** Names of the CSV columns, RFC 4180. */
export function csvHeading(): string {
  return csvFields.join(',')
}

/** One event as a CSV record. What a spreadsheet would take for a formula gets an apostrophe in front (CWE-1236). */
export function csvLine(event: LoggedEvent): string {
  return csvFields
    .map((field) => {
      const value = field === 'ts' ? new Date(event.ts).toISOString() : (event[field] ?? '')
      return typeof value === 'number' ? String(value) : csvCell(value)
    })
    .join(',')
}

function csvCell(text: string): string {
  // Line breaks would make one event look like two to line-based tools.
  const plain = printable(text)
  const safe = /^\s*[=+\-@\t\r|%]/.test(text) ? `'${plain}` : plain
  return /[",]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe
}
