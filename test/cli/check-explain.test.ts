import { randomBytes } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { registerCheck } from '../../src/cli/check.ts'
import type { Records } from '../../src/cli/explain.ts'
import { runProgram } from '../../src/cli/program.ts'
import { provision } from '../../src/identity/provision.ts'
import { configFolder } from '../helpers/config-files.ts'
import { manualClock } from '../helpers/manual-clock.ts'
import { memoryIo } from '../helpers/memory-io.ts'
import { memorySeal, memoryStore } from '../helpers/memory-store.ts'

const yaml = `
version: 1
self: [broker.example.net]
credentials: { c: { issuer: static, value: { secret: c } } }
access:
  api:
    credential: c
    destinations: [{ host: api.example.com, methods: [GET], paths: ["/v1/**"] }]
    slot: { basic: password }
templates:
  coder:
    tenant: web
    allow:
      - { id: docs, host: docs.example.com, methods: [GET] }
      - { id: inside, host: inside.example.net, addresses: [10.20.0.0/16] }
    deny:
      - { id: no-admin, host: docs.example.com, paths: ["/admin/**"] }
sandboxes:
  s: { template: coder, agent: agent-7, access: [api] }
  other: { access: [api] }
`

async function setUp() {
  const files = configFolder(yaml)
  const store = memoryStore()
  const loaded = files.load()
  if (!loaded.ok) throw new TypeError('not good')
  const common = { store, seal: memorySeal(), random: randomBytes, clock: manualClock(), env: {} }
  await provision({ config: loaded.config, ...common })
  const [sandboxes, tokens, handles] = await Promise.all([store.sandboxes(), store.tokens(), store.handles()])
  const placeholderOf = (name: string): string =>
    handles.find((handle) => handle.sandbox === name)?.placeholder ?? ''
  const explain = async (
    argv: readonly string[],
    records: Records | undefined = { sandboxes, tokens, handles },
  ) => {
    const { io, out, err } = memoryIo()
    const group = registerCheck({
      makeAuthority: async () => {},
      readRecords: () => Promise.resolve(records),
    })
    const code = await runProgram(['explain', '--config', files.path('octroi.yaml'), ...argv], {
      io,
      groups: [group],
    })
    return { code, out: out.join('\n'), err: err.join('\n') }
  }
  return { explain, placeholderOf, records: { sandboxes, tokens, handles } }
}

const ask = (method: string, url: string, ...more: string[]) => ['--sandbox', 's', method, url, ...more]

