import type { DatabaseSync, SQLInputValue, SQLOutputValue } from 'node:sqlite'
import { linkLine } from './chain.ts'
import type { AuditEvent } from './event.ts'
import { timeOfEventId } from './event-id.ts'
import { readEvents } from './events-database.ts'

export { domainsOf, type DomainUse } from './domains.ts'
export { exportHead, verifyEvents } from './verify.ts'

/** An event counts refusals of this long after its own time, `ms`. */
const foldedWithinMs = 10_000

/** What to look for; absent keys match everything. */
export interface EventFilter {
  readonly agent?: string | undefined
  readonly sandbox?: string | undefined
  readonly run?: string | undefined
  readonly tool?: string | undefined
  /** Exact, or `*.` + name for every name below it. */
  readonly host?: string | undefined
  readonly verdict?: 'allow' | 'deny' | undefined
  readonly kind?: AuditEvent['kind'] | undefined
  /** `ms` since the epoch. */
  readonly since?: number | undefined
  /** Only what was written after this place in the chain. */
  readonly afterSeq?: number | undefined
  /** Only what was written up to this place in the chain. */
  readonly upToSeq?: number | undefined
  /** The newest so many; default all. */
  readonly limit?: number | undefined
}

/**
 * One line of the log. A decision with its outcome is one line of kind `exchange`; a decision without one yet is
 * `isOpen`.
 */
export interface LoggedEvent extends AuditEvent {
  readonly seq: number
  readonly isOpen?: true
}

/** Events that match, oldest first. */
export function queryEvents(folder: string, filter: EventFilter): LoggedEvent[] {
  return readEvents(folder, (database) => [...linesOf(database, filter)])
}

/** Shows events that match one by one, oldest first, however many there are. */
export function visitEvents(folder: string, filter: EventFilter, visit: (event: LoggedEvent) => void): void {
  readEvents(folder, (database) => {
    for (const event of linesOf(database, filter)) visit(event)
  })
}

/**
 * What matches and came after `filter.afterSeq`, with the place to ask from next time. An exchange that was open when it
 * was first shown comes again with its outcome.
 */
export function followEvents(
  folder: string,
  filter: EventFilter & { readonly afterSeq: number },
): { lines: LoggedEvent[]; seq: number } {
  return readEvents(folder, (database) => ({
    lines: [...lateOutcomes(database, filter), ...linesOf(database, filter)],
    seq: Number(database.prepare('SELECT seq FROM chain').get()?.['seq']),
  }))
}

function* linesOf(database: DatabaseSync, filter: EventFilter): Generator<LoggedEvent> {
  const { sql, values } = condition(filter)
  const limit = filter.limit === undefined ? -1 : Math.max(0, Math.floor(filter.limit))
  const newest = `SELECT e.seq AS seq, e.body AS body FROM events e WHERE ${sql} ORDER BY e.seq DESC LIMIT ?`
  // Without a limit the rows are walked as they lie, not sorted first.
  const rows = database.prepare(
    limit < 0
      ? `SELECT e.seq AS seq, e.body AS body FROM events e WHERE ${sql} ORDER BY e.seq`
      : `SELECT seq, body FROM (${newest}) ORDER BY seq`,
  )
  const outcome = database.prepare("SELECT seq, body FROM events WHERE id = ? AND kind = 'outcome' LIMIT 1")
  for (const row of rows.iterate(...values, ...(limit < 0 ? [] : [limit]))) {
    const event = parse(row)
    const end = event.kind === 'decision' ? outcome.get(event.id) : undefined
    if (event.kind !== 'decision') yield event
    else yield end === undefined ? { ...event, isOpen: true } : join(event, parse(end))
  }
}

/** For a follower: outcomes whose decision it has already been shown. */
function lateOutcomes(
  database: DatabaseSync,
  filter: EventFilter & { readonly afterSeq: number },
): LoggedEvent[] {
  const after = filter.afterSeq
  const { sql, values } = condition({ ...filter, afterSeq: undefined })
  return database
    .prepare(
      `SELECT e.seq, e.body, o.seq AS end_seq, o.body AS end FROM events o
       JOIN events e ON e.id = o.id AND e.kind = 'decision'
       WHERE o.kind = 'outcome' AND o.seq > ? AND e.seq <= ? AND ${sql} ORDER BY o.seq`,
    )
    .all(after, after, ...values)
    .map((row) => join(parse(row), parse({ seq: row['end_seq'], body: row['end'] })))
}

/** Shows lines as they are chained, with `prev` and `hash`, oldest first: for export to another place. */
export function visitRawLines(folder: string, filter: EventFilter, visit: (line: string) => void): void {
  readEvents(folder, (database) => {
    const { sql, values } = condition(filter, true)
    const rows = database.prepare(
      `SELECT e.seq, e.body, lower(hex(e.hash)) AS hash, coalesce(
         (SELECT lower(hex(p.hash)) FROM events p WHERE p.seq = e.seq - 1), (SELECT base_hash FROM chain)) AS prev
       FROM events e WHERE ${sql} ORDER BY e.seq`,
    )
    for (const row of rows.iterate(...values)) {
      const link = { seq: Number(row['seq']), body: String(row['body']), hash: String(row['hash']) }
      visit(linkLine(String(row['prev']), link))
    }
  })
}

