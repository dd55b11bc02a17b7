import { spawn } from 'node:child_process'
import { closeSync, fstatSync, ftruncateSync, openSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { OperatorError } from '../core/errors.ts'
import { tryLock } from '../store/sqlite-lock.ts'
import type { StateLock } from '../store/sqlite-lock.ts'
import type { Io } from './io.ts'
import type { Installation } from './offline.ts'
import { BrokenOff } from './remote.ts'
import type { RemoteBroker } from './remote.ts'
import { stateTakenExit } from './serve.ts'
import { printable } from './table.ts'

/** How long a private broker may need until it answers, `ms`. */
const startWithinMs = 20_000
const askEveryMs = 50
/** How long a private broker waits for a run before it ends; `OCTROI_IDLE_EXIT` says otherwise. */
const usualIdleExit = '30s'
const logBytes = 1024 * 1024
const tailLines = 8

/** Who starts it. */
export interface Caller {
  readonly io: Io
  readonly configPath: string
}

/** Log of the private brokers of a state folder. */
export function privateLogPath(stateFolder: string): string {
  return join(stateFolder, 'private-broker.log')
}

interface Started {
  /** `undefined` while it runs. */
  readonly exit: () => number | undefined
  readonly pid: number | undefined
  /** The last lines it logged. */
  readonly tail: () => string
}

/**
 * Makes sure that a broker answers on the owner's socket: the running one, or a private one, which goes on by itself and
 * ends when no run has used it for a while. Of several callers one starts it, and all wait for it.
 */
export async function ensureBroker({ config, remote }: Installation, caller: Caller): Promise<void> {
  const folder = config.stateFolder
  const end = performance.now() + startWithinMs
  let starter: StateLock | undefined
  let started: Started | undefined
  try {
    while (!(await answers(remote))) {
      if (performance.now() > end) throw tooLate(started, folder)
      if (starter !== undefined) started = next(started, folder, caller)
      starter ??= tryLock(folder, 'starter')
      // Who had the lock until now may have left a broker that runs: that is asked first.
      if (starter === undefined || started !== undefined) await sleep(askEveryMs)
    }
  } finally {
    starter?.release()
  }
}

/** One that ends while it is asked, as a killed one does, does not answer. */
async function answers(remote: RemoteBroker): Promise<boolean> {
  try {
    return await remote.isRunning()
  } catch (error) {
    if (error instanceof BrokenOff) return false
    throw error
  }
}

/** The broker that is being started, another one when the first found the state folder taken, or its failure. */
function next(started: Started | undefined, folder: string, caller: Caller): Started {
  const exit = started?.exit()
  if (started === undefined || exit === stateTakenExit) return start(folder, caller)
  if (exit === undefined) return started
  throw new OperatorError(`the private broker ended with code ${exit}:\n${started.tail()}`)
}

function tooLate(started: Started | undefined, folder: string): OperatorError {
  const waited = `no broker answered within ${startWithinMs / 1000} s`
  if (started === undefined) return new OperatorError(`${waited}; another octroi run is starting one`)
  if (started.exit() === undefined && started.pid !== undefined) process.kill(started.pid)
  return new OperatorError(`${waited}; the end of ${privateLogPath(folder)}:\n${started.tail()}`)
}

function start(folder: string, { io, configPath }: Caller): Started {
  const program = join(dirname(dirname(import.meta.dirname)), 'bin', 'octroi.js')
  const idleExit = io.env['OCTROI_IDLE_EXIT'] ?? usualIdleExit
  const path = privateLogPath(folder)
  const log = openSync(path, 'a', 0o600)
  if (fstatSync(log).size > logBytes) ftruncateSync(log)
  const from = fstatSync(log).size
  // Detached: Ctrl-C in the terminal of the first run must not end the others' broker.
  const child = spawn(
    process.execPath,
    [program, 'serve', '--config', configPath, '--private', '--idle-exit', idleExit],
    { detached: true, cwd: '/', env: { ...io.env }, stdio: ['ignore', log, log] },
  )
  closeSync(log)
  child.unref()
  let exit: number | undefined
  child.once('error', () => (exit = -1))
  child.once('exit', (code) => (exit = code ?? -1))
  return {
    exit: () => exit,
    pid: child.pid,
    tail: () => tailOf(readFileSync(path).subarray(from).toString()),
  }
}

function tailOf(text: string): string {
  const lines = text.trimEnd().split('\n').slice(-tailLines)
  return lines.map((line) => `  ${printable(line)}`).join('\n')
}
