import type { DatabaseSync } from 'node:sqlite'
import { verifyChain } from './chain.ts'
import type { ChainHead, ChainVerdict, Link } from './chain.ts'
import { readEvents } from './events-database.ts'

/** What a check of the event database found. */
export type Verification =
  | {
      readonly ok: true
      readonly head: ChainHead
      /** Events checked: those that retention has left. */
      readonly events: number
      /** `seq` of the first of them. */
      readonly first: number
      /** What of an exported head could be checked. */
      readonly exported: 'none' | 'matches' | 'older_than_retention'
    }
  | { readonly ok: false; /** `seq` of the first bad row. */ readonly seq: number; readonly problem: string }

/** Checks the whole chain, the columns beside it, its recorded end and, if given, a head exported earlier. */
export function verifyEvents(folder: string, options: { head?: ChainHead | undefined } = {}): Verification {
  return readEvents(folder, (database) => {
    const { base, recorded } = endsOf(database)
    const watch = { hash: options.head?.seq === base.seq ? base.hash : undefined }
    const verdict = verifyChain(linksOf(database, options.head?.seq, watch), base)
    if (!verdict.ok) return verdict
    return judgeEnds({ verdict, base, recorded, exported: options.head, hashThere: watch.hash })
  })
}

/** The end of the chain, to be kept where nobody who can write the log can reach it. */
export function exportHead(folder: string): ChainHead {
  return readEvents(folder, (database) => endsOf(database).recorded)
}

interface Ends {
  readonly verdict: ChainVerdict & { ok: true }
  readonly base: ChainHead
  readonly recorded: ChainHead
  readonly exported: ChainHead | undefined
  /** Hash of the row that the exported head names. */
  readonly hashThere: string | undefined
}

function judgeEnds({ verdict, base, recorded, exported, hashThere }: Ends): Verification {
  const { head, events } = verdict
  if (head.seq !== recorded.seq || head.hash !== recorded.hash) {
    const problem = `the log ends at event ${head.seq}, but event ${recorded.seq} was written: its tail is cut`
    return { ok: false, seq: head.seq + 1, problem }
  }
  const good = { ok: true, head, events, first: base.seq + 1 } as const
  if (exported === undefined) return { ...good, exported: 'none' }
  if (exported.seq > head.seq) {
    const problem = `the log ends at event ${head.seq}, but the exported head is event ${exported.seq}: its tail is cut, or an old copy was put back`
    return { ok: false, seq: head.seq + 1, problem }
  }
  if (exported.seq < base.seq) return { ...good, exported: 'older_than_retention' }
  if (hashThere === exported.hash) return { ...good, exported: 'matches' }
  const problem = `event ${exported.seq} is not the one of the exported head: the log was rewritten up to there`
  return { ok: false, seq: exported.seq, problem }
}

function endsOf(database: DatabaseSync): { base: ChainHead; recorded: ChainHead } {
  const row = database.prepare('SELECT seq, hash, base_seq, base_hash FROM chain').get()
  return {
    base: { seq: Number(row?.['base_seq']), hash: String(row?.['base_hash']) },
    recorded: { seq: Number(row?.['seq']), hash: String(row?.['hash']) },
  }
}

const columns = ['id', 'ts', 'kind', 'verdict', 'agent', 'sandbox', 'host'] as const

function* linksOf(
  database: DatabaseSync,
  watchedSeq: number | undefined,
  watch: { hash: string | undefined },
): Generator<Link> {
  const rows = database.prepare(
    `SELECT seq, body, lower(hex(hash)) AS hash, ${columns.join(', ')} FROM events ORDER BY seq`,
  )
  for (const row of rows.iterate()) {
    const link = { seq: Number(row['seq']), body: String(row['body']), hash: String(row['hash']) }
    if (link.seq === watchedSeq) watch.hash = link.hash
    // Queries read the columns: one that says something else than the chained text makes the row a bad one.
    yield columnsAgree(row, link.body) ? link : { ...link, hash: '' }
  }
}

function columnsAgree(row: Record<string, unknown>, body: string): boolean {
  try {
    // `as`: only its fields are looked at, and a text that is no object has none.
    const event = JSON.parse(body) as Record<string, unknown>
    return columns.every((column) => (event[column] ?? null) === row[column])
  } catch {
    return false
  }
}
