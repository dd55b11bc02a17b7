import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { EventWriter } from '../../src/audit/event-writer.ts'
import type { AuditEvent } from '../../src/audit/event.ts'
import { exportHead, policyText, queryEvents, rawLines, verifyEvents } from '../../src/audit/query.ts'

let folder: string
let writer: EventWriter
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'octroi-writer-'))
  writer = new EventWriter(folder, 'normal')
})
afterEach(() => {
  writer.close()
  rmSync(folder, { recursive: true, force: true })
})

const noBound = { retentionMs: Infinity, maxEvents: Infinity, maxBytes: Infinity }
const event = (n: number): AuditEvent => ({
  id: `E${String(n)}`,
  ts: n,
  kind: 'exchange',
  note: 'x'.repeat(100),
})
const write = (count: number): void => writer.write(Array.from({ length: count }, (_, n) => event(n + 1)))
function retainAll(bounds: Partial<typeof noBound>, now = 0): void {
  while (writer.retain({ ...noBound, ...bounds }, now) > 0);
}

describe('retention', () => {
  it('deletes nothing without a bound', () => {
    write(10)
    expect(writer.retain(noBound, 1e15)).toBe(0)
    expect(queryEvents(folder, {})).toHaveLength(10)
  })

  it('keeps the newest so many, and the rest still verifies and links', () => {
    write(3_500)
    retainAll({ maxEvents: 1_200 })
    const left = queryEvents(folder, {})
    expect([left.length, left[0]?.seq]).toEqual([1_200, 2_301])
    expect(verifyEvents(folder)).toMatchObject({ ok: true, events: 1_200, first: 2_301 })
    const first: unknown = JSON.parse(rawLines(folder, {})[0] ?? '')
    expect(first).toMatchObject({ seq: 2_301, prev: expect.stringMatching(/^(?!0{64})[0-9a-f]{64}$/) })
  })

  it('deletes what is older than the time given, in steps of at most a thousand', () => {
    write(2_500)
    expect(writer.retain({ ...noBound, retentionMs: 1_000 }, 3_301)).toBe(1_000)
    retainAll({ retentionMs: 1_000 }, 3_301)
    expect(queryEvents(folder, {})[0]?.ts).toBe(2_301)
    expect(verifyEvents(folder)).toMatchObject({ ok: true, events: 200 })
  })

  it('stops at an event that is young, wherever a clock step put it', () => {
    writer.write([event(1), event(5_000), event(2), event(3)])
    retainAll({ retentionMs: 1_000 }, 5_500)
    expect(queryEvents(folder, {}).map((found) => found.ts)).toEqual([5_000, 2, 3])
  })

  it('keeps the policies that were in force since the oldest event that is left, and drops the others', () => {
    writer.recordPolicy('first', 'a', 0)
    writer.recordPolicy('second', 'b', 1_000)
    writer.recordPolicy('third', 'c', 2_000)
    // In force again: the time of its last start counts.
    writer.recordPolicy('first', 'a', 3_000)
    write(3_500)
    retainAll({ maxEvents: 1_000 })
    expect(['first', 'second', 'third'].map((hash) => policyText(folder, hash))).toEqual([
      'a',
      undefined,
      'c',
    ])
  })

  it('keeps the file within a size', () => {
    for (let round = 0; round < 20; round += 1) {
      write(1_000)
      retainAll({ maxBytes: 2_000_000 })
    }
    expect(queryEvents(folder, {}).length).toBeLessThan(9_000)
    expect(verifyEvents(folder)).toMatchObject({ ok: true, head: { seq: 20_000 } })
  })

  it('may delete everything and goes on with the chain', () => {
    write(5)
    const head = exportHead(folder)
    retainAll({ maxEvents: 0 })
    expect(queryEvents(folder, {})).toEqual([])
    expect(verifyEvents(folder, { head })).toMatchObject({ ok: true, events: 0, exported: 'matches' })
    write(2)
    expect(verifyEvents(folder, { head })).toMatchObject({ ok: true, events: 2, first: 6 })
    expect(verifyEvents(folder, { head: { seq: 2, hash: 'x' } })).toMatchObject({
      exported: 'older_than_retention',
    })
  })
})

describe('write', () => {
  it('writes all of a batch or none', () => {
    write(3)
    // `as`: what must never come is what is tested.
    const bad = { ...event(5), ts: undefined } as unknown as AuditEvent
    expect(() => writer.write([event(4), bad])).toThrow()
    writer.write([event(6)])
    expect(queryEvents(folder, {}).map((found) => found.id)).toEqual(['E1', 'E2', 'E3', 'E6'])
    expect(verifyEvents(folder)).toMatchObject({ ok: true, events: 4 })
  })
})
