import { randomBytes } from 'node:crypto'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { adminEvent } from '../admin/event.ts'
import { loadConfig } from '../config/load.ts'
import type { Config } from '../config/model.ts'
import { formatProblem } from '../config/problem.ts'
import { systemClock } from '../core/clock.ts'
import { OperatorError } from '../core/errors.ts'
import { createLifecycle } from '../identity/lifecycle.ts'
import { provision } from '../identity/provision.ts'
import type { Seal, Store } from '../store/port.ts'
import { openSeal } from '../store/seal.ts'
import { lockState } from '../store/sqlite-lock.ts'
import { openSqliteStore } from '../store/sqlite.ts'
import type { Io } from './io.ts'
import type { OfflineLifecycle } from './lifecycle-access.ts'
import { createRemote } from './remote.ts'
import type { RemoteBroker } from './remote.ts'
import { printable } from './table.ts'

/** What most commands begin with: the configuration and a client of the broker it names, which need not run. */
export interface Installation {
  readonly config: Config
  readonly remote: RemoteBroker
}

/** Reads a configuration; `OperatorError` with every problem at its place. */
export function installationOf(configPath: string, env: Io['env']): Installation {
  const loaded = loadConfig(configPath, { env, now: systemClock.now() })
  if (!loaded.ok) {
    const lines = loaded.problems.map((problem) => `  ${printable(formatProblem(problem))}`)
    throw new OperatorError(['the configuration has problems', ...lines].join('\n'), { exitCode: 2 })
  }
  const { config } = loaded
  return { config, remote: createRemote({ stateFolder: config.stateFolder, configPath }) }
}

/** The records of a state folder, opened for as long as a command needs them. */
export interface OpenRecords {
  readonly store: Store
  readonly seal: Seal
  /** What an operator should know, such as a token that cannot be read. */
  readonly notes: readonly string[]
  close(): Promise<void>
}

/** Opens the store for reading, beside the broker that keeps it. */
export async function openBeside(config: Config): Promise<OpenRecords> {
  const store = await openSqliteStore({ folder: config.stateFolder, readOnly: true })
  try {
    return { store, seal: await openSeal(config.stateFolder), notes: [], close: () => store.close() }
  } catch (error) {
    await store.close()
    throw error
  }
}

/**
 * Takes the state folder while no broker has it (`OperatorError` when one does), and gives every sandbox of the files its
 * record, token and placeholders, as the broker would at its start.
 */
export async function openAlone(config: Config, env: Io['env']): Promise<OpenRecords> {
  const folder = config.stateFolder
  const lock = lockState(folder)
  let store: Store | undefined
  const close = async (): Promise<void> => {
    await store?.close()
    lock.release()
  }
  try {
    const seal = await openSeal(folder)
    store = await openSqliteStore({ folder })
    const notes = await provision({ config, store, seal, random: randomBytes, clock: systemClock, env })
    return { store, seal, notes, close }
  } catch (error) {
    await close()
    throw error
  }
}

/** Has anything ever been stored? */
export function hasStore(config: Config): boolean {
  return existsSync(join(config.stateFolder, 'octroi.db'))
}

/** The life cycle on the state folder itself, with its events; for a stopped broker. */
export async function openOfflineLifecycle(config: Config, io: Io): Promise<OfflineLifecycle> {
  const records = await openAlone(config, io.env)
  try {
    for (const note of records.notes) io.err(`octroi: ${printable(note)}`)
    // Loaded only here: reading commands start faster without the writer thread.
    const [{ openEventLog }, { createEventIds }] = await Promise.all([
      import('../audit/sink.ts'),
      import('../audit/event-id.ts'),
    ])
    const events = await openEventLog({ folder: config.stateFolder, sync: config.audit.sync })
    const newId = createEventIds()
    const { store, seal } = records
    const world = { store, seal, random: randomBytes, clock: systemClock }
    return {
      lifecycle: createLifecycle({
        ...world,
        config: () => config,
        changed: async () => void (await provision({ ...world, config, env: io.env })),
        audit: (event) => events.appendDurable(adminEvent(event, { id: newId(), ts: systemClock.now() })),
      }),
      async close() {
        await events.close()
        await records.close()
      },
    }
  } catch (error) {
    await records.close()
    throw error
  }
}
