import { randomBytes } from 'node:crypto'
import { adminEvent } from '../admin/event.ts'
import { createEventIds } from '../audit/event-id.ts'
import { loadConfig } from '../config/load.ts'
import type { Config } from '../config/model.ts'
import { formatProblem } from '../config/problem.ts'
import { systemClock } from '../core/clock.ts'
import { OperatorError } from '../core/errors.ts'
import { createLifecycle } from '../identity/lifecycle.ts'
import type { Seal, Store } from '../store/port.ts'
import type { Io } from './io.ts'
import type { OfflineLifecycle } from './lifecycle-access.ts'

/** The configuration of a file, or an `OperatorError` with every problem at its place. */
export function configOf(configPath: string, env: Io['env']): Config {
  const loaded = loadConfig(configPath, { env, now: systemClock.now() })
  if (loaded.ok) return loaded.config
  const count = loaded.problems.length
  const lines = loaded.problems.map((problem) => `  ${formatProblem(problem)}`)
  throw new OperatorError(
    `the configuration has ${count === 1 ? 'a problem' : `${String(count)} problems`}:\n${lines.join('\n')}`,
    { exitCode: 2 },
  )
}

/** A state folder opened by a command, while no broker has it. */
export interface OfflineState {
  readonly config: Config
  readonly store: Store
  readonly seal: Seal
  close(): Promise<void>
}

/** Takes the state folder for writing; `OperatorError` when a broker has it. Close it to let go. */
export async function openOffline(config: Config): Promise<OfflineState> {
  // Loaded here: most commands never open a store, and start faster without it.
  const [{ lockState }, { openSqliteStore }, { openSeal }] = await Promise.all([
    import('../store/sqlite-lock.ts'),
    import('../store/sqlite.ts'),
    import('../store/seal.ts'),
  ])
  const folder = config.stateFolder
  const lock = lockState(folder)
  try {
    const seal = await openSeal(folder)
    const store = await openSqliteStore({ folder })
    return {
      config,
      store,
      seal,
      async close() {
        await store.close()
        lock.release()
      },
    }
  } catch (error) {
    lock.release()
    throw error
  }
}
