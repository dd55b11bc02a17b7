import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { queryEvents, verifyEvents } from '../../src/audit/query.ts'

const sink = new URL('../../src/audit/sink.ts', import.meta.url).href
const ids = new URL('../../src/audit/event-id.ts', import.meta.url).href

/** Writes decisions and their outcomes until it is killed; prints an id only once its decision is durable. */
const script = `
  import { writeSync } from 'node:fs'
  const { openEventLog } = await import(${JSON.stringify(sink)})
  const { createEventIds } = await import(${JSON.stringify(ids)})
  const newId = createEventIds()
  const log = await openEventLog({ folder: process.argv[1], sync: 'full' })
  const closed = await log.closeOrphans()
  writeSync(1, 'orphans ' + closed + '\\n')
  const swap = async () => {
    for (;;) {
      const event = { id: newId(), ts: Date.now(), sandbox: 's', host: 'h.test', verdict: 'allow' }
      await log.appendDurable({ ...event, kind: 'decision' })
      writeSync(1, 'swapped ' + event.id + '\\n')
      log.append({ ...event, kind: 'outcome', end: 'complete' })
      log.append({ ...event, id: newId(), kind: 'exchange' })
    }
  }
  for (let n = 0; n < 8; n += 1) void swap()`

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'octroi-crash-'))
})
afterEach(() => rmSync(folder, { recursive: true, force: true }))

/** Runs the writer, kills it `afterMs` after it is ready, and returns what it had said by then. */
async function killAfter(afterMs: number): Promise<{ swapped: string[]; orphans: number }> {
  const child = spawn(process.execPath, ['--input-type=module', '-e', script, folder])
  let said = ''
  const ready = Promise.withResolvers<void>()
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    said += text
    ready.resolve()
  })
  child.once('exit', (code) => ready.reject(new TypeError(`the writer ended by itself with ${String(code)}`)))
  await ready.promise
  await sleep(afterMs)
  child.kill('SIGKILL')
  await once(child, 'close')
  const lines = said.split('\n').slice(0, -1)
  return {
    swapped: lines.filter((line) => line.startsWith('swapped ')).map((line) => line.slice(8)),
    orphans: Number(lines.find((line) => line.startsWith('orphans '))?.slice(8)),
  }
}

describe('kill -9 of a broker that writes events', () => {
  it('leaves a database that opens, a chain that verifies and every decision that was waited for', async () => {
    const swapped: string[] = []
    for (const afterMs of [5, 60, 23, 111, 40, 77]) {
      const run = await killAfter(afterMs)
      swapped.push(...run.swapped)
      const database = new DatabaseSync(join(folder, 'events.db'), { readOnly: true })
      expect(database.prepare('PRAGMA integrity_check').get()).toEqual({ integrity_check: 'ok' })
      database.close()
      expect(verifyEvents(folder)).toMatchObject({ ok: true })
      const decided = new Set(queryEvents(folder, {}).map((event) => event.id))
      expect(swapped.filter((id) => !decided.has(id))).toEqual([])
    }
    expect(swapped.length).toBeGreaterThan(300)

    const open = queryEvents(folder, {}).filter((event) => event.isOpen)
    const last = await killAfter(0)
    expect(last.orphans).toBe(open.length)
    const closed = new Map(queryEvents(folder, {}).map((event) => [event.id, event.end]))
    for (const { id } of open) expect(closed.get(id)).toBe('lost')
  })
})
