import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { AuditEvent } from '../../src/audit/event.ts'
import { queryEvents, verifyEvents } from '../../src/audit/query.ts'
import { openEventLog } from '../../src/audit/sink.ts'
import { openSqliteStore } from '../../src/store/sqlite.ts'

let folder: string
const undo: (() => void)[] = []
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'octroi-full-'))
})
afterEach(() => {
  for (const step of undo.splice(0).reverse()) step()
  rmSync(folder, { recursive: true, force: true })
})

/** A file system of 1 MiB, and how to make room on it. Needs the right to mount. */
function smallDisk(): { folder: string; free: () => void } | undefined {
  const disk = join(folder, 'disk')
  mkdirSync(disk)
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=1m,mode=700', 'tmpfs', disk], { stdio: 'ignore' })
  } catch {
    return undefined
  }
  undo.push(() => execFileSync('umount', [disk]))
  writeFileSync(join(disk, 'ballast'), Buffer.alloc(500_000))
  return { folder: disk, free: () => execFileSync('mount', ['-o', 'remount,size=64m', disk]) }
}

/** A limit on the size of this process's files, which fails writes like a full disk does, for users who may not mount. */
function fileSizeLimit(): { folder: string; free: () => void } {
  const limit = (soft: string) =>
    execFileSync('prlimit', ['--pid', String(process.pid), `--fsize=${soft}:unlimited`])
  limit('400000')
  undo.push(() => limit('unlimited'))
  return { folder, free: () => limit('unlimited') }
}

let ids = 0
const event = (more: Partial<AuditEvent> = {}): AuditEvent => ({
  id: `E${String((ids += 1)).padStart(6, '0')}`,
  ts: Date.now(),
  kind: 'exchange',
  path: `/${'x'.repeat(500)}`,
  ...more,
})

async function fillAndFree(disk: { folder: string; free: () => void }): Promise<void> {
  const log = await openEventLog({ folder: disk.folder })
  undo.push(() => void log.close())
  const durable: string[] = []
  const refused: string[] = []
  for (let n = 0; n < 5_000 && refused.length < 3; n += 1) {
    const one = event({ kind: 'decision' })
    const start = performance.now()
    await log.appendDurable(one).then(
      () => durable.push(one.id),
      () => refused.push(one.id),
    )
    expect(performance.now() - start).toBeLessThan(1_000)
  }
  expect(refused).toHaveLength(3)
  expect(log.state).toBe('degraded')
  const kept = event()
  expect(log.append(kept)).toBe(true)

  disk.free()
  const freedAt = performance.now()
  while (log.state !== 'ok' && performance.now() - freedAt < 10_000) await sleep(20)
  expect(performance.now() - freedAt).toBeLessThan(2_000)
  const after = event()
  await log.appendDurable(after)

  const found = queryEvents(disk.folder, {}).map((line) => line.id)
  expect(verifyEvents(disk.folder)).toMatchObject({ ok: true })
  expect(durable.filter((id) => !found.includes(id))).toEqual([])
  expect(refused.filter((id) => found.includes(id))).toEqual([])
  expect(found).toContain(kept.id)
  expect(queryEvents(disk.folder, { kind: 'alert' })).toMatchObject([{ reason: 'audit_gap' }])
  await log.close()
}

describe('a full disk', () => {
  it('stops swaps, corrupts nothing and mends itself when there is room again', async () => {
    await fillAndFree(fileSizeLimit())
  })

  it('does so on a small file system', async (context) => {
    const disk = smallDisk()
    context.skip(disk === undefined, 'mounting a file system needs root')
    if (disk !== undefined) await fillAndFree(disk)
  })

  it('fails a write of the store with words and leaves its records as they were', async () => {
    const disk = fileSizeLimit()
    const store = await openSqliteStore({ folder })
    let kept = 0
    const fill = async () => {
      for (; kept < 200; kept += 1) await store.putMeta(`key-${kept}`, 'x'.repeat(5_000))
    }
    await expect(fill()).rejects.toThrow(/the store .* cannot be used: the disk/)
    expect(await store.meta(`key-${kept - 1}`)).toHaveLength(5_000)
    expect(await store.meta(`key-${kept}`)).toBeUndefined()
    disk.free()
    await fill()
    expect(await store.meta('key-199')).toHaveLength(5_000)
    await store.close()
  })
})
