import { describe, expect, it } from 'vitest'
import { EventWriter } from '../../src/audit/event-writer.ts'
import type { AuditEvent } from '../../src/audit/event.ts'
import { csvLine } from '../../src/cli/log-lines.ts'
import { registerLogs, sinceOption } from '../../src/cli/logs.ts'
import { runProgram } from '../../src/cli/program.ts'
import { registerWhy } from '../../src/cli/why.ts'
import { createEventIds } from '../../src/audit/event-id.ts'
import { manualClock } from '../helpers/manual-clock.ts'
import { memoryIo } from '../helpers/memory-io.ts'
import { stateFolder } from '../helpers/state-folder.ts'

const noon = Date.UTC(2030, 0, 31, 12)
const event = (id: string, more: Partial<AuditEvent> = {}): AuditEvent => ({
  id,
  ts: noon,
  kind: 'exchange',
  ...more,
})

const seen: AuditEvent[] = [
  event('01ARYZ6S41AAAAAAAAAAAAAAAA', {
    kind: 'decision',
    agent: 'agent-7',
    sandbox: 'coder-1',
    verdict: 'allow',
    method: 'GET',
    scheme: 'https',
    host: 'api.example.com',
    port: 443,
    path: '/v1/x',
    reason: 'access',
    access: 'github',
    policy: 'abc123',
  }),
  event('01ARYZ6S41AAAAAAAAAAAAAAAA', {
    kind: 'outcome',
    status: 200,
    bytes_up: 120,
    bytes_down: 45_300,
    end: 'complete',
  }),
  event('01ARYZ6S42BBBBBBBBBBBBBBBB', {
    agent: 'agent-7',
    sandbox: 'coder-1',
    verdict: 'deny',
    method: 'CONNECT',
    host: 'evil.test',
    port: 443,
    reason: 'host_denied',
    count: 40,
    status: 403,
  }),
]

function setup(events: readonly AuditEvent[] = seen) {
  const folder = stateFolder()
  const writer = new EventWriter(folder, 'normal')
  writer.write(events)
  writer.recordPolicy('abc123', '{"rules":1}', noon)
  const run = async (argv: string[], own: Parameters<typeof memoryIo>[0] = {}, stop?: AbortSignal) => {
    const { io, out, err } = memoryIo({ env: { OCTROI_CONFIG: '/etc/o.yaml' }, ...own })
    const access = {
      stateFolder: () => Promise.resolve(folder),
      ...(stop === undefined ? {} : { stop }),
    }
    const code = await runProgram(argv, { io, groups: [registerLogs(access), registerWhy(access)] })
    return { code, out, err }
  }
  return { run, writer }
}

