import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { EventWriter } from '../../src/audit/event-writer.ts'
import type { AuditEvent } from '../../src/audit/event.ts'
import { domainsOf, eventsById, followEvents, lastRun, queryEvents, rawLines } from '../../src/audit/query.ts'
import type { EventFilter } from '../../src/audit/query.ts'

let folder: string
let writer: EventWriter
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'octroi-query-'))
  writer = new EventWriter(folder, 'normal')
})
afterEach(() => {
  writer.close()
  rmSync(folder, { recursive: true, force: true })
})

const event = (id: string, ts: number, more: Partial<AuditEvent> = {}): AuditEvent => ({
  id,
  ts,
  kind: 'exchange',
  ...more,
})

describe('queryEvents', () => {
  beforeEach(() => {
    writer.write([
      event('A', 10, { agent: 'x', sandbox: 's1', run: 'r1', host: 'a.example.com', verdict: 'allow' }),
      event('B', 20, { agent: 'y', sandbox: 's1', tool: 'search', host: 'example.com', verdict: 'deny' }),
      event('C', 30, {
        kind: 'decision',
        agent: 'x',
        host: 'b.example.com',
        verdict: 'allow',
        reason: 'access',
      }),
      event('D', 40, { kind: 'decision', agent: 'x', run: 'r2', host: 'notexample.com', verdict: 'allow' }),
      event('C', 50, { kind: 'outcome', status: 200, end: 'complete' }),
      event('E', 60, { kind: 'dns', agent: 'x', host: 'a.example.com', verdict: 'deny' }),
    ])
  })
  const cases: { name: string; filter: EventFilter; ids: string }[] = [
    { name: 'everything, an exchange once', filter: {}, ids: 'ABCDE' },
    { name: 'by agent', filter: { agent: 'x' }, ids: 'ACDE' },
    { name: 'by sandbox', filter: { sandbox: 's1' }, ids: 'AB' },
    { name: 'by run', filter: { run: 'r1' }, ids: 'A' },
    { name: 'by tool', filter: { tool: 'search' }, ids: 'B' },
    { name: 'by exact host', filter: { host: 'example.com' }, ids: 'B' },
    { name: 'by hosts below a name, never the apex', filter: { host: '*.example.com' }, ids: 'ACE' },
    { name: 'by verdict', filter: { verdict: 'deny' }, ids: 'BE' },
    { name: 'by kind, a decision being an exchange', filter: { kind: 'exchange' }, ids: 'ABCD' },
    { name: 'by time', filter: { since: 30 }, ids: 'CDE' },
    { name: 'the newest so many', filter: { limit: 2 }, ids: 'DE' },
    { name: 'by several at once', filter: { agent: 'x', verdict: 'allow', since: 20 }, ids: 'CD' },
    { name: 'by a text that is SQL', filter: { agent: "x' OR 1=1 --" }, ids: '' },
  ]
  for (const { name, filter, ids } of cases) {
    it(`finds ${name}`, () => {
      expect(
        queryEvents(folder, filter)
          .map((found) => found.id)
          .join(''),
      ).toBe(ids)
    })
  }

  it('shows a decision with its outcome as one exchange, and one without as open', () => {
    const [joined, open] = queryEvents(folder, { agent: 'x', since: 30 })
    expect(joined).toMatchObject({ id: 'C', kind: 'exchange', ts: 30, seq: 3, reason: 'access', status: 200 })
    expect(joined?.isOpen).toBeUndefined()
    expect(open).toMatchObject({ id: 'D', kind: 'decision', isOpen: true })
  })

  it('gives a follower each line once, and an open exchange again when it ends', () => {
    const first = followEvents(folder, { agent: 'x', afterSeq: 2 })
    expect(first.lines.map(({ id, isOpen }) => [id, isOpen])).toEqual([
      ['C', undefined],
      ['D', true],
      ['E', undefined],
    ])
    expect(followEvents(folder, { agent: 'x', afterSeq: first.seq })).toEqual({ lines: [], seq: 6 })
    writer.write([event('D', 70, { kind: 'outcome', end: 'client_gone', bytes_up: 3 }), event('F', 80)])
    const second = followEvents(folder, { agent: 'x', afterSeq: first.seq })
    expect(second).toMatchObject({
      seq: 8,
      lines: [{ id: 'D', kind: 'exchange', end: 'client_gone', ts: 40 }],
    })
    expect(followEvents(folder, { agent: 'y', afterSeq: first.seq }).lines).toEqual([])
  })

  it('finds an exchange by its id or the beginning of it', () => {
    expect(eventsById(folder, 'c')).toMatchObject([{ id: 'C', kind: 'exchange', status: 200 }])
    expect(eventsById(folder, 'Z')).toEqual([])
  })

  it('knows the run that was seen last', () => {
    expect(lastRun(folder)).toBe('r2')
  })

  it('exports the rows as they are chained, outcomes apart', () => {
    const lines = rawLines(folder, {}).map((line): { id: string } => JSON.parse(line))
    expect(lines.map((line) => line.id).join('')).toBe('ABCDCE')
  })
})

describe('domainsOf', () => {
  it('counts what one agent did at each host, in the order of first sight', () => {
    writer.write([
      event('1', 10, { agent: 'x', host: 'a.test', verdict: 'allow', bytes_up: 1, bytes_down: 10 }),
      event('2', 20, { agent: 'x', host: 'b.test', verdict: 'deny', count: 40 }),
      event('3', 30, { kind: 'decision', agent: 'x', host: 'a.test', verdict: 'allow', access: 'github' }),
      event('3', 40, { kind: 'outcome', agent: 'x', bytes_up: 5, bytes_down: 50 }),
      event('4', 50, { agent: 'other', host: 'c.test', verdict: 'allow' }),
      event('5', 60, { agent: 'x', host: 'd.test', verdict: 'allow', bytes_down: 7, access: 'z' }),
      event('6', 70, { kind: 'admin', agent: 'x', host: 'e.test' }),
      event('7', 80, { agent: 'x', host: 'b.test', verdict: 'deny', access: 'github' }),
      event('8', 90, { kind: 'decision', agent: 'x', host: 'd.test', verdict: 'allow', access: 'y' }),
      event('8', 95, { kind: 'outcome', agent: 'x', verdict: 'deny', reason: 'revoked', bytes_down: 3 }),
    ])
    expect(domainsOf(folder, { agent: 'x' })).toEqual([
      {
        host: 'a.test',
        firstSeen: 10,
        lastSeen: 30,
        count: 2,
        refused: 0,
        bytesUp: 6,
        bytesDown: 60,
        access: ['github'],
      },
      {
        host: 'b.test',
        firstSeen: 20,
        lastSeen: 80,
        count: 41,
        refused: 41,
        bytesUp: 0,
        bytesDown: 0,
        access: [],
      },
      {
        host: 'd.test',
        firstSeen: 60,
        lastSeen: 90,
        count: 2,
        refused: 1,
        bytesUp: 0,
        bytesDown: 10,
        access: ['y', 'z'],
      },
    ])
    const since = domainsOf(folder, { agent: 'x', since: 25 })
    expect(since.map(({ host, count, firstSeen }) => [host, count, firstSeen])).toEqual([
      ['a.test', 1, 10],
      ['b.test', 1, 20],
      ['d.test', 2, 60],
    ])
    expect(domainsOf(folder, { agent: 'x', since: 25, newOnly: true }).map(({ host }) => host)).toEqual([
      'd.test',
    ])
  })
})
