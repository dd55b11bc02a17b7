import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import type { SQLInputValue, SQLOutputValue } from 'node:sqlite'
import { OperatorError } from '../core/errors.ts'
import type { HandleRecord, SandboxRecord, SecretRecord, TokenRecord } from '../core/model.ts'
import { requireOwnerOnly, requireOwnerOnlyFile, requireStateFolder } from './folder.ts'
import type { PastValue, Store } from './port.ts'
import { isSqliteError, migrate, operatorError, requireCurrent } from './sqlite-schema.ts'

const fileName = 'octroi.db'
/** How long a write waits for another process's, in `ms`. */
const busyTimeoutMs = 5_000
const constraint = 19

type Row = Record<string, SQLOutputValue>

/** Where the store lives and how to open it. */
export interface SqliteStoreOptions {
  readonly folder: string
  /** `true` never writes and refuses a folder without a store. Default `false`. */
  readonly readOnly?: boolean
}

/** Opens, and unless read-only makes and migrates, `octroi.db` in the state folder. */
export async function openSqliteStore(options: SqliteStoreOptions): Promise<Store> {
  const path = join(options.folder, fileName)
  const readOnly = options.readOnly ?? false
  try {
    return sqliteStore(readOnly ? openForReading(path) : openForWriting(options.folder, path), path)
  } catch (error) {
    throw operatorError(error, path)
  }
}

/** Does the store hold values that only the present seal key opens? */
export function holdsSealedValues(folder: string): boolean {
  const path = join(folder, fileName)
  if (!existsSync(path)) return false
  let database: DatabaseSync | undefined
  try {
    database = new DatabaseSync(path, { readOnly: true, timeout: busyTimeoutMs })
    const tables = new Set(
      database
        .prepare('SELECT name FROM sqlite_schema')
        .all()
        .map((row) => row['name']),
    )
    const filled = (table: string): boolean =>
      tables.has(table) && database?.prepare(`SELECT 1 FROM ${table} LIMIT 1`).get() !== undefined
    return ['secrets', 'tokens', 'past_values'].some(filled)
  } catch (error) {
    throw operatorError(error, path)
  } finally {
    database?.close()
  }
}

function openForWriting(folder: string, path: string): DatabaseSync {
  requireStateFolder(folder)
  // SQLite gives its WAL and shared-memory files the mode of the database file.
  requireOwnerOnlyFile(path, 'store')
  const database = new DatabaseSync(path, { timeout: busyTimeoutMs })
  try {
    database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA secure_delete = ON')
    migrate(database, path)
  } catch (error) {
    database.close()
    throw error
  }
  return database
}

function openForReading(path: string): DatabaseSync {
  if (!existsSync(path)) throw new OperatorError(`there is no store at ${path} yet; start the broker once`)
  requireOwnerOnly(path, 'store', '600')
  const database = new DatabaseSync(path, { readOnly: true, timeout: busyTimeoutMs })
  try {
    requireCurrent(database, path)
  } catch (error) {
    database.close()
    throw error
  }
  return database
}

interface Access {
  all<T>(sql: string, read: (row: Row) => T, values?: SQLInputValue[]): Promise<T[]>
  /** `clash` is the sentence for a unique index that is hit. */
  write(sql: string, values: readonly SQLInputValue[], clash?: string): Promise<void>
}

function accessTo(database: DatabaseSync, path: string): Access {
  return {
    async all(sql, read, values = []) {
      try {
        return database
          .prepare(sql)
          .all(...values)
          .map(read)
      } catch (error) {
        throw operatorError(error, path)
      }
    },
    async write(sql, values, clash) {
      try {
        database.prepare(sql).run(...values)
      } catch (error) {
        if (clash !== undefined && isSqliteError(error) && (error.errcode & 0xff) === constraint) {
          throw new OperatorError(clash, { cause: error })
        }
        throw operatorError(error, path)
      }
    },
  }
}