describe('octroi logs', () => {
  it('tells the operator what opens an address that is not public, and only then', async () => {
    const id = '01ARYZ6S44DDDDDDDDDDDDDDDD'
    const note = 'mirror.test:443 is at 203.0.113.80'
    const denied = setup([event(id, { verdict: 'deny', reason: 'ip_denied', note })])
    expect((await denied.run(['why', id])).out.join('\n')).toMatch(
      /note +mirror\.test[^]*remedy +.*addresses: \[RANGE\]/,
    )
    const other = setup([event(id, { verdict: 'deny', reason: 'host_denied' })])
    expect((await other.run(['why', id])).out.join('\n')).not.toContain('remedy')
  })

  it.each([
    ['deny', 'dns_failed', 'upstream_failed', 'dns_failed'],
    ['deny', 'host_denied', 'complete', 'host_denied'],
    ['allow', 'access', 'upstream_failed', 'access,upstream_failed'],
    ['allow', 'rule', 'client_gone', 'rule,client_gone'],
  ] as const)('says once how a %s for %s with the end %s came out', async (verdict, reason, end, shown) => {
    const { run } = setup([
      event('01ARYZ6S43CCCCCCCCCCCCCCCC', { verdict, reason, end, host: 'a.test', status: 502 }),
    ])
    const { out } = await run(['logs'])
    expect(out[1]).toMatch(new RegExp(`  502 +${shown}  `))
  })

  it('shows time, agent, sandbox, verdict, destination, status, reason, access and bytes of each exchange', async () => {
    const { run, writer } = setup()
    const { code, out } = await run(['logs'])
    expect(code).toBe(0)
    expect(out).toHaveLength(3)
    expect(out[0]).toMatch(/^TIME +AGENT +SANDBOX +VERDICT/)
    expect(out[1]?.split(/ {2,}/)).toEqual([
      ...['2030-01-31T12:00:00Z', 'agent-7', 'coder-1', 'allow', 'GET', 'api.example.com:443/v1/x'],
      ...['200', 'access', 'github', '120/45.3k', '01ARYZ6S41AAAAAAAAAAAAAAAA'],
    ])
    expect(out[2]).toMatch(/deny +CONNECT +evil\.test:443 +403 +host_denied x40 +- +- +01ARYZ6S42/)
    writer.close()
  })

  it('filters, and says so when nothing matches', async () => {
    const { run, writer } = setup()
    const count = async (...argv: string[]) => (await run(['logs', '--json', ...argv])).out.length
    expect(await count('--verdict', 'deny')).toBe(1)
    expect(await count('--host', '*.EXAMPLE.com', '--agent', 'agent-7')).toBe(1)
    expect(await count('--sandbox', 'coder-2')).toBe(0)
    expect(await count('--limit', '1')).toBe(1)
    expect((await run(['logs', '--sandbox', 'coder-2'])).err).toEqual(['no events match'])
    writer.close()
  })

  it('refuses options it does not understand with exit code 2 and the spelling that works', async () => {
    const { run, writer } = setup()
    for (const [argv, hint] of [
      [['--since', 'yesterday'], /10m, 2h or 7d/],
      [['--limit', '-3'], /whole number/],
      [['--verdict', 'maybe'], /allow, deny/],
      [['--json', '--csv'], /cannot be used/],
    ] as const) {
      const { code, err } = await run(['logs', ...argv])
      expect(code).toBe(2)
      expect(err.join('\n')).toMatch(hint)
    }
    expect((await run(['logs', '--run', 'last'])).err.join()).toMatch(/no event belongs to a run/)
    writer.close()
  })

  it('prints JSON lines that parse, and the chained rows with --raw', async () => {
    const { run, writer } = setup()
    const lines = (await run(['logs', '--json'])).out.map((line): AuditEvent => JSON.parse(line))
    expect(lines[0]).toMatchObject({ kind: 'exchange', status: 200, seq: 1 })
    const raw = (await run(['logs', '--raw'])).out.map((line): { kind: string; hash: string } =>
      JSON.parse(line),
    )
    expect(raw.map((line) => line.kind)).toEqual(['decision', 'outcome', 'exchange'])
    expect(raw[0]?.hash).toMatch(/^[0-9a-f]{64}$/)
    writer.close()
  })

  it('lets nothing in an event steer the terminal or pass for another line', async () => {
    const path = '/\u001b[2J\u009b31m\u202Egnp\u2028{"v":1}\r\n\u0000\u007f'
    const { run, writer } = setup([
      event('01ARYZ6S42CCCCCCCCCCCCCCCC', { host: 'h.test', path, note: '\u202E' }),
    ])
    for (const argv of [
      ['logs'],
      ['logs', '--json'],
      ['logs', '--raw'],
      ['logs', '--csv'],
      ['why', '01ARYZ6S42C'],
    ]) {
      const { out } = await run(argv)
      expect(out.length).toBeGreaterThan(0)
      for (const line of out) expect(line).not.toMatch(/[\u0000-\u001f\u007f-\u009f\u2028\u2029\u202e]/)
    }
    const [json] = (await run(['logs', '--json'])).out
    expect(JSON.parse(json ?? '')).toMatchObject({ path })
    writer.close()
  })

  it('colours a terminal unless NO_COLOR is set', async () => {
    const { run, writer } = setup()
    const env = { OCTROI_CONFIG: '/etc/o.yaml' }
    expect((await run(['logs'], { isTerminal: true, env })).out[2]).toContain('\u001b[31m')
    const plain = await run(['logs'], { isTerminal: true, env: { ...env, NO_COLOR: '1' } })
    expect(plain.out[2]).not.toContain('\u001b')
    writer.close()
  })

  it('says when older events are left out', async () => {
    const many = Array.from({ length: 300 }, (_, n) => event(`E${n}`))
    const { run, writer } = setup(many)
    const { out, err } = await run(['logs', '--json'])
    expect(out).toHaveLength(200)
    expect(JSON.parse(out[199] ?? '')).toMatchObject({ id: 'E299' })
    expect(err[0]).toMatch(/only the newest 200/)
    expect((await run(['logs', '--json', '--since', '2030-01-01'])).out).toHaveLength(300)
    writer.close()
  })

  it('follows: each event once, an open exchange again at its end', async () => {
    const { run, writer } = setup([event('OPEN', { kind: 'decision', host: 'h.test', verdict: 'allow' })])
    const stop = new AbortController()
    const following = run(['logs', '--follow', '--json'], {}, stop.signal)
    await new Promise((resolve) => setTimeout(resolve, 100))
    writer.write([event('NEXT'), event('OPEN', { kind: 'outcome', end: 'client_gone' })])
    await new Promise((resolve) => setTimeout(resolve, 700))
    stop.abort()
    const { out } = await following
    const lines = out.map((line): { id: string; end?: string } => JSON.parse(line))
    expect(lines.map(({ id, end }) => [id, end])).toEqual([
      ['OPEN', undefined],
      ['OPEN', 'client_gone'],
      ['NEXT', undefined],
    ])
    writer.close()
  })
})

