import { existsSync, watch } from 'node:fs'
import type { FSWatcher } from 'node:fs'
import { basename, dirname, matchesGlob } from 'node:path'
import { systemClock } from '../core/clock.ts'
import type { Clock } from '../core/clock.ts'
import type { Config } from './model.ts'

/** Quiet time after the last change, `ms`: editors write a file in several steps. */
const settleMs = 150

/** What is watched, and who is told. */
export interface WatchOptions {
  /** Which files; `include` patterns also notice new ones. */
  readonly config: Pick<Config, 'files' | 'includes'>
  /** Called once after each burst of changes; what it throws is not caught. */
  readonly onChange: () => void
  /** A folder cannot be watched any more; reloading by SIGHUP still works. */
  readonly onError: (folder: string, cause: unknown) => void
  readonly clock?: Clock
}

/**
 * Watches the configuration's files through their folders, since editors and Kubernetes replace files instead of writing
 * them. Never keeps the process alive. The returned function ends it.
 */
export function watchConfig({ config, onChange, onError, clock = systemClock }: WatchOptions): () => void {
  let cancel: (() => void) | undefined
  let closed = false
  const changed = (): void => {
    cancel?.()
    if (!closed) cancel = clock.after(settleMs, onChange)
  }
  const watchers = [...foldersOf(config)].flatMap(([folder, isOurs]) =>
    watchFolder(folder, { isOurs, changed, onError }),
  )
  return () => {
    closed = true
    cancel?.()
    for (const watcher of watchers) watcher.close()
  }
}

type IsOurs = (name: string) => boolean

function foldersOf({ files, includes }: WatchOptions['config']): Map<string, IsOurs> {
  const folders = new Map<string, IsOurs>()
  const add = (folder: string, isOurs: IsOurs): void => {
    const before = folders.get(folder)
    folders.set(folder, before === undefined ? isOurs : (name) => before(name) || isOurs(name))
  }
  for (const file of files) add(dirname(file), (name) => name === basename(file))
  // Only the last segment of a pattern may be one; deeper globs are noticed by their present files and SIGHUP.
  for (const pattern of includes) {
    add(dirname(pattern), (name) => matchesGlob(name, basename(pattern)))
  }
  return folders
}

interface FolderWatch {
  readonly isOurs: IsOurs
  readonly changed: () => void
  readonly onError: WatchOptions['onError']
}

function watchFolder(folder: string, { isOurs, changed, onError }: FolderWatch): FSWatcher[] {
  if (!existsSync(folder)) return []
  try {
    // `..data` is the link that Kubernetes swaps when a mounted ConfigMap changes.
    const watcher = watch(folder, { persistent: false }, (_, name) => {
      if (name === null || name === '..data' || isOurs(name)) changed()
    })
    watcher.on('error', (cause) => onError(folder, cause))
    return [watcher]
  } catch (cause) {
    onError(folder, cause)
    return []
  }
}
