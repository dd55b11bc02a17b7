import type { LoadResult } from '../config/load.ts'
import type { Config } from '../config/model.ts'
import { formatProblem } from '../config/problem.ts'
import type { Problem } from '../config/problem.ts'
import type { Clock } from '../core/clock.ts'
import { OperatorError } from '../core/errors.ts'
import type { Seal, Store } from '../store/port.ts'
import type { Snapshot } from './model.ts'
import { provision } from './provision.ts'
import { compileSnapshot } from './snapshot.ts'

/** What snapshots are made from. */
export interface HolderDeps {
  /** Reads the configuration files anew. */
  readonly load: () => LoadResult
  readonly store: Store
  readonly seal: Seal
  /** Cryptographically random bytes. */
  readonly random: (bytes: number) => Uint8Array
  readonly clock: Pick<Clock, 'now'>
  /** For tokens that `{ env: NAME }` names. */
  readonly env: Readonly<Record<string, string | undefined>>
  /** Takes what an operator should know, one line each: warnings of the files, tokens that cannot be read. */
  readonly warn: (lines: readonly string[]) => void
}

/** What a reload came to. */
export type Reloaded =
  | { readonly ok: true; readonly hash: string }
  /** The old snapshot is still in force. */
  | { readonly ok: false; readonly problems: readonly Problem[] }

/** What a new configuration needs besides its snapshot: used from the moment it is in force, or given up. */
export interface Prepared {
  commit(): void
  abort(): void
}

/** Makes it; rejects when the configuration cannot be put in force. */
export type Prepare = (next: Config) => Promise<Prepared>

/** The snapshot in force. Swapped whole; work on it is serialised. */
export interface Holder {
  current(): Snapshot
  /** The configuration that the snapshot was compiled from. */
  config(): Config
  /** Calls `fn` after each swap, before the operation that caused it resolves; the returned function ends that. */
  onChange(fn: (snapshot: Snapshot) => void): () => void
  /** Compiles anew from the store; resolves when the snapshot is in force. */
  refresh(): Promise<Snapshot>
  /** Reads the files and the store anew, all or nothing. Rejects when `prepare` or the store fails; the old snapshot stays. */
  reload(prepare?: Prepare): Promise<Reloaded>
}

/** Loads, provisions and compiles for the first time. Rejects with an `OperatorError` that lists every problem. */
export async function createHolder(deps: HolderDeps): Promise<Holder> {
  const first = deps.load()
  if (!first.ok) {
    const lines = first.problems.map(formatProblem)
    throw new OperatorError(['the configuration has problems', ...lines].join('\n'), { exitCode: 2 })
  }
  let config = first.config
  let snapshot = await build(deps, first)
  const listeners = new Set<(snapshot: Snapshot) => void>()
  const serial = createSerial()

  function swap(next: Snapshot): Snapshot {
    snapshot = next
    for (const listener of listeners) listener(next)
    return next
  }

  return {
    current: () => snapshot,
    config: () => config,
    onChange(fn) {
      listeners.add(fn)
      return () => void listeners.delete(fn)
    },
    refresh: () => serial(async () => swap(await build(deps, { config }))),
    reload: (prepare) =>
      serial(async () => {
        const loaded = deps.load()
        if (!loaded.ok) return { ok: false, problems: loaded.problems }
        const prepared = await prepare?.(loaded.config)
        const next = await build(deps, loaded).catch((error: unknown) => {
          prepared?.abort()
          throw error
        })
        config = loaded.config
        prepared?.commit()
        return { ok: true, hash: swap(next).hash }
      }),
  }
}

async function build(
  deps: HolderDeps,
  { config, warnings }: { config: Config; warnings?: readonly Problem[] },
): Promise<Snapshot> {
  const { store, clock } = deps
  const notes = await provision({ ...deps, config })
  const [sandboxes, tokens, handles] = await Promise.all([store.sandboxes(), store.tokens(), store.handles()])
  const compiled = compileSnapshot({ config, sandboxes, tokens, handles, now: clock.now() })
  // Said when the files were read, not again at every change of the store.
  const lines = [...(warnings ?? []).map(formatProblem), ...notes]
  if (warnings !== undefined && lines.length > 0) deps.warn(lines)
  return compiled
}

function createSerial(): <T>(task: () => Promise<T>) => Promise<T> {
  let last: Promise<unknown> = Promise.resolve()
  return (task) => {
    const next = last.then(task)
    last = next.catch(() => undefined)
    return next
  }
}