describe('csvLine', () => {
  const cell = (note: string): string => {
    const line = csvLine({ ...event('I'), seq: 1, note })
    return line.slice(line.lastIndexOf(',,') + 2)
  }
  for (const formula of ['=1+1', '+1', '-1+2', '@SUM(A1)', '\t=1', '  =1', '\r=1', '%x', '|cmd']) {
    it(`neutralises ${JSON.stringify(formula)}`, () => expect(cell(formula)).toMatch(/^"?'/))
  }

  it('quotes what needs it and keeps one event on one line', () => {
    expect(cell('say "x"')).toBe('"say ""x"""')
    expect(cell('a\nb')).toBe('a\\u{a}b')
    expect(cell('plain')).toBe('plain')
    expect(cell('x'.repeat(1_000_000))).toHaveLength(1_000_000)
  })
})

describe('sinceOption', () => {
  it('takes a duration back from now or a point in time', () => {
    expect(sinceOption('2h', noon)).toBe(noon - 7_200_000)
    expect(sinceOption('2030-01-31T12:00:00Z')).toBe(noon)
    expect(sinceOption(undefined)).toBeUndefined()
  })
})

describe('octroi domains', () => {
  it('lists the domains of one agent with first sight, counts, bytes and accesses', async () => {
    const { run, writer } = setup()
    const { code, out } = await run(['domains', '--agent', 'agent-7'])
    expect(code).toBe(0)
    expect(out[1]?.split(/ {2,}/)).toEqual([
      'api.example.com',
      '2030-01-31T12:00:00Z',
      '1',
      '0',
      '120/45.3k',
      'github',
    ])
    expect(out[2]?.split(/ {2,}/)).toEqual(['evil.test', '2030-01-31T12:00:00Z', '40', '40', '0/0', '-'])
    const wire = await run(['domains', '--agent', 'agent-7', '--json'])
    expect(JSON.parse(wire.out[0] ?? '')).toEqual({
      host: 'api.example.com',
      first_seen: '2030-01-31T12:00:00.000Z',
      last_seen: '2030-01-31T12:00:00.000Z',
      count: 1,
      refused: 0,
      bytes_up: 120,
      bytes_down: expect.any(Number),
      access: ['github'],
    })
    const fresh = await run(['domains', '--agent', 'agent-7', '--new', '--since', '2030-02-01', '--json'])
    expect(fresh.out).toEqual([])
    expect((await run(['domains', '--agent', 'nobody'])).err).toEqual(['agent nobody: no domain matches'])
    writer.close()
  })
})

describe('octroi why', () => {
  it('explains a refusal by the beginning of its id', async () => {
    const { run, writer } = setup()
    const { code, out } = await run(['why', '01aryz6s42'])
    expect(code).toBe(0)
    expect(out.join('\n')).toMatch(
      /reason +host_denied[^]*meaning +Host denied\nhint +No rule of this sandbox allows/,
    )
    writer.close()
  })

  it('says what keeps it from tracing a decision again, and shows the event all the same', async () => {
    const { run, writer } = setup()
    const { code, out, err } = await run(['why', '01ARYZ6S41AA'])
    expect([code, out.includes('status       200')]).toEqual([0, true])
    expect(err).toEqual([
      'the decision cannot be traced again under policy abc123: its rules were kept in a form that this octroi does not read',
    ])
    writer.close()
  })

  it('fails for an id that is unknown, ambiguous or too short', async () => {
    const { run, writer } = setup()
    expect(await run(['why', '01ARYZ'])).toMatchObject({
      code: 1,
      err: [expect.stringMatching(/several ids/)],
    })
    expect(await run(['why', 'ZZZZZZZZ'])).toMatchObject({
      code: 1,
      err: [expect.stringMatching(/no event/)],
    })
    expect(await run(['why', '01'])).toMatchObject({ code: 2 })
    writer.close()
  })

  it('points from the id of a folded refusal to the event that counts it', async () => {
    const clock = manualClock(noon)
    const newId = createEventIds(clock)
    const counted = event(newId(), { verdict: 'deny', reason: 'host_denied', count: 12 })
    clock.advance(4_000)
    const { run, writer } = setup([counted])
    const { err } = await run(['why', newId()])
    expect(err[0]).toContain(`counted in: ${counted.id}`)
    writer.close()
  })
})
