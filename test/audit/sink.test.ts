import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { setTimeout as sleep } from 'node:timers/promises'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import type { Worker } from 'node:worker_threads'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { AuditEvent } from '../../src/audit/event.ts'
import { policyText, queryEvents, rawLines, verifyEvents } from '../../src/audit/query.ts'
import { openEventLog } from '../../src/audit/sink.ts'
import type { EventLog, EventLogOptions } from '../../src/audit/sink.ts'
import { Refusal } from '../../src/core/errors.ts'

let folder: string
let logs: EventLog[]
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'octroi-sink-'))
  logs = []
})
afterEach(async () => {
  for (const log of logs) await log.close()
  rmSync(folder, { recursive: true, force: true })
})

async function open(options: Partial<EventLogOptions> = {}): Promise<EventLog> {
  const log = await openEventLog({ folder, ...options })
  logs.push(log)
  return log
}

let ids = 0
const event = (more: Partial<AuditEvent> = {}): AuditEvent => ({
  id: `E${String((ids += 1)).padStart(8, '0')}`,
  ts: Date.now(),
  kind: 'exchange',
  sandbox: 'coder-1',
  host: 'api.example.com',
  verdict: 'allow',
  ...more,
})

/** Another process's write transaction, as far as SQLite can tell. */
function lockDatabase(): () => void {
  const database = new DatabaseSync(join(folder, 'events.db'))
  database.exec('BEGIN IMMEDIATE')
  return () => database.close()
}

async function until(isTrue: () => boolean, withinMs = 10_000): Promise<void> {
  const end = performance.now() + withinMs
  while (!isTrue()) {
    if (performance.now() > end) throw new TypeError('waited too long')
    await sleep(20)
  }
}

