import { describe, expect, it } from 'vitest'
import type { AuditEvent, AuditSink } from '../../src/audit/event.ts'
import { createAggregator } from '../../src/audit/refusal-aggregate.ts'
import { manualClock } from '../helpers/manual-clock.ts'

function memorySink() {
  const events: AuditEvent[] = []
  let room = true
  const sink: AuditSink = {
    append(event) {
      if (room) events.push(event)
      return room
    },
    appendEnd: () => true,
    appendDurable: () => Promise.resolve(),
    get state(): 'ok' | 'full' {
      return room ? 'ok' : 'full'
    },
    close: () => Promise.resolve(),
  }
  return {
    sink,
    events,
    setRoom: (is: boolean) => (room = is),
    total: () => events.reduce((sum, event) => sum + (event.count ?? 1), 0),
  }
}

let ids = 0
const refusal = (more: Partial<AuditEvent> = {}): AuditEvent => ({
  id: `id-${(ids += 1)}`,
  ts: 1,
  kind: 'exchange',
  sandbox: 'coder-1',
  host: 'evil.test',
  port: 443,
  method: 'GET',
  path: '/',
  verdict: 'deny',
  reason: 'host_denied',
  ...more,
})

describe('createAggregator', () => {
  it('writes a few identical refusals one by one', () => {
    const { sink, events } = memorySink()
    const clock = manualClock()
    const aggregator = createAggregator(sink, clock)
    for (let n = 0; n < 30; n += 1) {
      const event = refusal()
      expect(aggregator.refused(event, '127.0.0.1')).toBe(event.id)
      clock.advance(150)
    }
    expect(events).toHaveLength(30)
    expect(events.every((event) => event.count === undefined)).toBe(true)
    aggregator.close()
  })

  it('turns a flood into few events whose counts are exact', () => {
    const { sink, events, total } = memorySink()
    const clock = manualClock()
    const aggregator = createAggregator(sink, clock)
    for (let n = 0; n < 100_000; n += 1) {
      aggregator.refused(refusal(), '127.0.0.1')
      if (n % 100 === 99) clock.advance(30)
    }
    aggregator.close()
    expect(total()).toBe(100_000)
    expect(events.length).toBeLessThan(60)
  })

  it('says which event counts a refusal', () => {
    const { sink, events } = memorySink()
    const clock = manualClock()
    const aggregator = createAggregator(sink, clock)
    const answered = Array.from({ length: 25 }, () => aggregator.refused(refusal(), '127.0.0.1'))
    clock.advance(10_000)
    const counted = new Map(events.map((event) => [event.id, event.count ?? 1]))
    for (const [id, count] of counted) expect(answered.filter((answer) => answer === id)).toHaveLength(count)
    expect(events.at(-1)?.count).toBe(15)
  })

  it('keeps refusals apart that differ in sandbox, source, host, port, reason or method', () => {
    const { sink, events } = memorySink()
    const aggregator = createAggregator(sink, manualClock())
    const variants = [
      {},
      { sandbox: 'coder-2' },
      { host: 'other.test' },
      { port: 80 },
      { reason: 'port_denied' },
      { method: 'PUT' },
    ]
    for (let n = 0; n < 20; n += 1) {
      for (const variant of variants) aggregator.refused(refusal(variant), 'a')
      aggregator.refused(refusal(), 'b')
    }
    aggregator.close()
    expect(events).toHaveLength(7 * 11)
    expect(events.filter((event) => event.count === 10)).toHaveLength(7)
  })

  it('leaves out of a folded event what is true of some of them only, and adds up the rest', () => {
    const { sink, events } = memorySink()
    const aggregator = createAggregator(sink, manualClock())
    for (let n = 0; n < 13; n += 1) {
      aggregator.refused(refusal({ path: `/${n}`, bytes_up: 2, duration_ms: 0.1, address: undefined }), 'a')
    }
    aggregator.close()
    expect(events.at(-1)).toMatchObject({ count: 3, bytes_up: 6, duration_ms: 0.3, path: undefined })
  })

  it('loses no count while the sink has no room, and says so to the caller', () => {
    const { sink, events, setRoom, total } = memorySink()
    const clock = manualClock()
    const aggregator = createAggregator(sink, clock)
    let taken = 0
    const refuse = () => {
      if (aggregator.refused(refusal(), 'a') !== undefined) taken += 1
    }
    for (let n = 0; n < 50; n += 1) refuse()
    setRoom(false)
    for (let n = 0; n < 50; n += 1) refuse()
    clock.advance(30_000)
    expect(taken).toBe(50)
    setRoom(true)
    for (let n = 0; n < 50; n += 1) refuse()
    clock.advance(10_000)
    expect(taken).toBe(100)
    expect(total()).toBe(100)
    expect(events.filter((event) => event.count !== undefined)).toHaveLength(1)
    aggregator.close()
  })

  it('watches a bounded number of different refusals without losing counts', () => {
    const { sink, total } = memorySink()
    const aggregator = createAggregator(sink, manualClock())
    for (let n = 0; n < 12_000; n += 1) {
      for (let again = 0; again < 12; again += 1) aggregator.refused(refusal({ host: `h${n}.test` }), 'a')
    }
    aggregator.close()
    expect(total()).toBe(144_000)
  })

  it('sets no timer when nothing is watched any more', () => {
    const { sink } = memorySink()
    const clock = manualClock()
    const aggregator = createAggregator(sink, clock)
    aggregator.refused(refusal(), 'a')
    expect(clock.pending).toBe(1)
    clock.advance(40_000)
    expect(clock.pending).toBe(0)
    aggregator.close()
  })
})