/** See `visitRawLines`; all at once. */
export function rawLines(folder: string, filter: EventFilter): string[] {
  const lines: string[] = []
  visitRawLines(folder, filter, (line) => lines.push(line))
  return lines
}

/** The rows of one exchange by its id or the beginning of it, joined; empty when there is none, several when it is short. */
export function eventsById(folder: string, idPrefix: string): LoggedEvent[] {
  const prefix = idPrefix.toUpperCase()
  const ids = readEvents(folder, (database) =>
    database
      .prepare('SELECT DISTINCT id FROM events WHERE id >= ? AND id < ? ORDER BY id LIMIT 10')
      .all(prefix, `${prefix}~`)
      .map((row) => String(row['id'])),
  )
  return readEvents(folder, (database) => {
    const rows = database.prepare('SELECT seq, body FROM events WHERE id = ? ORDER BY seq')
    return ids.map((id) => {
      const [first, ...rest] = rows.all(id).map(parse)
      // The first is there: ids came from the same table.
      return rest.reduce(join, first ?? { id, ts: 0, kind: 'exchange', seq: 0 })
    })
  })
}

/** Events that count refusals of about the time that an id was made: one of them may count the one with the id. */
export function countedNear(folder: string, id: string): LoggedEvent[] {
  const made = timeOfEventId(id)
  if (made === undefined) return []
  return readEvents(folder, (database) =>
    database
      .prepare(
        `SELECT seq, body FROM events WHERE ts BETWEEN ? AND ? AND json_extract(body, '$.count') > 1
         ORDER BY seq LIMIT 5`,
      )
      .all(made - foldedWithinMs, made + 1_000)
      .map(parse),
  )
}

/** The policy that an event's `policy` names, as it was recorded when it came into force. */
export function policyText(folder: string, hash: string): string | undefined {
  const row = readEvents(folder, (database) =>
    database.prepare('SELECT text FROM policies WHERE hash = ?').get(hash),
  )
  return row === undefined ? undefined : String(row['text'])
}

/** Id of the run that was seen last. */
export function lastRun(folder: string): string | undefined {
  const run = "json_extract(body, '$.run')"
  const sql = `SELECT ${run} AS run FROM events WHERE ${run} IS NOT NULL ORDER BY seq DESC LIMIT 1`
  const row = readEvents(folder, (database) => database.prepare(sql).get())
  return row === undefined ? undefined : String(row['run'])
}

/** The last place in the chain, `0` for an empty one: where a follower starts. */
export function lastSeq(folder: string): number {
  return readEvents(folder, (database) => Number(database.prepare('SELECT seq FROM chain').get()?.['seq']))
}

function join(decision: LoggedEvent, outcome: LoggedEvent): LoggedEvent {
  const { ts, seq } = decision
  return { ...decision, ...outcome, ts, seq, kind: 'exchange' }
}

/** The filter as SQL on the row `e`. */
function condition(filter: EventFilter, isRaw = false): { sql: string; values: SQLInputValue[] } {
  const parts: string[] = []
  const values: SQLInputValue[] = []
  const add = (sql: string, ...more: SQLInputValue[]): void => {
    parts.push(sql)
    values.push(...more)
  }
  for (const column of ['agent', 'sandbox', 'verdict'] as const) {
    const wanted = filter[column]
    if (wanted !== undefined) add(`e.${column} = ?`, wanted)
  }
  for (const field of ['run', 'tool'] as const) {
    const wanted = filter[field]
    if (wanted !== undefined) add(`json_extract(e.body, '$.${field}') = ?`, wanted)
  }
  if (filter.host?.startsWith('*.') === true) {
    const suffix = filter.host.slice(1)
    add('substr(e.host, -?) = ?', suffix.length, suffix)
  } else if (filter.host !== undefined) add('e.host = ?', filter.host)
  if (filter.kind === 'exchange') add("e.kind IN ('exchange', 'decision')")
  else if (filter.kind !== undefined) add('e.kind = ?', filter.kind)
  else if (!isRaw) add("e.kind <> 'outcome'")
  if (filter.since !== undefined) add('e.ts >= ?', filter.since)
  if (filter.afterSeq !== undefined) add('e.seq > ?', filter.afterSeq)
  if (filter.upToSeq !== undefined) add('e.seq <= ?', filter.upToSeq)
  return { sql: parts.length === 0 ? '1' : parts.join(' AND '), values }
}

function parse(row: Record<string, SQLOutputValue | undefined>): LoggedEvent {
  // `as`: a body that EventWriter wrote; `verify` finds one that somebody else did.
  return JSON.parse(String(row['body'])) as LoggedEvent
}
