import { statSync } from 'node:fs'
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { appendLink } from './chain.ts'
import type { ChainHead } from './chain.ts'
import type { AuditEvent } from './event.ts'
import { eventsPath, openForWriting } from './events-database.ts'
import type { SyncMode } from './events-database.ts'

/** How much is kept; whatever bound is met first deletes the oldest events. */
export interface Retention {
  /** `ms`. */
  readonly retentionMs: number
  readonly maxEvents: number
  /** Bytes in use in the database file, indexes included. */
  readonly maxBytes: number
}

const rowsPerDeletion = 1_000

/** The only writer of the event database. Each method is one transaction; a failed one leaves nothing behind. */
export class EventWriter {
  readonly #database: DatabaseSync
  readonly #path: string
  readonly #insert: StatementSync
  readonly #setHead: StatementSync
  readonly #getHead: StatementSync
  readonly #opened: StatementSync
  readonly #closed: StatementSync
  /** Decisions without an outcome when this writer was opened. */
  readonly #orphans: readonly string[]
  #head: ChainHead

  constructor(folder: string, sync: SyncMode) {
    this.#path = eventsPath(folder)
    const database = openForWriting(folder, sync)
    this.#database = database
    this.#insert = database.prepare('INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)')
    this.#setHead = database.prepare('UPDATE chain SET seq = ?, hash = ?')
    this.#getHead = database.prepare('SELECT seq, hash FROM chain')
    this.#opened = database.prepare('INSERT OR IGNORE INTO open_decisions VALUES (?)')
    this.#closed = database.prepare('DELETE FROM open_decisions WHERE id = ?')
    this.#orphans = database
      .prepare('SELECT id FROM open_decisions')
      .all()
      .map((row) => String(row['id']))
    this.#head = this.#readHead()
  }

  /** The last event that is durable. */
  get head(): ChainHead {
    return this.#head
  }

  /** Appends events in this order; all or none. An empty list only proves that the store can be written. */
  write(events: readonly AuditEvent[]): void {
    this.#transaction(() => this.#append(events))
  }

  /** Appends an outcome with `end: lost` for each decision that was open when this writer was opened. */
  closeOrphans(now: number): number {
    const find = this.#database.prepare("SELECT body FROM events WHERE id = ? AND kind = 'decision'")
    const stillOpen = this.#database.prepare('SELECT 1 FROM open_decisions WHERE id = ?')
    const ids = this.#orphans.filter((id) => stillOpen.get(id) !== undefined)
    if (ids.length > 0) this.write(ids.map((id) => lost(id, now, find.get(id)?.['body'])))
    return ids.length
  }

  /** Keeps the text of a policy by its hash, for explaining old decisions. */
  recordPolicy(hash: string, text: string, now: number): void {
    this.#database
      .prepare('INSERT INTO policies VALUES (?, ?, ?) ON CONFLICT (hash) DO UPDATE SET ts = excluded.ts')
      .run(hash, now, text)
  }

  /** Deletes at most a thousand of the oldest events that are past a bound; returns how many. */
  retain(retention: Retention, now: number): number {
    const { base_seq: base, seq: last } =
      this.#database.prepare('SELECT base_seq, seq FROM chain').get() ?? {}
    const [first, head] = [Number(base) + 1, Number(last)]
    const end = Math.min(first + rowsPerDeletion - 1, head)
    const isOver = this.#usedBytes() > retention.maxBytes
    const surplus = Math.min(end, isOver ? end : head - retention.maxEvents)
    const old = this.#database
      .prepare('SELECT coalesce(min(seq), ?) AS seq FROM events WHERE seq BETWEEN ? AND ? AND ts >= ?')
      .get(end + 1, first, end, now - retention.retentionMs)
    const cut = Math.max(surplus, Number(old?.['seq']) - 1)
    if (cut < first) return 0
    this.#transaction(() => this.#deleteUpTo(cut))
    return cut - first + 1
  }

  /**
   * Moves the WAL into the database unless a reader is in the way, and returns the WAL's bytes. Called in pauses, so that
   * no commit has to wait for it.
   */
  checkpoint(): number {
    this.#database.exec('PRAGMA wal_checkpoint(PASSIVE)')
    return statSync(`${this.#path}-wal`, { throwIfNoEntry: false })?.size ?? 0
  }

  close(): void {
    if (this.#database.isOpen) this.#database.close()
  }

  #append(events: readonly AuditEvent[]): void {
    // Read inside the transaction: the chain must follow what is in the file, whoever wrote it.
    let { seq, hash } = this.#readHead()
    for (const event of events) {
      seq += 1
      const link = appendLink(hash, seq, event)
      hash = link.hash
      const { id, ts, kind, verdict, agent, sandbox, host } = event
      const labels = [verdict ?? null, agent ?? null, sandbox ?? null, host ?? null]
      this.#insert.run(seq, id, ts, kind, ...labels, link.body, Buffer.from(hash, 'hex'))
      if (kind === 'decision') this.#opened.run(id)
      else if (kind === 'outcome') this.#closed.run(id)
    }
    this.#setHead.run(seq, hash)
  }

  #deleteUpTo(cut: number): void {
    const hash = this.#database.prepare('SELECT lower(hex(hash)) AS hash FROM events WHERE seq = ?').get(cut)
    this.#database.prepare('DELETE FROM events WHERE seq <= ?').run(cut)
    // Without this checkpoint the first row left would have nothing to be verified against.
    this.#database.prepare('UPDATE chain SET base_seq = ?, base_hash = ?').run(cut, String(hash?.['hash']))
    // Of the policies only those that were in force since the oldest event that is left can still be asked for.
    this.#database.exec(`
      DELETE FROM policies WHERE ts < (
        SELECT max(ts) FROM policies WHERE ts <= (SELECT coalesce(min(ts), 0) FROM events)
      )`)
  }

  #usedBytes(): number {
    const pragma = (name: string): number => Number(this.#database.prepare(`PRAGMA ${name}`).get()?.[name])
    return (pragma('page_count') - pragma('freelist_count')) * pragma('page_size')
  }

  #readHead(): ChainHead {
    const row = this.#getHead.get()
    return { seq: Number(row?.['seq']), hash: String(row?.['hash']) }
  }

  #transaction(work: () => void): void {
    this.#database.exec('BEGIN IMMEDIATE')
    try {
      work()
      this.#database.exec('COMMIT')
    } catch (error) {
      if (this.#database.isTransaction) this.#database.exec('ROLLBACK')
      throw error
    }
    this.#head = this.#readHead()
  }
}

/** Who and where as in the decision, so that a filter that finds the one finds the other. */
function lost(id: string, ts: number, body: unknown): AuditEvent {
  const end = { id, ts, kind: 'outcome', end: 'lost' } as const
  if (typeof body !== 'string') return end
  // `as`: a body that this class wrote.
  const { tenant, agent, sandbox, template, run, server, tool, host, port } = JSON.parse(body) as AuditEvent
  return { ...end, tenant, agent, sandbox, template, run, server, tool, host, port }
}
