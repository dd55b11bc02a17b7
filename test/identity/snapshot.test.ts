import { describe, expect, it } from 'vitest'
import { decide } from '../../src/policy/decide.ts'
import { parseAuthority } from '../../src/policy/destination.ts'
import type { SandboxView } from '../../src/identity/model.ts'
import { identityBench } from '../helpers/identity-bench.ts'

const yaml = `
version: 1
self: [broker.example.net]
credentials: { c: { issuer: static, value: { secret: c } } }
access:
  api: { credential: c, destinations: [{ host: api.example.com }, { host: "*.wild.example.com", port: 8443 }] }
  other: { credential: c, destinations: [{ host: other.example.com }], slot: { header: x-key } }
templates:
  coder:
    tenant: web
    allow: [{ host: docs.example.com }]
    deny: [{ host: evil.example.com }]
    access: [api]
    limits: { tunnels: 10, body: 1MB }
    max_ttl: 1h
sandboxes:
  one:
    template: coder
    agent: agent-7
    allow: [{ host: evil.example.com }, { host: own.example.com }]
    limits: { tunnels: 20, response: 2MB }
  plain: { template: coder }
  elsewhere: { access: [other] }
`

function verdict(view: SandboxView, authority: string): string {
  const parsed = parseAuthority(authority)
  if (!parsed.ok) throw new TypeError(parsed.problem)
  return decide(view.policy, { kind: 'connect', destination: parsed.destination, now: 0 }).verdict
}

const runtime = {
  ...{ id: 'r1', name: 'r', origin: 'runtime' as const, tenant: 'web', template: 'coder', run: 'run-1' },
  ...{ agent: 'agent-9', expiresAt: undefined, pausedAt: undefined, destroyedAt: undefined },
}

