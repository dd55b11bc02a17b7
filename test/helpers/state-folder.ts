import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'

/** An empty owner-only folder with a short path, removed when the test ends. */
export function stateFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'octroi-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}
