import { describe, expect, it } from 'vitest'
import { decide, explain } from '../../src/policy/decide.ts'
import type { PolicyRequest, Scheme } from '../../src/policy/model.ts'
import { compilePolicy } from '../../src/policy/rules.ts'
import vectors from '../vectors/decisions.json' with { type: 'json' }
import { destination, get, input } from './policy-fixtures.ts'
import type { Written } from './policy-fixtures.ts'

interface Row {
  name: string
  policy: string
  connect?: boolean
  host: string
  port?: number
  scheme?: string
  method?: string
  path?: string
  now?: number
  allow?: string
  deny?: string
  rule?: string
  access?: string
  tls?: string
  schemes?: string[]
  addresses?: string[]
  own?: string
  hint?: string
}

const rows: Row[] = vectors.rows
const policies = new Map(
  Object.entries(vectors.policies).map(([name, written]) => [
    name,
    // JSON has no literal types; compilePolicy refuses what is not a rule.
    compilePolicy(input(written as Parameters<typeof input>[0])),
  ]),
)

function policyOf(name: string): ReturnType<typeof compilePolicy> {
  const policy = policies.get(name)
  if (policy === undefined) throw new TypeError(`no policy ${name}`)
  return policy
}

function requestOf({
  connect,
  host,
  port,
  scheme = 'https',
  method = 'GET',
  path = '/',
  now = 0,
}: Row): PolicyRequest {
  const to = destination(host, port)
  if (connect === true) return { kind: 'connect', destination: to, now }
  return { kind: 'http', destination: to, scheme: scheme as Scheme, method, path, now }
}

describe('decisions', () => {
  it.each(rows)('$name', (row) => {
    const decision = decide(policyOf(row.policy), requestOf(row))
    if (row.deny !== undefined) {
      expect(decision).toMatchObject({ verdict: 'deny', reason: row.deny, rule: row.rule })
      if (row.hint !== undefined) {
        expect(decision).toMatchObject({ hint: expect.stringContaining(row.hint) as string })
      }
      return
    }
    expect(decision).toMatchObject({
      verdict: 'allow',
      reason: row.allow,
      rule: row.rule,
      access: row.access ?? (row.allow === 'access' ? expect.any(String) : undefined),
    })
    if (decision.verdict !== 'allow') return
    if (row.tls !== undefined) expect(decision.tls).toBe(row.tls)
    if (row.schemes !== undefined) expect(decision.schemes).toEqual(row.schemes)
    if (row.own !== undefined) expect(decision.ownCredentials).toBe(row.own)
    if (row.addresses !== undefined) {
      expect(decision.addresses.map(({ text }) => text).sort()).toEqual(row.addresses)
    }
  })

  it('splices where every matching rule says so and nothing has to be read', () => {
    const splice: Written = { host: 'raw.good.test', tls: 'splice', ports: [443, 8443] }
    const policy = compilePolicy(
      input({
        allow: [
          { ...splice, id: 'one' },
          { ...splice, host: '*.good.test', id: 'two' },
        ],
        deny: [{ host: 'raw.good.test', ports: [8443], paths: ['/x'] }],
      }),
    )
    const ask = (port: number): unknown =>
      decide(policy, { kind: 'connect', destination: destination('raw.good.test', port), now: 0 })
    expect(ask(443)).toMatchObject({ verdict: 'allow', tls: 'splice', rule: 'one' })
    expect(ask(8443)).toMatchObject({ verdict: 'allow', tls: 'terminate' })
  })

  it('allows both schemes in a tunnel to a port that has both', () => {
    const policy = compilePolicy(
      input({
        allow: [
          { host: 'a.good.test', ports: [8080] },
          { host: 'a.good.test', ports: [8080], scheme: 'http' },
        ],
      }),
    )
    const decision = decide(policy, {
      kind: 'connect',
      destination: destination('a.good.test', 8080),
      now: 0,
    })
    expect(decision).toMatchObject({ verdict: 'allow', schemes: ['http', 'https'] })
  })

  it('never tells a client a range', () => {
    const policy = compilePolicy(
      input({ allow: [{ address: '10.20.0.0/16', methods: ['GET'], paths: ['/x'] }] }),
    )
    for (const changes of [
      { destination: destination('10.20.0.1', 22) },
      { method: 'PUT' },
      { path: '/y' },
    ]) {
      const decision = decide(policy, get('10.20.0.1', changes))
      expect(decision).toMatchObject({ verdict: 'deny' })
      if (decision.verdict === 'deny') expect(decision.hint).not.toContain('10.20')
    }
  })

  it('cuts a long list in a hint', () => {
    const paths = Array.from({ length: 40 }, (_, at) => `/p${at}`)
    const decision = decide(
      compilePolicy(input({ allow: [{ host: 'a.good.test', paths }] })),
      get('a.good.test'),
    )
    expect(decision).toMatchObject({ hint: expect.stringContaining('/p5 and 34 more are allowed') as string })
  })

  it('takes a deny rule with empty lists for a deny of everything', () => {
    const policy = compilePolicy(
      input({
        allow: [{ host: 'a.good.test' }],
        deny: [{ id: 'no', host: 'a.good.test', methods: [], paths: [] }],
      }),
    )
    expect(decide(policy, get('a.good.test'))).toMatchObject({ reason: 'host_denied', rule: 'no' })
  })

  it('takes an allow rule with empty lists for an allow of nothing', () => {
    const none = [
      { host: 'a.good.test', methods: [] },
      { host: 'b.good.test', paths: [] },
    ]
    const policy = compilePolicy(input({ allow: none }))
    expect(decide(policy, get('a.good.test'))).toMatchObject({ reason: 'method_denied' })
    expect(decide(policy, get('b.good.test'))).toMatchObject({ reason: 'path_denied' })
  })
})

