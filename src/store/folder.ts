import { chmodSync, closeSync, mkdirSync, openSync, statSync } from 'node:fs'
import type { Stats } from 'node:fs'
import { OperatorError } from '../core/errors.ts'

const groupAndWorld = 0o077

/** Makes the state folder (0700) or checks that only its owner can enter it; `OperatorError` says what to run. */
export function requireStateFolder(folder: string): void {
  try {
    if (mkdirSync(folder, { recursive: true, mode: 0o700 }) !== undefined) chmodSync(folder, 0o700)
  } catch (cause) {
    throw new OperatorError(`cannot make the state folder ${folder}: ${text(cause)}`, { cause })
  }
  requireOwnerOnly(folder, 'state folder', '700')
}

/** Refuses a file or folder that others than its owner can touch. */
export function requireOwnerOnly(path: string, what: string, mode: '600' | '700'): void {
  const stat = look(path, what)
  const user = process.getuid?.()
  // Root may use a folder that belongs to the account the broker runs under.
  if (user !== undefined && user !== 0 && stat.uid !== user) {
    throw new OperatorError(`the ${what} ${path} belongs to another user (uid ${stat.uid}, this is ${user})`)
  }
  if ((stat.mode & groupAndWorld) !== 0) {
    throw new OperatorError(`the ${what} ${path} is open to others; run: chmod ${mode} ${quote(path)}`)
  }
}

/** Makes an empty owner-only file unless there is one, and checks the one there is. */
export function requireOwnerOnlyFile(path: string, what: string): void {
  try {
    // Never opens a file that is there: closing it would drop the POSIX locks this process has on it through SQLite.
    closeSync(openSync(path, 'wx', 0o600))
  } catch (cause) {
    if (!(cause instanceof Error && 'code' in cause && cause.code === 'EEXIST')) {
      throw new OperatorError(`cannot make the ${what} ${path}: ${text(cause)}`, { cause })
    }
  }
  requireOwnerOnly(path, what, '600')
}

function look(path: string, what: string): Stats {
  try {
    return statSync(path)
  } catch (cause) {
    throw new OperatorError(`cannot read the ${what} ${path}: ${text(cause)}`, { cause })
  }
}

function quote(path: string): string {
  return /^[\w./@:+-]+$/.test(path) ? path : `'${path.replaceAll("'", String.raw`'\''`)}'`
}

function text(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause)
}
