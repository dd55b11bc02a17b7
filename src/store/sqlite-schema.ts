import type { DatabaseSync } from 'node:sqlite'
import { OperatorError } from '../core/errors.ts'

/** Each entry takes the schema from version `index` to `index + 1`; entries are only ever added. */
const migrations: readonly string[] = [
  `CREATE TABLE sandboxes (
     id TEXT PRIMARY KEY, name TEXT NOT NULL, origin TEXT NOT NULL, tenant TEXT NOT NULL, template TEXT, agent TEXT,
     run TEXT, created_at INTEGER NOT NULL, expires_at INTEGER, paused_at INTEGER, destroyed_at INTEGER
   ) STRICT;
   CREATE UNIQUE INDEX sandboxes_living ON sandboxes (name) WHERE destroyed_at IS NULL;
   CREATE TABLE tokens (
     id TEXT PRIMARY KEY, sandbox_id TEXT NOT NULL, sha256 TEXT NOT NULL, sealed TEXT NOT NULL,
     created_at INTEGER NOT NULL, expires_at INTEGER
   ) STRICT;
   CREATE TABLE handles (
     id TEXT PRIMARY KEY, placeholder TEXT NOT NULL UNIQUE, sandbox_id TEXT NOT NULL, sandbox TEXT NOT NULL,
     access TEXT NOT NULL, created_at INTEGER NOT NULL, revoked_at INTEGER, expires_at INTEGER
   ) STRICT;
   CREATE TABLE secrets (
     name TEXT PRIMARY KEY, sealed TEXT NOT NULL, version INTEGER NOT NULL, updated_at INTEGER NOT NULL
   ) STRICT;
   CREATE TABLE past_values (
     row INTEGER PRIMARY KEY, credential TEXT NOT NULL, tenant TEXT NOT NULL, sealed TEXT NOT NULL, at INTEGER NOT NULL
   ) STRICT;
   CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;`,
]

/** Schema version that this program writes. */
export const schemaVersion = migrations.length

/** Brings the schema up to date in one transaction, so that a migration cut short starts over. */
export function migrate(database: DatabaseSync, path: string): void {
  database.exec('BEGIN IMMEDIATE')
  try {
    database.exec('CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL) STRICT')
    const found = versionOf(database)
    requireKnown(found, path)
    for (const step of migrations.slice(found)) database.exec(step)
    if (found < schemaVersion) {
      database.exec('DELETE FROM schema_version')
      database.prepare('INSERT INTO schema_version VALUES (?)').run(schemaVersion)
    }
    database.exec('COMMIT')
  } catch (error) {
    if (database.isTransaction) database.exec('ROLLBACK')
    throw error
  }
}

/** For a read-only opening: refuses a schema that is newer, and one that an older program left and nobody has migrated. */
export function requireCurrent(database: DatabaseSync, path: string): void {
  const found = versionOf(database)
  requireKnown(found, path)
  if (found < schemaVersion) {
    throw new OperatorError(
      `the store ${path} has schema ${found} and needs ${schemaVersion}; start the broker once`,
    )
  }
}

function versionOf(database: DatabaseSync): number {
  const table = database.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'schema_version'").get()
  if (table === undefined) return 0
  return Number(
    database.prepare('SELECT max(version) AS version FROM schema_version').get()?.['version'] ?? 0,
  )
}

function requireKnown(found: number, path: string): void {
  if (found <= schemaVersion) return
  throw new OperatorError(
    `the store ${path} has schema ${found}, this octroi knows ${schemaVersion}: it was written by a newer octroi; ` +
      'use that one, or restore a backup from before the upgrade',
  )
}

interface SqliteError extends Error {
  readonly errcode: number
}

/** Primary SQLite result codes whose meaning an operator can act on. */
const meanings: Readonly<Record<number, string>> = {
  5: 'it is locked by another process',
  6: 'it is locked by another process',
  8: 'it is read-only',
  10: 'the disk reports an error',
  11: 'it is damaged; keep a copy and restore a backup',
  13: 'the disk is full',
  14: 'it cannot be opened',
  26: 'it is not a SQLite database',
}

/** Is this an error of node:sqlite? */
export function isSqliteError(error: unknown): error is SqliteError {
  return error instanceof Error && 'errcode' in error && typeof error.errcode === 'number'
}

/** Turns an error of SQLite into a sentence for the operator; other errors come back as they are. */
export function operatorError(error: unknown, path: string): unknown {
  if (!isSqliteError(error)) return error
  const meaning = meanings[error.errcode & 0xff] ?? error.message
  return new OperatorError(`the store ${path} cannot be used: ${meaning}`, { cause: error })
}