describe('openEventLog', () => {
  it('has an event in the chain when the wait for it ends', async () => {
    const log = await open()
    const one = event()
    await log.appendDurable(one)
    expect(queryEvents(folder, {})).toMatchObject([{ id: one.id, seq: 1 }])
    expect(statSync(join(folder, 'events.db')).mode & 0o777).toBe(0o600)
    expect(statSync(join(folder, 'events.db-wal')).mode & 0o077).toBe(0)
  })

  it('keeps the order in which events were taken and writes what nobody waits for soon', async () => {
    const log = await open()
    const taken: string[] = []
    for (let n = 0; n < 3_000; n += 1) {
      const one = event()
      taken.push(one.id)
      if (n % 7 === 0) void log.appendDurable(one)
      else expect(log.append(one)).toBe(true)
    }
    await until(() => queryEvents(folder, {}).length === 3_000)
    expect(queryEvents(folder, {}).map((found) => found.id)).toEqual(taken)
    expect(verifyEvents(folder)).toMatchObject({ ok: true, events: 3_000 })
  })

  it('goes on with the same chain after a restart', async () => {
    for (let start = 0; start < 3; start += 1) {
      const log = await open()
      for (let n = 0; n < 5; n += 1) log.append(event())
      await log.close()
    }
    expect(verifyEvents(folder)).toMatchObject({ ok: true, events: 15, head: { seq: 15 } })
    const lines = rawLines(folder, {}).map((line): { prev: string; hash: string } => JSON.parse(line))
    expect(lines.slice(1).map((line) => line.prev)).toEqual(lines.slice(0, -1).map((line) => line.hash))
  })

  it('refuses swaps while the store is locked, keeps other events, and mends itself with a mark of the gap', async () => {
    const problems: string[] = []
    const log = await open({ onProblem: (message) => problems.push(message) })
    await log.appendDurable(event())
    const release = lockDatabase()
    const start = performance.now()
    const waits = [event(), event()].map((one) => log.appendDurable(one))
    for (const wait of waits) {
      const error = await wait.catch((reason: unknown) => reason)
      expect(error).toBeInstanceOf(Refusal)
      expect(error).toMatchObject({ reason: 'audit_unavailable' })
    }
    expect(performance.now() - start).toBeLessThan(1_000)
    expect(log.state).toBe('degraded')
    const atOnce = performance.now()
    await expect(log.appendDurable(event())).rejects.toBeInstanceOf(Refusal)
    expect(performance.now() - atOnce).toBeLessThan(20)
    const kept = event()
    expect(log.append(kept)).toBe(true)

    release()
    await until(() => log.state === 'ok', 3_000)
    await until(() => queryEvents(folder, {}).length === 3)
    const [, second, third] = queryEvents(folder, {})
    expect(second?.id).toBe(kept.id)
    expect(third).toMatchObject({ kind: 'alert', reason: 'audit_gap' })
    expect(third?.note).toMatch(/could not be written for .* s: .*; 3 exchanges were refused/)
    expect(verifyEvents(folder)).toMatchObject({ ok: true, events: 3 })
    expect(problems).toHaveLength(2)
    await log.appendDurable(event())
  })

  it('takes at most 10,000 events while the store is down, then none', async () => {
    const log = await open()
    await log.appendDurable(event())
    const release = lockDatabase()
    await expect(log.appendDurable(event())).rejects.toBeInstanceOf(Refusal)
    let taken = 0
    while (taken < 20_000 && log.append(event())) taken += 1
    expect(taken).toBe(10_000)
    expect(log.state).toBe('full')
    release()
    await until(() => queryEvents(folder, { kind: 'alert' }).length === 1)
    expect(queryEvents(folder, {})).toHaveLength(10_002)
    expect(log.state).toBe('ok')
  })

  it('outlives its thread: every event taken is there once', async () => {
    const threads: Worker[] = []
    const seen = (message: unknown): void => {
      threads.push((message as { worker: Worker }).worker)
    }
    subscribe('worker_threads', seen)
    const log = await open()
    const taken: string[] = []
    const waits: Promise<void>[] = []
    for (let round = 0; round < 4; round += 1) {
      for (let n = 0; n < 300; n += 1) {
        const one = event()
        if (log.append(one)) taken.push(one.id)
      }
      await sleep(round * 2)
      waits.push(log.appendDurable(event()).catch(() => undefined))
      await threads.at(-1)?.terminate()
      await until(() => log.state === 'ok')
    }
    unsubscribe('worker_threads', seen)
    await Promise.all(waits)
    await log.close()
    const found = queryEvents(folder, { kind: 'exchange' }).map((line) => line.id)
    expect(taken.filter((id) => found.filter((other) => other === id).length !== 1)).toEqual([])
    expect(verifyEvents(folder)).toMatchObject({ ok: true })
    expect(threads.length).toBeGreaterThan(3)
  })

  it('writes what is queued before it closes, and takes nothing afterwards', async () => {
    const log = await open()
    for (let n = 0; n < 2_500; n += 1) log.append(event())
    const wait = log.appendDurable(event())
    await log.close()
    await wait
    expect(queryEvents(folder, {})).toHaveLength(2_501)
    expect(log.append(event())).toBe(false)
    await expect(log.appendDurable(event())).rejects.toMatchObject({ reason: 'audit_unavailable' })
    await log.close()
  })

  it('closes in bounded time when the store is down', async () => {
    const log = await open()
    const release = lockDatabase()
    log.append(event())
    const start = performance.now()
    await log.close()
    expect(performance.now() - start).toBeLessThan(6_000)
    release()
  })

  it('closes decisions that a crash left open, and only those', async () => {
    const before = await open()
    const crashed = event({ kind: 'decision', agent: 'agent-7', access: 'github' })
    const ended = event({ kind: 'decision' })
    await before.appendDurable(crashed)
    await before.appendDurable(ended)
    before.append(event({ id: ended.id, kind: 'outcome', end: 'complete' }))
    await before.close()
    const after = await open()
    const live = event({ kind: 'decision' })
    await after.appendDurable(live)
    expect(await after.closeOrphans()).toBe(1)
    expect(await after.closeOrphans()).toBe(0)
    const found = queryEvents(folder, {})
    expect(found.map(({ id, end, isOpen }) => ({ id, end, isOpen }))).toEqual([
      { id: crashed.id, end: 'lost', isOpen: undefined },
      { id: ended.id, end: 'complete', isOpen: undefined },
      { id: live.id, end: undefined, isOpen: true },
    ])
    expect(queryEvents(folder, { kind: 'outcome' })[1]).toMatchObject({ id: crashed.id, agent: 'agent-7' })
  })

  it('keeps the text of a policy by its hash', async () => {
    const log = await open()
    log.recordPolicy('abc', '{"allow":[]}')
    log.recordPolicy('abc', '{"allow":["second text is not taken"]}')
    await log.close()
    expect(policyText(folder, 'abc')).toBe('{"allow":[]}')
    expect(policyText(folder, 'other')).toBeUndefined()
  })

  it('says what is wrong when the database cannot be opened', async () => {
    await expect(openEventLog({ folder: join(folder, 'missing') })).rejects.toThrow(
      /cannot make the event database/,
    )
    await (await open()).close()
    const database = new DatabaseSync(join(folder, 'events.db'))
    database.exec('PRAGMA user_version = 99')
    database.close()
    await expect(openEventLog({ folder })).rejects.toThrow(/newer octroi/)
    expect(() => queryEvents(folder, {})).toThrow(/newer octroi/)
    writeFileSync(join(folder, 'events.db'), 'x'.repeat(8192))
    await expect(openEventLog({ folder })).rejects.toThrow(
      /events\.db cannot be used: file is not a database/,
    )
    expect(() => queryEvents(folder, {})).toThrow(/events\.db cannot be used: file is not a database/)
  })
})
