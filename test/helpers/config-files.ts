import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import { loadConfig } from '../../src/config/load.ts'
import type { LoadResult } from '../../src/config/load.ts'
import type { Config } from '../../src/config/model.ts'
import { formatProblem } from '../../src/config/problem.ts'

/** A folder with configuration files; gone when the test is. */
export interface ConfigFolder {
  readonly folder: string
  /** Absolute path of a file in it. */
  path(name: string): string
  write(name: string, text: string): void
  load(options?: { env?: Record<string, string>; now?: number }): LoadResult
}

/** Makes a folder whose `octroi.yaml` is `text`. */
export function configFolder(text: string, others: Record<string, string> = {}): ConfigFolder {
  const folder = mkdtempSync(join(tmpdir(), 'octroi-config-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  const path = (name: string): string => join(folder, name)
  const write = (name: string, content: string): void => writeFileSync(path(name), content, { mode: 0o600 })
  write('octroi.yaml', text)
  for (const [name, content] of Object.entries(others)) write(name, content)
  return {
    folder,
    path,
    write,
    load: ({ env = {}, now = Date.UTC(2026, 0, 1) } = {}) => loadConfig(path('octroi.yaml'), { env, now }),
  }
}

/** The configuration of a text that must be good. */
export function goodConfig(
  text: string,
  options: { env?: Record<string, string>; now?: number } = {},
): Config {
  const loaded = configFolder(text).load(options)
  if (!loaded.ok) throw new TypeError(loaded.problems.map(formatProblem).join('\n'))
  return loaded.config
}
