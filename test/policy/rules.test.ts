import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { decide } from '../../src/policy/decide.ts'
import type { HostRule, Rule } from '../../src/policy/model.ts'
import { registryRules } from '../../src/policy/registries/catalogue.ts'
import { coverage } from '../../src/policy/rule-index.ts'
import { compilePolicy, describePolicy, policyFingerprint } from '../../src/policy/rules.ts'
import { allowRule, denyRule, destination, get, input } from './policy-fixtures.ts'
import type { Written } from './policy-fixtures.ts'

const idsOf = (written: Parameters<typeof input>[0]): string[] =>
  compilePolicy(input(written)).rules.map(({ id }) => id)

describe('rule ids', () => {
  it('keep the id an operator gave', () => {
    expect(idsOf({ allow: [{ id: 'web.docs', host: 'a.good.test' }] })).toEqual(['web.docs'])
  })

  it('come from the content, so that a rule added before changes none', () => {
    const [before] = idsOf({ allow: [{ host: 'b.good.test' }] })
    expect(idsOf({ allow: [{ host: 'a.good.test' }, { host: 'b.good.test' }] })).toContain(before)
    expect(before).toMatch(/^b\.good\.test#[0-9a-f]{10}$/)
  })

  it('stay when only the note or the owner changes', () => {
    expect(idsOf({ allow: [{ host: 'a.good.test', note: 'x', owner: 'y' }] })).toEqual(
      idsOf({ allow: [{ host: 'a.good.test' }] }),
    )
  })

  it('stay when lists are only sorted otherwise', () => {
    const one = { host: 'a.good.test', methods: ['GET', 'HEAD'], paths: ['/a', '/b'], ports: [1, 2] }
    const other = { host: 'a.good.test', methods: ['HEAD', 'GET'], paths: ['/b', '/a'], ports: [2, 1] }
    expect(idsOf({ allow: [one] })).toEqual(idsOf({ allow: [other] }))
  })

  it.each<[string, Written]>([
    ['host', { host: 'b.good.test' }],
    ['port', { host: 'a.good.test', ports: [8443] }],
    ['scheme', { host: 'a.good.test', scheme: 'http' }],
    ['methods', { host: 'a.good.test', methods: ['GET'] }],
    ['paths', { host: 'a.good.test', paths: ['/x'] }],
    ['addresses', { host: 'a.good.test', addresses: ['10.0.0.0/8'] }],
    ['tls', { host: 'a.good.test', tls: 'splice' }],
    ['own credentials', { host: 'a.good.test', ownCredentials: 'refuse' }],
    ['end', { host: 'a.good.test', expires: 1 }],
  ])('differ when the %s differs', (_, changed) => {
    expect(idsOf({ allow: [changed] })).not.toEqual(idsOf({ allow: [{ host: 'a.good.test' }] }))
  })

  it('differ between an allow and a deny of the same', () => {
    expect(idsOf({ allow: [{ host: 'a.good.test', ports: [] }] })).not.toEqual(
      idsOf({ deny: [{ host: 'a.good.test' }] }),
    )
  })

  it('of accesses carry their name', () => {
    expect(idsOf({ access: [{ access: 'github', host: 'a.good.test', port: 443 }] })).toEqual([
      'access:github',
    ])
  })

  it('never meet among a hundred thousand rules', () => {
    const allow = Array.from({ length: 100_000 }, (_, at) => ({ host: 'a.good.test', paths: [`/p${at}`] }))
    expect(new Set(idsOf({ allow })).size).toBe(100_000)
  })
})

describe('the fingerprint of a policy', () => {
  const rules: Written[] = [
    { host: 'a.good.test' },
    { host: '*.wild.test', methods: ['GET'] },
    { address: '10.0.0.0/8' },
  ]

  it('is the same for every order of the rules', () => {
    const shuffled = fc.shuffledSubarray(rules, { minLength: rules.length })
    const expected = policyFingerprint(compilePolicy(input({ allow: rules })))
    fc.assert(
      fc.property(shuffled, (allow) => {
        expect(policyFingerprint(compilePolicy(input({ allow })))).toBe(expected)
      }),
    )
    expect(expected).toMatch(/^[0-9a-f]{16}$/)
  })

  it('changes with what is decided and with the name of a rule', () => {
    const prints = [
      input({ allow: rules }),
      input({ allow: rules.slice(1) }),
      input({ allow: rules, deny: rules.slice(1) }),
      input({ allow: [{ ...rules[0], id: 'named' }, ...rules.slice(1)] }),
      input({ allow: rules, access: [{ access: 'a', host: 'a.good.test', port: 443 }] }),
    ].map((written) => policyFingerprint(compilePolicy(written)))
    expect(new Set(prints).size).toBe(prints.length)
  })

  it('is made of one line per rule', () => {
    expect(describePolicy(compilePolicy(input({ allow: rules }))).split('\n')).toHaveLength(rules.length + 1)
  })
})

describe('compiling', () => {
  it.each([
    'A.good.test',
    'a.good.test.',
    '*.192.0.2.7',
    '*',
    'a.*.test',
    '0x7f.1',
    '[::1]',
    '2001:DB8::1',
    '',
    'a b',
  ])('takes no host that is not canonical: %s', (host) => {
    expect(() => compilePolicy(input({ deny: [{ host }] }))).toThrow(TypeError)
  })

  it('stands a registry rule for the hosts and reading methods of its registry', () => {
    const rule: Rule = { kind: 'registry', registry: 'npm', mode: 'install', addresses: [] }
    const policy = compilePolicy({ allow: [rule], deny: [], access: [] })
    const [host] = registryRules(rule).map((entry) => entry.host)
    const ask = (method: string, path: string): unknown => decide(policy, get(host ?? '', { method, path }))
    expect(ask('GET', '/express')).toMatchObject({
      verdict: 'allow',
      rule: expect.stringMatching(/^npm#/) as string,
    })
    expect(ask('GET', '/@acme%2fweb')).toMatchObject({ verdict: 'allow' })
    expect(ask('HEAD', '/express/-/express-1.0.0.tgz')).toMatchObject({ verdict: 'allow' })
    for (const [method, path] of [
      ['PUT', '/express'],
      ['DELETE', '/express/-rev/1'],
      ['POST', '/-/npm/v1/security/advisories/bulk'],
      ['PUT', '/-/user/org.couchdb.user:me'],
    ] as const) {
      expect(ask(method, path)).toMatchObject({
        verdict: 'deny',
        reason: 'method_denied',
        hint: 'Only GET, HEAD are allowed on this host.',
      })
    }
  })

  it('denies the whole hosts of a denied registry', () => {
    const rule: Rule = { kind: 'registry', registry: 'pypi', mode: 'install', addresses: [] }
    const policy = compilePolicy({
      allow: [allowRule({ host: 'any', ports: [443, 8443] })],
      deny: [rule],
      access: [],
    })
    for (const { host, paths } of registryRules(rule)) {
      const request = {
        ...get(host, { method: 'POST', path: '/simple/x' }),
        destination: destination(host, 8443),
      }
      expect(decide(policy, request)).toMatchObject({
        verdict: 'deny',
        reason: paths === undefined ? 'host_denied' : 'path_denied',
      })
    }
  })
})

describe('a hundred thousand rules', () => {
  const pattern = (at: number): string => `${at % 2 === 0 ? '*.' : ''}h${at}.zone${at % 977}.good.test`
  const policyOf = (count: number): ReturnType<typeof compilePolicy> =>
    compilePolicy(
      input({ allow: Array.from({ length: count }, (_, at) => ({ id: `r${at}`, host: pattern(at) })) }),
    )
  const small = policyOf(10)
  const large = policyOf(100_000)

  it('are looked up in as many steps as ten', () => {
    for (const at of [0, 1, 4, 7]) {
      const host = pattern(at).replace('*', 'x.y')
      expect(coverage(large, destination(host)).steps).toBe(coverage(small, destination(host)).steps)
      expect(coverage(large, destination(host)).buckets).toHaveLength(1)
    }
  })

  it('are looked up in at most one step per label, found or not', () => {
    for (const host of [
      'x.h99998.zone340.good.test',
      'h99999.zone341.good.test',
      'no.zone3.good.test',
      'evil.example',
    ]) {
      expect(coverage(large, destination(host)).steps).toBeLessThanOrEqual(host.split('.').length)
    }
    expect(coverage(large, destination(`${'a.'.repeat(120)}evil`)).steps).toBe(1)
  })

  it('decide as each of them says', () => {
    expect(decide(large, get('x.h99998.zone344.good.test'))).toMatchObject({
      verdict: 'allow',
      rule: 'r99998',
    })
    expect(decide(large, get('h99998.zone344.good.test'))).toMatchObject({ verdict: 'deny', rule: 'r99998' })
    expect(decide(large, get('h99999.zone345.good.test'))).toMatchObject({ verdict: 'allow', rule: 'r99999' })
  })

  it('on addresses are looked up in one step per length of prefix', () => {
    const ranges = Array.from({ length: 20_000 }, (_, at) => ({
      address: `10.${at >> 8}.${at & 255}.0/24`,
      id: `n${at}`,
    }))
    const policy = compilePolicy(input({ allow: [...ranges, { address: '10.0.0.0/8', id: 'wide' }] }))
    expect(coverage(policy, destination('10.3.7.9')).steps).toBe(3)
    expect(decide(policy, get('10.3.7.9'))).toMatchObject({ rule: 'n775' })
  })
})

describe('against a slow second reading', () => {
  const label = fc.constantFrom('a', 'b', 'c', 'ab')
  const host = fc.array(label, { minLength: 1, maxLength: 4 }).map((labels) => labels.join('.'))
  const pattern = fc.oneof(
    { weight: 5, arbitrary: host },
    { weight: 4, arbitrary: host.map((name) => `*.${name}`) },
    { weight: 1, arbitrary: fc.constant('any') },
  )
  const ports = fc.constantFrom([443], [8443], [443, 8443])
  const methods = fc.constantFrom(undefined, ['GET'], ['GET', 'POST'])
  const written = fc.record({ host: pattern, ports, methods })
  const policy = fc.record({
    allow: fc.array(written, { maxLength: 6 }),
    deny: fc.array(fc.record({ host: pattern, ports: fc.constantFrom([], [443]), methods }), {
      maxLength: 3,
    }),
  })
  const request = fc.record({
    host,
    port: fc.constantFrom(443, 8443),
    method: fc.constantFrom('GET', 'POST', 'PUT'),
  })

  function covers(rule: string, name: string): boolean {
    if (rule === 'any') return true
    const ruleLabels = rule.split('.').reverse()
    const labels = name.split('.').reverse()
    if (ruleLabels.at(-1) !== '*') return rule === name
    const fixed = ruleLabels.slice(0, -1)
    return labels.length > fixed.length && fixed.every((text, at) => labels[at] === text)
  }

  type Asked = { host: string; port: number; method: string }
  type Read = Pick<HostRule, 'host' | 'ports' | 'methods'>

  function naive(
    { allow, deny }: { allow: Read[]; deny: Read[] },
    { host: name, port, method }: Asked,
  ): string {
    const takesMethod = (rule: Read): boolean => rule.methods === undefined || rule.methods.includes(method)
    const denied = deny.some(
      (rule) =>
        covers(rule.host, name) &&
        (rule.ports.length === 0 || rule.ports.includes(port)) &&
        takesMethod(rule),
    )
    if (denied) return 'denied'
    const here = allow.filter(
      (rule) => covers(rule.host, name) && (rule.host !== 'any' || name.includes('.')),
    )
    const atPort = here.filter((rule) => rule.ports.includes(port))
    if (atPort.some(takesMethod)) return 'allow'
    if (atPort.length > 0) return 'method_denied'
    return here.length > 0 ? 'port_denied' : 'host_denied'
  }

  it('decides the same for thousands of small policies, and the same again in any order', () => {
    fc.assert(
      fc.property(policy, request, (rules, asked) => {
        const expected = naive(rules, asked)
        const compile = (allow: Read[], deny: Read[]): ReturnType<typeof compilePolicy> =>
          compilePolicy({ allow: allow.map(allowRule), deny: deny.map(denyRule), access: [] })
        const ask = {
          ...get(asked.host, { method: asked.method }),
          destination: destination(asked.host, asked.port),
        }
        const decision = decide(compile(rules.allow, rules.deny), ask)
        expect(decide(compile(rules.allow.toReversed(), rules.deny.toReversed()), ask)).toEqual(decision)
        if (expected === 'allow') expect(decision.verdict).toBe('allow')
        else if (expected === 'denied') expect(decision.verdict).toBe('deny')
        else expect(decision.reason).toBe(expected)
      }),
      { numRuns: 5_000 },
    )
  })

  it('says of a tunnel allow exactly when some method would be allowed', () => {
    fc.assert(
      fc.property(policy, request, (rules, asked) => {
        const wholeDenies = rules.deny.filter((rule) => rule.methods === undefined)
        const someMethod = ['GET', 'POST', 'PUT'].some(
          (method) => naive({ allow: rules.allow, deny: wholeDenies }, { ...asked, method }) === 'allow',
        )
        const compiled = compilePolicy({
          allow: rules.allow.map(allowRule),
          deny: rules.deny.map(denyRule),
          access: [],
        })
        const decision = decide(compiled, {
          kind: 'connect',
          destination: destination(asked.host, asked.port),
          now: 0,
        })
        expect(decision.verdict === 'allow').toBe(someMethod)
      }),
      { numRuns: 2_000 },
    )
  })
})
