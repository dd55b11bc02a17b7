import { chmodSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { inspect } from 'node:util'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { Secret } from '../../src/core/secret.ts'
import { openSeal } from '../../src/store/seal.ts'
import { openSqliteStore } from '../../src/store/sqlite.ts'

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'octroi-seal-'))
})
afterEach(() => rmSync(folder, { recursive: true, force: true }))

const key = () => join(folder, 'seal.key')

describe('openSeal', () => {
  it('opens what it sealed, also after a restart, and never seals twice to the same text', async () => {
    const first = await openSeal(folder)
    const sealed = await first.seal(new Secret('s3cret välue'))
    expect(await first.seal('s3cret välue')).not.toBe(sealed)
    expect(await (await openSeal(folder)).open(sealed)).toBe('s3cret välue')
    expect(statSync(key()).mode & 0o777).toBe(0o600)
    expect(readdirSync(folder)).toEqual(['seal.key'])
    expect(inspect(first, { depth: 9 })).not.toContain(readFileSync(key(), 'utf8').trim())
  })

  it('tells a changed text from another key', async () => {
    const seal = await openSeal(folder)
    const sealed = await seal.seal('value')
    const parts = sealed.split('.')
    const changed = [...parts.slice(0, 3), Buffer.from('other').toString('base64url'), parts[4]].join('.')
    await expect(seal.open(changed)).rejects.toThrow(/was changed/)
    rmSync(key())
    await expect((await openSeal(folder)).open(sealed)).rejects.toThrow(/another key/)
    await expect(seal.open('rubbish')).rejects.toThrow(/another key/)
  })

  it('never makes a key over a file that is there, whatever is in it', async () => {
    for (const content of ['', 'short', '!'.repeat(43)]) {
      writeFileSync(key(), content, { mode: 0o600 })
      await expect(openSeal(folder)).rejects.toThrow(/restore it from a backup/)
      expect(readFileSync(key(), 'utf8')).toBe(content)
    }
  })

  it('refuses a key that others can read', async () => {
    await openSeal(folder)
    chmodSync(key(), 0o644)
    await expect(openSeal(folder)).rejects.toThrow(`run: chmod 600 ${key()}`)
  })

  it('refuses to make a new key while the store holds values sealed with the lost one', async () => {
    const store = await openSqliteStore({ folder })
    await openSeal(folder)
    rmSync(key())
    await openSeal(folder)
    await store.putSecret({ name: 'a', sealed: 'x', version: 1, updatedAt: 1 })
    rmSync(key())
    await expect(openSeal(folder)).rejects.toThrow(/missing, but the store has values sealed with it/)
    await store.close()
  })

  it('agrees on one key when several start at once', async () => {
    const seals = await Promise.all([openSeal(folder), openSeal(folder), openSeal(folder)])
    const sealed = await seals[0].seal('x')
    for (const seal of seals) expect(await seal.open(sealed)).toBe('x')
  })

  it('leaves no plain secret in any byte of the store, its WAL included', async () => {
    const store = await openSqliteStore({ folder })
    const seal = await openSeal(folder)
    const value = 'sk-live-Qm9vIGZvciB0aGUgbG9n'
    await store.putSecret({ name: 'a', sealed: await seal.seal(value), version: 1, updatedAt: 1 })
    await store.putPastValue({ credential: 'a', tenant: 't', sealed: await seal.seal(value), at: 1 })
    const files = readdirSync(folder)
    expect(files).toContain('octroi.db-wal')
    for (const file of files) {
      const bytes = readFileSync(join(folder, file))
      for (const form of [
        value,
        Buffer.from(value).toString('base64url'),
        Buffer.from(value).toString('hex'),
      ]) {
        expect(bytes.includes(form)).toBe(false)
      }
    }
    await store.close()
  })
})
