import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { workspaceMounts } from '../../src/sandbox/mounts.ts'

const folder = realpathSync(mkdtempSync(join(tmpdir(), 'octroi-mounts-')))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

const bare = { input: undefined, output: undefined, readOnly: [], protectedPaths: [] }

describe('what a sandbox sees', () => {
  it.each(['/usr/local/octroi/data', '/usr/no/such/folder', '/lib/octroi', '/etc/ssl/certs/octroi'])(
    'is never a state folder below what every sandbox sees: %s',
    (state) => {
      expect(() => workspaceMounts({ ...bare, protectedPaths: [state] })).toThrow('which every sandbox sees')
    },
  )

  it('is never a file with a credential, nor a folder above it', () => {
    mkdirSync(join(folder, 'project'))
    const key = join(folder, 'project', 'key.pem')
    writeFileSync(key, 'key')
    for (const path of [key, join(folder, 'project'), folder]) {
      expect(() => workspaceMounts({ ...bare, readOnly: [path], protectedPaths: [key] })).toThrow(
        "is Octroi's own",
      )
    }
  })

  it('is what was checked, wherever a link leads afterwards', () => {
    const target = join(folder, 'target')
    const link = join(folder, 'link')
    mkdirSync(target)
    symlinkSync(target, link)
    const mounts = workspaceMounts({ ...bare, input: link, output: link, readOnly: [link] })
    expect(mounts.slice(0, 9)).toEqual([
      ...['--ro-bind', target, link],
      ...['--ro-bind', target, '/workspace/input'],
      ...['--bind', target, '/workspace/output'],
    ])
  })
})
