import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { OperatorError } from '../core/errors.ts'
import { requireOwnerOnlyFile, requireStateFolder } from './folder.ts'
import { isSqliteError, operatorError } from './sqlite-schema.ts'

const busy = 5

/** Held by the one broker of a state folder. */
export interface StateLock {
  release(): void
}

/**
 * Takes the state folder for this process; `OperatorError` when a living broker has it. The lock is the operating
 * system's (a SQLite file in an exclusive transaction), so that it ends with the process however that ends.
 */
export function lockState(folder: string): StateLock {
  requireStateFolder(folder)
  const path = join(folder, 'broker.lock')
  const holder = join(folder, 'broker.pid')
  requireOwnerOnlyFile(path, 'lock file')
  requireOwnerOnlyFile(holder, 'process id file')
  let database: DatabaseSync | undefined
  try {
    database = new DatabaseSync(path, { timeout: 0 })
    database.exec('BEGIN EXCLUSIVE')
  } catch (error) {
    database?.close()
    if (isSqliteError(error) && (error.errcode & 0xff) === busy) throw taken(folder, holder)
    throw operatorError(error, path)
  }
  writeFileSync(holder, `${process.pid}\n`)
  const held = database
  return {
    release() {
      if (held.isOpen) held.close()
    },
  }
}

function taken(folder: string, holder: string): OperatorError {
  // Another process may be between taking the lock and writing its number; the text then goes without it.
  const pid = readFileSync(holder, 'utf8').trim()
  const who = /^\d+$/.test(pid) ? ` (process ${pid})` : ''
  return new OperatorError(
    `another broker${who} uses the state folder ${folder}; stop it, or give this one its own folder with the key state`,
  )
}
