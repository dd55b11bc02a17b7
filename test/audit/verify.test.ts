import { copyFileSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { EventWriter } from '../../src/audit/event-writer.ts'
import { exportHead, verifyEvents } from '../../src/audit/query.ts'

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'octroi-verify-'))
  write(1, 50)
})
afterEach(() => rmSync(folder, { recursive: true, force: true }))

function write(from: number, to: number): void {
  const writer = new EventWriter(folder, 'normal')
  for (let n = from; n <= to; n += 1) {
    writer.write([{ id: `E${n}`, ts: n, kind: 'exchange', agent: 'a', host: 'h.test', verdict: 'deny' }])
  }
  writer.close()
}

function tamper(sql: string): void {
  const database = new DatabaseSync(join(folder, 'events.db'))
  database.exec(sql)
  database.close()
}

describe('verifyEvents', () => {
  const cases: { name: string; sql: string; seq: number }[] = [
    {
      name: 'a changed text',
      sql: `UPDATE events SET body = replace(body, 'h.test', 'x.test') WHERE seq = 20`,
      seq: 20,
    },
    {
      name: 'a column that no longer says what the text says',
      sql: `UPDATE events SET agent = 'b' WHERE seq = 20`,
      seq: 20,
    },
    {
      name: 'a verdict taken out of the column',
      sql: 'UPDATE events SET verdict = NULL WHERE seq = 20',
      seq: 20,
    },
    { name: 'a changed hash', sql: `UPDATE events SET hash = zeroblob(32) WHERE seq = 20`, seq: 20 },
    { name: 'a deleted row', sql: 'DELETE FROM events WHERE seq = 20', seq: 20 },
    { name: 'a cut beginning', sql: 'DELETE FROM events WHERE seq < 20', seq: 1 },
    {
      name: 'two rows that changed places',
      sql: 'UPDATE events SET seq = -1 WHERE seq = 20; UPDATE events SET seq = 20 WHERE seq = 21; UPDATE events SET seq = 21 WHERE seq = -1',
      seq: 20,
    },
    {
      name: 'an inserted row',
      sql: `INSERT INTO events SELECT 51, id, ts, kind, verdict, agent, sandbox, host, body, hash FROM events WHERE seq = 50`,
      seq: 51,
    },
    { name: 'a tail cut without care', sql: 'DELETE FROM events WHERE seq > 45', seq: 46 },
  ]
  for (const { name, sql, seq } of cases) {
    it(`finds ${name} and names the first bad row`, () => {
      expect(verifyEvents(folder)).toMatchObject({ ok: true, events: 50, exported: 'none' })
      tamper(sql)
      expect(verifyEvents(folder)).toMatchObject({ ok: false, seq })
    })
  }

  it('finds a tail cut with care by a head exported before', () => {
    const head = exportHead(folder)
    expect(verifyEvents(folder, { head })).toMatchObject({ ok: true, exported: 'matches' })
    tamper(`DELETE FROM events WHERE seq > 45;
      UPDATE chain SET seq = 45, hash = (SELECT lower(hex(hash)) FROM events WHERE seq = 45)`)
    expect(verifyEvents(folder)).toMatchObject({ ok: true, events: 45 })
    const verdict = verifyEvents(folder, { head })
    expect(verdict).toMatchObject({ ok: false, seq: 46, problem: expect.stringContaining('tail is cut') })
  })

  it('finds an old copy that was put back, also after it went on', () => {
    const path = join(folder, 'events.db')
    copyFileSync(path, `${path}.old`)
    write(51, 60)
    const head = exportHead(folder)
    write(61, 70)
    expect(verifyEvents(folder, { head })).toMatchObject({ ok: true, exported: 'matches' })
    for (const rest of ['-wal', '-shm']) rmSync(path + rest, { force: true })
    copyFileSync(`${path}.old`, path)
    expect(verifyEvents(folder, { head })).toMatchObject({ ok: false, seq: 51 })
    write(100, 130)
    expect(verifyEvents(folder)).toMatchObject({ ok: true, events: 81 })
    expect(verifyEvents(folder, { head })).toMatchObject({
      ok: false,
      seq: 60,
      problem: expect.stringContaining('rewritten'),
    })
  })
})