describe('explaining', () => {
  it.each(rows)('decides alike: $name', (row) => {
    const policy = policyOf(row.policy)
    expect(explain(policy, requestOf(row)).decision).toEqual(decide(policy, requestOf(row)))
  })

  const policy = compilePolicy(
    input({
      allow: [
        {
          id: 'read',
          host: 'api.good.test',
          methods: ['GET'],
          paths: ['/v1/**'],
          expires: 1_803_859_200_000,
        },
        { id: 'alt', host: 'api.good.test', ports: [8443], tls: 'splice' },
        { id: 'wide', host: '*.good.test', addresses: ['10.0.0.0/8'] },
      ],
      deny: [{ id: 'no-admin', host: 'api.good.test', paths: ['/admin/**'] }],
      access: [{ access: 'github', host: 'api.good.test', port: 443, paths: ['/repos/**'] }],
    }),
  )

  it('shows every rule of the host and what became of it', () => {
    const { trace } = explain(policy, get('api.good.test', { path: '/v1/x' }))
    expect(trace.map(({ effect, rule, missed }) => [effect, rule, missed])).toEqual([
      ['deny', 'no-admin', 'path'],
      ['access', 'access:github', 'path'],
      ['allow', 'wide', undefined],
      ['allow', 'alt', 'port'],
      ['allow', 'read', undefined],
    ])
    expect(trace.map(({ matched }) => matched)).toEqual([false, false, true, false, true])
  })

  it('writes rules as an operator would', () => {
    const { trace } = explain(policy, get('api.good.test'))
    expect(trace.map(({ text }) => text)).toEqual([
      '{ host: api.good.test, paths: ["/admin/**"] }',
      '{ host: api.good.test, paths: ["/repos/**"] }',
      '{ host: "*.good.test", addresses: [10.0.0.0/8] }',
      '{ host: api.good.test, ports: [8443], tls: splice }',
      '{ host: api.good.test, methods: [GET], paths: ["/v1/**"], expires: 2027-03-01 }',
    ])
  })

  it('shows a rule that has expired as such', () => {
    const { trace } = explain(policy, get('api.good.test', { path: '/v1/x', now: 1_803_859_200_000 }))
    expect(trace).toContainEqual(expect.objectContaining({ rule: 'read', missed: 'expired' }))
  })

  it('shows the hosts spelled nearest where no rule touches the host', () => {
    const { decision, trace } = explain(policy, get('apj.goood.test'))
    expect(decision).toMatchObject({ verdict: 'deny', reason: 'host_denied', rule: undefined })
    expect(trace.map(({ rule, missed }) => [rule, missed])).toContainEqual(['wide', 'host'])
    expect(explain(policy, get('elsewhere.example')).trace).toEqual([])
  })

  it('shows the wildcard whose apex was asked for', () => {
    expect(explain(policy, get('good.test')).trace).toMatchObject([
      { rule: 'wide', missed: 'host', matched: false },
    ])
  })
})
