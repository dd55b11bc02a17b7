import { closeSync, existsSync, openSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { OperatorError } from '../core/errors.ts'
import { genesis } from './chain.ts'

/** How durable a commit is: `full` survives power loss, `normal` survives `kill -9`. */
export type SyncMode = 'full' | 'normal'

const schemaVersion = 1

// `body` lacks `prev` and `hash`: both follow from the hashes of two rows, and 150 bytes a row are worth it.
const schema = `
  CREATE TABLE events (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL, ts INTEGER NOT NULL, kind TEXT NOT NULL, verdict TEXT, agent TEXT,
    sandbox TEXT, host TEXT, body TEXT NOT NULL, hash BLOB NOT NULL
  ) STRICT;
  CREATE INDEX events_id ON events (id);
  CREATE INDEX events_ts ON events (ts);
  CREATE INDEX events_agent ON events (agent) WHERE agent IS NOT NULL;
  CREATE TABLE chain (
    one INTEGER PRIMARY KEY CHECK (one = 1), seq INTEGER NOT NULL, hash TEXT NOT NULL,
    base_seq INTEGER NOT NULL, base_hash TEXT NOT NULL
  ) STRICT;
  INSERT INTO chain VALUES (1, 0, '${genesis}', 0, '${genesis}');
  CREATE TABLE open_decisions (id TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
  CREATE TABLE policies (hash TEXT PRIMARY KEY, ts INTEGER NOT NULL, text TEXT NOT NULL) STRICT;
  PRAGMA user_version = ${schemaVersion};`

/** Path of the event database of a state folder. */
export function eventsPath(folder: string): string {
  return join(folder, 'events.db')
}

/** Opens the event database for its one writer, making it owner-only if there is none; `OperatorError` says what is wrong. */
export function openForWriting(folder: string, sync: SyncMode): DatabaseSync {
  const path = eventsPath(folder)
  makeOwnerOnly(path)
  requireOwnerOnly(path)
  // A writer that waits long is a store that is down: the sink retries, and swaps are refused meanwhile.
  const database = new DatabaseSync(path, { timeout: 250 })
  try {
    database.exec(`PRAGMA journal_mode = WAL; PRAGMA synchronous = ${sync === 'full' ? 'FULL' : 'NORMAL'}`)
    // The WAL is emptied between commits (EventWriter); this is the bound for when there is no pause.
    database.exec('PRAGMA wal_autocheckpoint = 4000; PRAGMA journal_size_limit = 16777216')
    database.exec('BEGIN IMMEDIATE')
    if (versionOf(database, path) === 0) database.exec(schema)
    database.exec('COMMIT')
  } catch (error) {
    database.close()
    throw unusable(error, path)
  }
  return database
}

/** Opens the event database for queries beside a writing broker. */
export function openForReading(folder: string): DatabaseSync {
  const path = eventsPath(folder)
  if (!existsSync(path)) throw new OperatorError(`there are no events at ${path} yet; start the broker first`)
  requireOwnerOnly(path)
  const database = new DatabaseSync(path, { readOnly: true, timeout: 5_000 })
  try {
    if (versionOf(database, path) === 0) {
      throw new OperatorError(`there are no events at ${path} yet; start the broker first`)
    }
  } catch (error) {
    database.close()
    throw unusable(error, path)
  }
  return database
}

/** Runs a query in one read transaction and closes. */
export function readEvents<T>(folder: string, query: (database: DatabaseSync) => T): T {
  const database = openForReading(folder)
  try {
    database.exec('BEGIN')
    return query(database)
  } finally {
    database.close()
  }
}

function unusable(error: unknown, path: string): unknown {
  if (!(error instanceof Error) || !('errcode' in error)) return error
  return new OperatorError(`the event database ${path} cannot be used: ${error.message}`, { cause: error })
}

function versionOf(database: DatabaseSync, path: string): number {
  const version = Number(database.prepare('PRAGMA user_version').get()?.['user_version'])
  if (version > schemaVersion) {
    throw new OperatorError(
      `the event database ${path} has schema ${version}, this octroi knows ${schemaVersion}: it was written by a ` +
        'newer octroi; use that one',
    )
  }
  return version
}

function makeOwnerOnly(path: string): void {
  try {
    // Never opens a file that is there: closing it would drop the POSIX locks this process has on it through SQLite.
    closeSync(openSync(path, 'wx', 0o600))
  } catch (cause) {
    if (cause instanceof Error && 'code' in cause && cause.code === 'EEXIST') return
    const why = cause instanceof Error ? cause.message : String(cause)
    throw new OperatorError(`cannot make the event database ${path}: ${why}`, { cause })
  }
}

function requireOwnerOnly(path: string): void {
  if ((statSync(path).mode & 0o077) !== 0) {
    throw new OperatorError(`the event database ${path} is open to others; run: chmod 600 ${path}`)
  }
}
