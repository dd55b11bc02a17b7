import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { OperatorError } from '../core/errors.ts'
import { requireOwnerOnlyFile, requireStateFolder } from './folder.ts'
import { isSqliteError, operatorError } from './sqlite-schema.ts'

const busy = 5

/** Held by one process at a time, until it is released or the process ends. */
export interface StateLock {
  release(): void
}

/** The state folder belongs to another living process, as far as is known its `pid`. */
export class StateTaken extends OperatorError {
  readonly folder: string
  readonly pid: number | undefined

  constructor(folder: string, pid: number | undefined) {
    const who = pid === undefined ? '' : ` (process ${pid})`
    super(
      `another broker${who} uses the state folder ${folder}; stop it, or give this one its own folder with the key state`,
    )
    this.folder = folder
    this.pid = pid
  }
}

/** Takes the state folder for this process; `StateTaken` when a living broker has it. */
export function lockState(folder: string): StateLock {
  requireStateFolder(folder)
  const holder = join(folder, 'broker.pid')
  requireOwnerOnlyFile(holder, 'process id file')
  const lock = tryLock(folder, 'broker')
  // Another process may be between taking the lock and writing its number; the text then goes without it.
  if (lock === undefined) throw new StateTaken(folder, pidIn(holder))
  writeFileSync(holder, `${process.pid}\n`)
  return lock
}

/**
 * Takes the lock `NAME.lock` of the state folder, or `undefined` when another process has it. The lock is the operating
 * system's (a SQLite file in an exclusive transaction), so that it ends with the process however that ends.
 */
export function tryLock(folder: string, name: 'broker' | 'starter'): StateLock | undefined {
  requireStateFolder(folder)
  const path = join(folder, `${name}.lock`)
  requireOwnerOnlyFile(path, 'lock file')
  let database: DatabaseSync | undefined
  try {
    database = new DatabaseSync(path, { timeout: 0 })
    database.exec('BEGIN EXCLUSIVE')
  } catch (error) {
    database?.close()
    if (isSqliteError(error) && (error.errcode & 0xff) === busy) return undefined
    throw operatorError(error, path)
  }
  const held = database
  return {
    release() {
      if (held.isOpen) held.close()
    },
  }
}

function pidIn(path: string): number | undefined {
  const text = readFileSync(path, 'utf8').trim()
  return /^\d+$/.test(text) ? Number(text) : undefined
}
