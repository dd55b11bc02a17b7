import type { SQLOutputValue } from 'node:sqlite'
import { readEvents } from './events-database.ts'

/** What one agent did at one host. */
export interface DomainUse {
  readonly host: string
  /** `ms` since the epoch, over everything that is kept, whatever was asked for. */
  readonly firstSeen: number
  readonly lastSeen: number
  /** Exchanges, allowed and refused. */
  readonly count: number
  readonly refused: number
  readonly bytesUp: number
  readonly bytesDown: number
  /** Names of the accesses used; one that a refused request named is not. */
  readonly access: readonly string[]
}

/** What to report on. */
export interface DomainFilter {
  readonly agent: string
  /** `ms` since the epoch; counts only what came later. */
  readonly since?: number | undefined
  /** Only hosts that were not seen before `since`. */
  readonly newOnly?: boolean | undefined
}

// Bytes of a swapped exchange are in its outcome, who and where in its decision. A refused request used no access,
// whichever its placeholder was of; one that was refused after the swap did.
const query = `
  SELECT host, min(ts) AS first, max(ts) AS last,
    sum(n) FILTER (WHERE ts >= :since) AS count,
    sum(n) FILTER (WHERE ts >= :since AND (verdict = 'deny' OR ended = 'deny')) AS refused,
    sum(up) FILTER (WHERE ts >= :since) AS up,
    sum(down) FILTER (WHERE ts >= :since) AS down,
    json_group_array(DISTINCT access)
      FILTER (WHERE ts >= :since AND verdict = 'allow' AND access IS NOT NULL) AS access
  FROM (
    SELECT e.host, e.ts, e.verdict, o.verdict AS ended,
      coalesce(json_extract(e.body, '$.count'), 1) AS n,
      coalesce(json_extract(o.body, '$.bytes_up'), json_extract(e.body, '$.bytes_up'), 0) AS up,
      coalesce(json_extract(o.body, '$.bytes_down'), json_extract(e.body, '$.bytes_down'), 0) AS down,
      json_extract(e.body, '$.access') AS access
    FROM events e LEFT JOIN events o ON e.kind = 'decision' AND o.id = e.id AND o.kind = 'outcome'
    WHERE e.agent = :agent AND e.host IS NOT NULL AND e.kind IN ('exchange', 'decision', 'dns')
  )
  GROUP BY host HAVING count > 0 AND (:all OR first >= :since)
  ORDER BY first, host`

/** Hosts that an agent contacted or was refused, in the order in which they were first seen. */
export function domainsOf(folder: string, filter: DomainFilter): DomainUse[] {
  const { agent, since = 0, newOnly = false } = filter
  return readEvents(folder, (database) =>
    database
      .prepare(query)
      .all({ since, agent, all: newOnly ? 0 : 1 })
      .map(toUse),
  )
}

function toUse(row: Record<string, SQLOutputValue>): DomainUse {
  // `as`: made by json_group_array over text.
  const access = JSON.parse(String(row['access'])) as string[]
  return {
    host: String(row['host']),
    firstSeen: Number(row['first']),
    lastSeen: Number(row['last']),
    count: Number(row['count']),
    refused: Number(row['refused'] ?? 0),
    bytesUp: Number(row['up'] ?? 0),
    bytesDown: Number(row['down'] ?? 0),
    access: access.sort(),
  }
}
