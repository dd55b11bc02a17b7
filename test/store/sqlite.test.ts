import { spawn } from 'node:child_process'
import { chmodSync, mkdtempSync, mkdirSync, readdirSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { HandleRecord, SandboxRecord } from '../../src/core/model.ts'
import { lockState } from '../../src/store/sqlite-lock.ts'
import { openSqliteStore } from '../../src/store/sqlite.ts'

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'octroi-store-'))
})
afterEach(() => rmSync(folder, { recursive: true, force: true }))

const sandbox: SandboxRecord = {
  id: 'sb_1',
  name: 'coder-1',
  origin: 'runtime',
  tenant: 'web',
  template: 'coder',
  agent: undefined,
  run: undefined,
  createdAt: 1_000,
  expiresAt: 2_000,
  pausedAt: undefined,
  destroyedAt: undefined,
}
const handle: HandleRecord = {
  id: 'h_1',
  placeholder: 'ghp_placeholder',
  sandboxId: 'sb_1',
  sandbox: 'coder-1',
  access: 'github',
  createdAt: 1_000,
  revokedAt: undefined,
  expiresAt: undefined,
}

describe('openSqliteStore', () => {
  it('returns every record as it was put, across a restart', async () => {
    const first = await openSqliteStore({ folder })
    await first.putSandbox(sandbox)
    await first.putSandbox({ ...sandbox, pausedAt: 1_500 })
    const token = {
      id: 't',
      sandboxId: 'sb_1',
      sha256: 'ab',
      sealed: 'x',
      createdAt: 1,
      expiresAt: undefined,
    }
    await first.putToken(token)
    await first.putToken({ ...token, id: 'gone' })
    await first.deleteToken('gone')
    await first.putHandle(handle)
    await first.putSecret({ name: 'openai', sealed: 'y', version: 2, updatedAt: 5 })
    await first.putSecret({ name: 'old', sealed: 'y', version: 1, updatedAt: 5 })
    await first.deleteSecret('old')
    for (const at of [1, 2, 3])
      await first.putPastValue({ credential: 'c', tenant: 'web', sealed: `s${at}`, at })
    await first.deletePastValues('c', 2)
    await first.putMeta('a', '1')
    await first.putMeta('a', '2')
    await first.putMeta('b', '1')
    await first.putMeta('b', undefined)
    await first.close()

    const second = await openSqliteStore({ folder, readOnly: true })
    expect(await second.sandboxes()).toEqual([{ ...sandbox, pausedAt: 1_500 }])
    expect(await second.tokens()).toEqual([token])
    expect(await second.handles()).toEqual([handle])
    expect(await second.secrets()).toEqual([{ name: 'openai', sealed: 'y', version: 2, updatedAt: 5 }])
    expect((await second.pastValues()).map((value) => value.sealed)).toEqual(['s2', 's3'])
    expect([await second.meta('a'), await second.meta('b')]).toEqual(['2', undefined])
    await expect(second.putMeta('a', '3')).rejects.toThrow(/read-only/)
    await second.close()
  })

  it('lets a name be used again only after the sandbox that had it is destroyed', async () => {
    const store = await openSqliteStore({ folder })
    await store.putSandbox(sandbox)
    await expect(store.putSandbox({ ...sandbox, id: 'sb_2' })).rejects.toThrow(
      'there is already a sandbox coder-1',
    )
    await store.putSandbox({ ...sandbox, destroyedAt: 1_800 })
    await store.putSandbox({ ...sandbox, id: 'sb_2' })
    expect((await store.sandboxes()).map((record) => record.id)).toEqual(['sb_1', 'sb_2'])
    await store.close()
  })

  it('never gives one placeholder to two handles', async () => {
    const store = await openSqliteStore({ folder })
    await store.putHandle(handle)
    await expect(store.putHandle({ ...handle, id: 'h_2' })).rejects.toThrow(/never given out twice/)
    expect(await store.handles()).toEqual([handle])
    await store.close()
  })

  it('makes the folder and every file in it owner-only, whatever the umask', async () => {
    const inner = join(folder, 'a', 'state')
    const before = process.umask(0)
    const store = await openSqliteStore({ folder: inner })
    process.umask(before)
    await store.putMeta('a', '1')
    expect(statSync(inner).mode & 0o777).toBe(0o700)
    const files = readdirSync(inner)
    expect(files).toContain('octroi.db-wal')
    for (const file of files) expect(statSync(join(inner, file)).mode & 0o077).toBe(0)
    await store.close()
  })

  it('refuses a folder or a file that others can read, with the command that mends it', async () => {
    const open = join(folder, 'open')
    mkdirSync(open)
    chmodSync(open, 0o755)
    await expect(openSqliteStore({ folder: open })).rejects.toThrow(`run: chmod 700 ${open}`)
    await (await openSqliteStore({ folder })).close()
    chmodSync(join(folder, 'octroi.db'), 0o640)
    await expect(openSqliteStore({ folder })).rejects.toThrow(`run: chmod 600 ${join(folder, 'octroi.db')}`)
    await expect(openSqliteStore({ folder, readOnly: true })).rejects.toThrow('chmod 600')
  })

  it('refuses a schema that a newer octroi wrote', async () => {
    await (await openSqliteStore({ folder })).close()
    const database = new DatabaseSync(join(folder, 'octroi.db'))
    database.exec('UPDATE schema_version SET version = 999')
    database.close()
    await expect(openSqliteStore({ folder })).rejects.toThrow(/schema 999.*newer octroi/)
    await expect(openSqliteStore({ folder, readOnly: true })).rejects.toThrow(/newer octroi/)
  })

  it('resumes after a migration that was cut short', async () => {
    // A migration is one transaction: what a kill leaves is a file without its tables.
    new DatabaseSync(join(folder, 'octroi.db')).close()
    chmodSync(join(folder, 'octroi.db'), 0o600)
    await expect(openSqliteStore({ folder, readOnly: true })).rejects.toThrow(/start the broker once/)
    const store = await openSqliteStore({ folder })
    await store.putSandbox(sandbox)
    await store.close()
  })

  it('says so when the file is no database, and leaves it alone', async () => {
    const path = join(folder, 'octroi.db')
    const { writeFileSync, readFileSync } = await import('node:fs')
    writeFileSync(path, 'x'.repeat(5_000), { mode: 0o600 })
    await expect(openSqliteStore({ folder })).rejects.toThrow(/not a SQLite database/)
    expect(readFileSync(path, 'utf8')).toBe('x'.repeat(5_000))
  })

  it('names the missing store when a command wants to read one', async () => {
    await expect(openSqliteStore({ folder, readOnly: true })).rejects.toThrow(
      /no store at .*start the broker once/,
    )
  })
})

describe('lockState', () => {
  it('refuses a second broker on the same folder and names the first', () => {
    const lock = lockState(folder)
    expect(() => lockState(folder)).toThrow(
      `another broker (process ${process.pid}) uses the state folder ${folder}`,
    )
    lock.release()
    lockState(folder).release()
  })

  it('is free again at once when its holder is killed', async () => {
    const source = new URL('../../src/store/sqlite-lock.ts', import.meta.url).href
    const script = `const { lockState } = await import(${JSON.stringify(source)})
      lockState(process.argv[1]); console.log('held'); setInterval(() => {}, 1000)`
    const holder = spawn(process.execPath, ['--input-type=module', '-e', script, folder])
    await new Promise((resolve) => holder.stdout.once('data', resolve))
    expect(() => lockState(folder)).toThrow(`process ${holder.pid}`)
    holder.kill('SIGKILL')
    await new Promise((resolve) => holder.once('exit', resolve))
    lockState(folder).release()
  })
})
