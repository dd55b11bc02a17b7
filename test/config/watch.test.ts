import { renameSync, writeFileSync } from 'node:fs'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { watchConfig } from '../../src/config/watch.ts'
import { configFolder } from '../helpers/config-files.ts'
import type { ConfigFolder } from '../helpers/config-files.ts'

function watched(): { files: ConfigFolder; onChange: ReturnType<typeof vi.fn>; close: () => void } {
  const files = configFolder('version: 1\n', { 'other.txt': '' })
  const onChange = vi.fn()
  const config = { files: [files.path('octroi.yaml')], includes: [files.path('*.yml')] }
  const close = watchConfig({ config, onChange, onError: (_, cause) => expect(cause).toBeUndefined() })
  onTestFinished(close)
  return { files, onChange, close }
}

const called = { timeout: 3000, interval: 20 }

describe('watching the configuration', () => {
  it('notices a file that is written', async () => {
    const { files, onChange } = watched()
    files.write('octroi.yaml', 'version: 1\n# changed\n')
    await vi.waitFor(() => expect(onChange).toHaveBeenCalledTimes(1), called)
  })

  it('notices a file that is replaced, as editors do it', async () => {
    const { files, onChange } = watched()
    writeFileSync(files.path('.octroi.yaml.swp'), 'version: 1\n')
    renameSync(files.path('.octroi.yaml.swp'), files.path('octroi.yaml'))
    await vi.waitFor(() => expect(onChange).toHaveBeenCalledTimes(1), called)
  })

  it('notices a new file that `include` would take', async () => {
    const { files, onChange } = watched()
    files.write('new.yml', '{}\n')
    await vi.waitFor(() => expect(onChange).toHaveBeenCalledTimes(1), called)
  })

  it('calls once for a burst of changes, and not for other files', async () => {
    const { files, onChange } = watched()
    files.write('other.txt', 'x')
    for (let i = 0; i < 20; i++) files.write('octroi.yaml', `version: 1\n# ${i}\n`)
    await vi.waitFor(() => expect(onChange).toHaveBeenCalledTimes(1), called)
    files.write('other.txt', 'y')
    await new Promise((resolve) => setTimeout(resolve, 400))
    expect(onChange).toHaveBeenCalledTimes(1)
  })

  it('ends when it is closed', async () => {
    const { files, onChange, close } = watched()
    files.write('octroi.yaml', 'version: 1\n# changed\n')
    close()
    await new Promise((resolve) => setTimeout(resolve, 400))
    expect(onChange).not.toHaveBeenCalled()
  })
})