describe('octroi explain', () => {
  it.each([
    ['an allowed request', ask('GET', 'https://docs.example.com/a'), 0, 'rule', 'docs'],
    ['a tunnel', ask('CONNECT', 'docs.example.com:443'), 0, 'rule', 'docs'],
    ['a destination of an access', ask('GET', 'https://api.example.com/v1/x?y=1'), 0, 'access', 'access:api'],
    ['another method', ask('POST', 'https://docs.example.com/a'), 1, 'method_denied', 'docs'],
    [
      'a method that is never relayed',
      ask('TRACE', 'https://docs.example.com/a'),
      1,
      'method_unsupported',
      undefined,
    ],
    ['a path with two readings', ask('GET', 'https://docs.example.com/a/../b'), 1, 'malformed', undefined],
    ['a denied path', ask('GET', 'https://docs.example.com/admin/x'), 1, 'path_denied', 'no-admin'],
    ['another port', ask('GET', 'https://docs.example.com:8443/'), 1, 'port_denied', 'docs'],
    ['another host', ask('GET', 'https://evil.example.org/'), 1, 'host_denied', undefined],
    ['a metadata service', ask('GET', 'http://169.254.169.254/latest'), 1, 'metadata_denied', undefined],
    ['the broker by name', ask('GET', 'https://broker.example.net/'), 1, 'self', undefined],
    ['the broker by address', ask('CONNECT', '127.0.0.1:18080'), 1, 'self', undefined],
    [
      'a private address',
      ask('GET', 'https://docs.example.com/', '--address', '10.20.0.5'),
      1,
      'ip_denied',
      undefined,
    ],
    [
      'an address that a rule opens',
      ask('GET', 'https://inside.example.net/', '--address', '10.20.0.5'),
      0,
      'rule',
      'inside',
    ],
    [
      'a name that leads to the broker',
      ask('CONNECT', 'docs.example.com:443', '--address', '127.0.0.1'),
      1,
      'ip_denied',
      undefined,
    ],
  ])('decides %s', async (_, argv, code, reason, rule) => {
    const { explain } = await setUp()
    const answer = await explain([...argv, '--json'])
    expect(answer.err).toBe('')
    const parsed: unknown = JSON.parse(answer.out)
    expect(parsed).toMatchObject({
      ...{ sandbox: 's', tenant: 'web', agent: 'agent-7', template: 'coder', reason },
      verdict: code === 0 ? 'allow' : 'deny',
      ...(rule === undefined ? {} : { rule }),
    })
    expect(answer.code).toBe(code)
  })

  it('prints each check and each rule that was looked at', async () => {
    const { explain } = await setUp()
    const { code, out } = await explain(ask('POST', 'https://docs.example.com/a'))
    expect(code).toBe(1)
    expect(out).toContain('sandbox s (tenant web, agent agent-7, template coder) to docs.example.com:443')
    expect(out).toMatch(/pass +identity +assumed; proved by token/)
    expect(out).toMatch(/FAIL +policy +method_denied/)
    expect(out).toMatch(/deny +no-admin +not this path/)
    expect(out).toMatch(/allow +docs +not this method/)
    expect(out).toMatch(/^deny: method_denied by docs$/m)
  })

  it('shows the rule that came near when a host is misspelled', async () => {
    const { explain } = await setUp()
    const { out } = await explain(ask('GET', 'https://dosc.example.com/'))
    expect(out).toMatch(/allow +docs +not this host/)
  })

  it.each([
    ['in its slot', 's', 'https://api.example.com/v1/x', 0, 'access', undefined],
    ['at another destination', 's', 'https://docs.example.com/', 1, 'handle_wrong_destination', undefined],
    [
      'of another sandbox',
      'other',
      'https://api.example.com/v1/x',
      1,
      'handle_unknown',
      'handle_wrong_sandbox',
    ],
  ])('judges a placeholder %s', async (_, owner, url, code, reason, truth) => {
    const { explain, placeholderOf } = await setUp()
    const answer = await explain(ask('GET', url, '--placeholder', placeholderOf(owner), '--json'))
    expect(answer.code).toBe(code)
    expect(JSON.parse(answer.out)).toMatchObject({ reason, ...(truth === undefined ? {} : { truth }) })
  })

  it('says of a paused sandbox that it is paused', async () => {
    const { explain, records } = await setUp()
    const sandboxes = records.sandboxes.map((record) => ({ ...record, pausedAt: 1 }))
    const answer = await explain(ask('GET', 'https://docs.example.com/', '--json'), { ...records, sandboxes })
    expect(JSON.parse(answer.out)).toMatchObject({ verdict: 'deny', reason: 'sandbox_paused' })
  })

  it('works before a broker has ever run', async () => {
    const { explain } = await setUp()
    const empty = { sandboxes: [], tokens: [], handles: [] }
    expect((await explain(ask('GET', 'https://docs.example.com/a'), empty)).code).toBe(0)
  })

  it.each([
    ['an unknown sandbox', ['--sandbox', 'z', 'GET', 'https://a.example.com/'], 'no sandbox of that name'],
    ['a URL without scheme', ask('GET', 'docs.example.com'), 'not an http:// or https:// URL'],
    ['a tunnel without port', ask('CONNECT', 'docs.example.com'), 'HOST:PORT'],
    ['no sandbox', ['GET', 'https://a.example.com/'], '--sandbox'],
  ])('refuses %s as wrong usage', async (_, argv, message) => {
    const { explain } = await setUp()
    const { code, err } = await explain(argv)
    expect(code).toBe(2)
    expect(err).toContain(message)
  })
})
