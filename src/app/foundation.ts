import { createEventIds } from '../audit/event-id.ts'
import { defaultRetention } from '../audit/event-log.ts'
import { openEventLog, type EventLog } from '../audit/sink.ts'
import { loadConfig } from '../config/load.ts'
import type { Config } from '../config/model.ts'
import { formatProblem } from '../config/problem.ts'
import type { Clock } from '../core/clock.ts'
import { OperatorError } from '../core/errors.ts'
import type { Seal, Store } from '../store/port.ts'
import { openSeal } from '../store/seal.ts'
import { lockState, type StateLock } from '../store/sqlite-lock.ts'
import { openSqliteStore } from '../store/sqlite.ts'
import { loadOrCreateAuthority, type Authority } from '../tls/authority.ts'
import { ensureFolder } from '../tls/durable-file.ts'

/** Everything durable that a broker stands on, opened in an order in which each part may fail and be undone. */
export interface Foundation {
  readonly store: Store
  readonly seal: Seal
  readonly events: EventLog
  readonly authority: Authority
  readonly newId: () => string
  close(): Promise<void>
}

/** The configuration as it is in the files now, or an `OperatorError` with every problem at its place. */
export function readConfig(file: string, options: { env: NodeJS.ProcessEnv; clock: Clock }): Config {
  const loaded = loadConfig(file, { env: options.env, now: options.clock.now() })
  if (loaded.ok) return loaded.config
  const lines = loaded.problems.map((problem) => `  ${formatProblem(problem)}`)
  throw new OperatorError(['the configuration has problems', ...lines].join('\n'), { exitCode: 2 })
}

/** Takes the state folder for this process and opens what is in it; makes what a first start lacks. */
export async function openFoundation(
  config: Config,
  options: { clock: Clock; onProblem: (message: string) => void },
): Promise<Foundation> {
  const folder = config.stateFolder
  await ensureFolder(folder)
  const lock = lockState(folder)
  const opened: (() => Promise<void> | void)[] = [() => lock.release()]
  try {
    return await openParts(config, options, { lock, opened })
  } catch (error) {
    for (const close of opened.reverse()) await close()
    throw error
  }
}

async function openParts(
  config: Config,
  { clock, onProblem }: { clock: Clock; onProblem: (message: string) => void },
  { opened }: { lock: StateLock; opened: (() => Promise<void> | void)[] },
): Promise<Foundation> {
  const folder = config.stateFolder
  const seal = await openSeal(folder)
  const store = await openSqliteStore({ folder })
  opened.push(() => store.close())
  const { retentionMs, maxEvents, sync } = config.audit
  const events = await openEventLog({
    folder,
    sync,
    clock,
    onProblem,
    ...(retentionMs === undefined && maxEvents === undefined
      ? {}
      : {
          retention: {
            retentionMs: retentionMs ?? Infinity,
            maxEvents: maxEvents ?? Infinity,
            maxBytes: defaultRetention.maxBytes,
          },
        }),
  })
  opened.push(() => events.close())
  await events.closeOrphans()
  const authority = await loadOrCreateAuthority({ folder, seal, clock })
  return {
    store,
    seal,
    events,
    authority,
    newId: createEventIds(clock),
    async close() {
      for (const close of opened.reverse()) await close()
    },
  }
}