function sqliteStore(database: DatabaseSync, path: string): Store {
  const { all, write } = accessTo(database, path)
  return {
    sandboxes: () => all('SELECT * FROM sandboxes ORDER BY created_at, id', readSandbox),
    putSandbox: (record) =>
      write(
        upsert('sandboxes', sandboxColumns),
        sandboxValues(record),
        `there is already a sandbox ${record.name}`,
      ),
    tokens: () => all('SELECT * FROM tokens ORDER BY created_at, id', readToken),
    putToken: (record) => write(upsert('tokens', tokenColumns), tokenValues(record)),
    deleteToken: (id) => write('DELETE FROM tokens WHERE id = ?', [id]),
    handles: () => all('SELECT * FROM handles ORDER BY created_at, id', readHandle),
    putHandle: (record) =>
      write(upsert('handles', handleColumns), handleValues(record), 'a placeholder is never given out twice'),
    secrets: () => all('SELECT * FROM secrets ORDER BY name', readSecret),
    putSecret: ({ name, sealed, version, updatedAt }) =>
      write(upsert('secrets', ['name', 'sealed', 'version', 'updated_at']), [
        name,
        sealed,
        version,
        updatedAt,
      ]),
    deleteSecret: (name) => write('DELETE FROM secrets WHERE name = ?', [name]),
    pastValues: () => all('SELECT * FROM past_values ORDER BY at, row', readPastValue),
    putPastValue: ({ credential, tenant, sealed, at }) =>
      write('INSERT INTO past_values (credential, tenant, sealed, at) VALUES (?, ?, ?, ?)', [
        credential,
        tenant,
        sealed,
        at,
      ]),
    deletePastValues: (credential, before = Number.MAX_SAFE_INTEGER) =>
      write('DELETE FROM past_values WHERE credential = ? AND at < ?', [credential, before]),
    async meta(key) {
      const [found] = await all('SELECT value FROM meta WHERE key = ?', (row) => text(row, 'value'), [key])
      return found
    },
    putMeta: (key, value) =>
      value === undefined
        ? write('DELETE FROM meta WHERE key = ?', [key])
        : write(upsert('meta', ['key', 'value']), [key, value]),
    async close() {
      if (database.isOpen) database.close()
    },
  }
}

/** Never `INSERT OR REPLACE`: that would delete the other row that a unique index clashes with. */
function upsert(table: string, columns: readonly string[]): string {
  const [id, ...rest] = columns
  const set = rest.map((column) => `${column} = excluded.${column}`).join(', ')
  const marks = columns.map(() => '?').join(', ')
  return `INSERT INTO ${table} (${columns.join(', ')}) VALUES (${marks}) ON CONFLICT (${id}) DO UPDATE SET ${set}`
}

const sandboxColumns =
  'id name origin tenant template agent run created_at expires_at paused_at destroyed_at'.split(' ')
const tokenColumns = 'id sandbox_id sha256 sealed created_at expires_at'.split(' ')
const handleColumns = 'id placeholder sandbox_id sandbox access created_at revoked_at expires_at'.split(' ')

function sandboxValues(r: SandboxRecord): SQLInputValue[] {
  const labels = [r.template ?? null, r.agent ?? null, r.run ?? null]
  const times = [r.createdAt, r.expiresAt ?? null, r.pausedAt ?? null, r.destroyedAt ?? null]
  return [r.id, r.name, r.origin, r.tenant, ...labels, ...times]
}

function tokenValues(r: TokenRecord): SQLInputValue[] {
  return [r.id, r.sandboxId, r.sha256, r.sealed, r.createdAt, r.expiresAt ?? null]
}

function handleValues(r: HandleRecord): SQLInputValue[] {
  const times = [r.createdAt, r.revokedAt ?? null, r.expiresAt ?? null]
  return [r.id, r.placeholder, r.sandboxId, r.sandbox, r.access, ...times]
}

function readSandbox(row: Row): SandboxRecord {
  return {
    id: text(row, 'id'),
    name: text(row, 'name'),
    origin: text(row, 'origin') === 'config' ? 'config' : 'runtime',
    tenant: text(row, 'tenant'),
    template: optionalText(row, 'template'),
    agent: optionalText(row, 'agent'),
    run: optionalText(row, 'run'),
    createdAt: Number(row['created_at']),
    expiresAt: optionalTime(row, 'expires_at'),
    pausedAt: optionalTime(row, 'paused_at'),
    destroyedAt: optionalTime(row, 'destroyed_at'),
  }
}

function readToken(row: Row): TokenRecord {
  return {
    id: text(row, 'id'),
    sandboxId: text(row, 'sandbox_id'),
    sha256: text(row, 'sha256'),
    sealed: text(row, 'sealed'),
    createdAt: Number(row['created_at']),
    expiresAt: optionalTime(row, 'expires_at'),
  }
}

function readHandle(row: Row): HandleRecord {
  return {
    id: text(row, 'id'),
    placeholder: text(row, 'placeholder'),
    sandboxId: text(row, 'sandbox_id'),
    sandbox: text(row, 'sandbox'),
    access: text(row, 'access'),
    createdAt: Number(row['created_at']),
    revokedAt: optionalTime(row, 'revoked_at'),
    expiresAt: optionalTime(row, 'expires_at'),
  }
}

function readSecret(row: Row): SecretRecord {
  const numbers = { version: Number(row['version']), updatedAt: Number(row['updated_at']) }
  return { name: text(row, 'name'), sealed: text(row, 'sealed'), ...numbers }
}

function readPastValue(row: Row): PastValue {
  const credential = text(row, 'credential')
  return { credential, tenant: text(row, 'tenant'), sealed: text(row, 'sealed'), at: Number(row['at']) }
}

function text(row: Row, column: string): string {
  return String(row[column])
}

function optionalText(row: Row, column: string): string | undefined {
  const value = row[column]
  return value === null || value === undefined ? undefined : String(value)
}

function optionalTime(row: Row, column: string): number | undefined {
  const value = row[column]
  return value === null || value === undefined ? undefined : Number(value)
}
