import { createHash } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { appendLink, canonicalBody, genesis, linkLine, verifyChain } from '../../src/audit/chain.ts'
import type { Link } from '../../src/audit/chain.ts'
import type { AuditEvent } from '../../src/audit/event.ts'

const event = (n: number, more: Partial<AuditEvent> = {}): AuditEvent => ({
  id: `01JD8Z${n}`,
  ts: 1_000 + n,
  kind: 'exchange',
  host: 'api.example.com',
  ...more,
})

function chainOf(count: number, start: { seq: number; hash: string } = { seq: 0, hash: genesis }): Link[] {
  const links: Link[] = []
  let prev = start.hash
  for (let n = 1; n <= count; n += 1) {
    const link = appendLink(prev, start.seq + n, event(n))
    links.push(link)
    prev = link.hash
  }
  return links
}

describe('canonicalBody', () => {
  it('writes the fields in the order of the record, whatever order they came in', () => {
    const mixed: AuditEvent = {
      verdict: 'allow',
      host: 'a.test',
      kind: 'exchange',
      ts: 5,
      agent: 'x',
      id: 'I',
    }
    expect(canonicalBody(7, mixed)).toBe(
      '{"v":1,"id":"I","seq":7,"ts":5,"kind":"exchange","agent":"x","host":"a.test","verdict":"allow"}',
    )
  })

  it('leaves absent fields out and keeps zero and the empty text', () => {
    const body = canonicalBody(1, event(1, { bytes_up: 0, path: '', agent: undefined }))
    expect(body).toContain('"bytes_up":0')
    expect(body).toContain('"path":""')
    expect(body).not.toContain('agent')
  })

  it('keeps a value that looks like another row inside its own', () => {
    const path = '/x","seq":9,"kind":"admin"}\n{"v":1,"id":"forged"\u2028\u0000\u001b[31m'
    const body = canonicalBody(1, event(1, { path }))
    expect(body.split('\n')).toHaveLength(1)
    expect(JSON.parse(body)).toMatchObject({ seq: 1, kind: 'exchange', path })
  })
})

describe('linkLine', () => {
  it.each([
    ['the override of direction', '\u202e'],
    ['an annotation of other text', '\ufff9'],
    ['a letter that only machines see', '\u{e0041}'],
    ['a mark between syllables', '\u180e'],
    ['the end of a line in Unicode', '\u2028'],
    ['a control character of Latin-1', '\u009b'],
  ])('shows %s as an escape, so that nothing in a line acts or hides', (_name, character) => {
    const body = canonicalBody(1, event(1, { note: `a${character}b` }))
    expect(body).not.toContain(character)
    expect(JSON.parse(body)).toMatchObject({ note: `a${character}b` })
  })

  it('can be checked by anybody with SHA-256 and the line alone', () => {
    const [first, second] = chainOf(2)
    if (first === undefined || second === undefined) throw new TypeError('two links')
    const line = linkLine(first.hash, second)
    const [signed, rest] = line.split(',"hash":')
    expect(rest).toBe(`"${createHash('sha256').update(`${signed}}`).digest('hex')}"}`)
    expect(JSON.parse(line)).toMatchObject({ v: 1, seq: 2, prev: first.hash, hash: second.hash })
  })
})

describe('verifyChain', () => {
  const good = chainOf(20)
  const changed = (n: number, how: (link: Link) => Partial<Link>): Link[] =>
    good.map((link) => (link.seq === n ? { ...link, ...how(link) } : link))
  const cases: { name: string; rows: Link[]; seq: number; problem: RegExp }[] = [
    {
      name: 'a changed field',
      rows: changed(7, (link) => ({ body: link.body.replace('api.example.com', 'bad.example.com') })),
      seq: 7,
      problem: /event 7 does not match its hash/,
    },
    {
      name: 'a changed field with a hash made to fit',
      rows: changed(7, () => appendLink(good[5]?.hash ?? '', 7, event(7, { host: 'bad.test' }))),
      seq: 8,
      problem: /event 8 does not match its hash or the event before it/,
    },
    {
      name: 'a deleted row',
      rows: good.filter((link) => link.seq !== 7),
      seq: 7,
      problem: /event 7 is missing/,
    },
    {
      name: 'deleted rows',
      rows: good.filter((link) => link.seq < 7 || link.seq > 9),
      seq: 7,
      problem: /events 7 to 9 are missing/,
    },
    {
      name: 'two rows that changed places',
      rows: good.map((link) => ({
        ...(good[link.seq === 7 ? 7 : link.seq === 8 ? 6 : link.seq - 1] ?? link),
      })),
      seq: 7,
      problem: /event 7 is missing/,
    },
    {
      name: 'two rows that changed places and numbers',
      rows: good.map((link) => {
        const other = good[link.seq === 7 ? 7 : link.seq === 8 ? 6 : link.seq - 1] ?? link
        return { ...other, seq: link.seq }
      }),
      seq: 7,
      problem: /event 7 says it is another one/,
    },
    {
      name: 'an inserted row',
      rows: good.flatMap((link) => (link.seq === 7 ? [link, appendLink(link.hash, 7, event(99))] : [link])),
      seq: 8,
      problem: /event 7 comes after event 7/,
    },
    {
      name: 'another last character, which is not a part of the hashed text',
      rows: changed(7, (link) => ({ body: `${link.body.slice(0, -1)}]` })),
      seq: 7,
      problem: /event 7 does not match its hash/,
    },
    { name: 'a cut beginning', rows: good.slice(3), seq: 1, problem: /events 1 to 3 are missing/ },
    { name: 'a text that is no JSON', rows: changed(7, () => ({ body: '}' })), seq: 7, problem: /event 7/ },
  ]
  for (const { name, rows, seq, problem } of cases) {
    it(`names the first bad row of a chain with ${name}`, () => {
      const verdict = verifyChain(rows)
      expect(verdict).toMatchObject({ ok: false, seq })
      expect(verdict.ok || verdict.problem).toMatch(problem)
    })
  }

  it('accepts what it made, from the beginning and from a checkpoint', () => {
    expect(verifyChain(good)).toEqual({ ok: true, events: 20, head: { seq: 20, hash: good[19]?.hash } })
    const start = { seq: 5, hash: good[4]?.hash ?? '' }
    expect(verifyChain(good.slice(5), start)).toMatchObject({ ok: true, events: 15 })
    expect(verifyChain([], start)).toEqual({ ok: true, events: 0, head: start })
  })
})