describe('a snapshot', () => {
  it('joins what template and sandbox allow, and lets a deny of the template win', async () => {
    const { view } = await identityBench(yaml)
    const one = await view('one')
    expect(verdict(one, 'docs.example.com:443')).toBe('allow')
    expect(verdict(one, 'own.example.com:443')).toBe('allow')
    expect(verdict(one, 'api.example.com:443')).toBe('allow')
    expect(verdict(one, 'evil.example.com:443')).toBe('deny')
    expect(verdict(one, 'evil.example.com:8443')).toBe('deny')
    expect(verdict(await view('plain'), 'own.example.com:443')).toBe('deny')
    expect(verdict(await view('elsewhere'), 'docs.example.com:443')).toBe('deny')
  })

  it('takes the smaller of two limits', async () => {
    const { view } = await identityBench(yaml)
    expect((await view('one')).limits).toEqual({
      ...{ tunnels: 10, requests: 256, requestsPerMinute: undefined },
      ...{ bodyBytes: 1_000_000, responseBytes: 2_000_000 },
    })
    expect((await view('plain')).limits).toMatchObject({ tunnels: 10, responseBytes: undefined })
  })

  it('keeps budgets under tenant, template and agent, so that a new sandbox does not reset them', async () => {
    const bench = await identityBench(yaml)
    const before = (await bench.view('one')).budgetKey
    await bench.reconfigure(yaml.replace('  one:', '  uno:'))
    expect((await bench.view('uno')).budgetKey).toBe(before)
    expect((await bench.view('plain')).budgetKey).not.toBe(before)
  })

  it('gives a sandbox made at run time its template, bounded by its longest life', async () => {
    const bench = await identityBench(yaml)
    const createdAt = bench.clock.now()
    await bench.store.putSandbox({ ...runtime, createdAt })
    await bench.provision()
    const view = await bench.view('r')
    expect(view).toMatchObject({ run: 'run-1', agent: 'agent-9', expiresAt: createdAt + 3_600_000 })
    expect(view.identity).toEqual([[{ kind: 'token' }]])
    expect(view.grants.map(({ access }) => access.name)).toEqual(['api'])
    expect(verdict(view, 'docs.example.com:443')).toBe('allow')
  })

  it.each([
    ['is gone', (text: string) => text.replace(/ {2}coder:[^]*?sandboxes:[^]*/, '  other: {}\n')],
    ['belongs to another tenant', (text: string) => text.replace('tenant: web', 'tenant: ops')],
  ])('lets it reach nothing once its template %s', async (_, change) => {
    const bench = await identityBench(yaml)
    await bench.store.putSandbox({ ...runtime, createdAt: bench.clock.now() })
    await bench.provision()
    await bench.reconfigure(change(yaml))
    const view = await bench.view('r')
    expect(verdict(view, 'docs.example.com:443')).toBe('deny')
    expect(verdict(view, 'api.example.com:443')).toBe('deny')
    expect(view.grants).toEqual([])
  })

  it('leaves out the destroyed and the expired, and keeps their handles known', async () => {
    const bench = await identityBench(yaml)
    await bench.store.putSandbox({ ...runtime, createdAt: bench.clock.now() })
    await bench.provision()
    const handle = (await bench.view('r')).grants[0]?.handle
    bench.clock.advance(3_600_000)
    const snapshot = await bench.snapshot()
    expect([...snapshot.sandboxes.keys()]).toEqual(['one', 'plain', 'elsewhere'])
    expect(snapshot.handles.get(handle?.placeholder ?? '')).toEqual(handle)
  })

  it('shows a paused sandbox as paused', async () => {
    const bench = await identityBench(yaml)
    const record = (await bench.store.sandboxes()).find(({ name }) => name === 'one')
    if (record === undefined) throw new TypeError('no record')
    await bench.store.putSandbox({ ...record, pausedAt: bench.clock.now() })
    expect((await bench.view('one')).paused).toBe(true)
  })

  it('knows the bound destinations of each tenant, wildcards by label', async () => {
    const { snapshot } = await identityBench(yaml)
    const { bound, selfNames } = await snapshot()
    const web = bound.get('web')
    expect(web?.has('api.example.com', 443)).toBe(true)
    expect(web?.has('api.example.com', 8443)).toBe(false)
    expect(web?.has('a.b.wild.example.com', 8443)).toBe(true)
    expect(web?.has('wild.example.com', 8443)).toBe(false)
    expect(web?.has('notwild.example.com', 8443)).toBe(false)
    expect(web?.has('other.example.com', 443)).toBe(false)
    expect(bound.get('default')?.has('other.example.com', 443)).toBe(true)
    expect(selfNames).toEqual(['broker.example.net'])
  })

  it('never splices a destination of an access that another sandbox of the tenant has', async () => {
    const splicing = (tenant: string, host: string): string =>
      `  splicing: { tenant: ${tenant}, allow: [{ host: "${host}", ports: [443, 8443], tls: splice }] }\n`
    const tls = async (own: string, authority: string): Promise<string | undefined> => {
      const bench = await identityBench(yaml + own)
      const parsed = parseAuthority(authority)
      if (!parsed.ok) throw new TypeError(parsed.problem)
      const { policy } = await bench.view('splicing')
      const decision = decide(policy, { kind: 'connect', destination: parsed.destination, now: 0 })
      return decision.verdict === 'allow' ? decision.tls : undefined
    }
    expect(await tls(splicing('web', 'api.example.com'), 'api.example.com:443')).toBe('terminate')
    expect(await tls(splicing('web', 'api.example.com'), 'api.example.com:8443')).toBe('splice')
    expect(await tls(splicing('web', '*.example.com'), 'a.wild.example.com:8443')).toBe('terminate')
    expect(await tls(splicing('other', 'api.example.com'), 'api.example.com:443')).toBe('splice')
  })

  it('has a hash that says which rules are in force, whatever their order and the state of the store', async () => {
    const bench = await identityBench(yaml)
    const { hash } = await bench.snapshot()
    expect(hash).toMatch(/^[0-9a-f]{16}$/)
    const again = await identityBench(yaml)
    expect((await again.snapshot()).hash).toBe(hash)
    const swapped = yaml.replace(
      '{ host: evil.example.com }, { host: own.example.com }',
      '{ host: own.example.com }, { host: evil.example.com }',
    )
    await again.reconfigure(swapped)
    expect((await again.snapshot()).hash).toBe(hash)
    await again.reconfigure(yaml.replace('own.example.com', 'owner.example.com'))
    expect((await again.snapshot()).hash).not.toBe(hash)
  })
})

describe('a large configuration', () => {
  it('of 1,000 sandboxes on one template of 2,000 rules compiles the template once', async () => {
    const rules = Array.from({ length: 2000 }, (_, index) => `{ host: h${index}.example.com }`)
    const sandboxes = Array.from({ length: 1000 }, (_, index) => `  s${index}: { template: t }`)
    const text = `version: 1\ntemplates: { t: { allow: [${rules.join(', ')}] } }\nsandboxes:\n${sandboxes.join('\n')}\n`
    const { snapshot } = await identityBench(text)
    const { sandboxes: views } = await snapshot()
    expect(views.size).toBe(1000)
    expect(new Set(Array.from(views.values(), ({ policy }) => policy)).size).toBe(1)
  })
})
