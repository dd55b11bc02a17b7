import { describe, expect, it } from 'vitest'
import { parseHost } from '../../../src/policy/destination.ts'
import { decide } from '../../../src/policy/decide.ts'
import type { RegistryName, RegistryRule } from '../../../src/policy/model.ts'
import { parsePathPattern } from '../../../src/policy/path-pattern.ts'
import { hostOf, registryHosts, registryRules } from '../../../src/policy/registries/catalogue.ts'
import { compilePolicy } from '../../../src/policy/rules.ts'
import { cidr, destination } from '../policy-fixtures.ts'

const names: RegistryName[] = ['npm', 'pypi', 'crates', 'go', 'maven', 'apt']
const ruleFor = (registry: RegistryName): RegistryRule => ({
  kind: 'registry',
  registry,
  mode: 'install',
  addresses: [],
})

describe.each(names)('the catalogue entry of %s', (name) => {
  it('has canonical hosts, each with its source and day', () => {
    const hosts = registryHosts(name)
    expect(hosts.length).toBeGreaterThan(0)
    for (const { labels, source, recorded } of hosts) {
      expect(labels.length).toBeGreaterThanOrEqual(2)
      expect(parseHost(hostOf(labels))).toEqual({ ok: true, host: hostOf(labels), ip: 0 })
      expect(source.length).toBeGreaterThan(10)
      expect(source).not.toContain(hostOf(labels))
      expect(recorded).toMatch(/^20[0-9]{2}-[01][0-9]-[0-3][0-9]$/)
    }
  })

  it('covers both metadata and archives', () => {
    const roles = registryHosts(name).map(({ role }) => role)
    expect(roles.some((role) => role.includes('metadata'))).toBe(true)
    expect(roles.some((role) => role.includes('archive'))).toBe(true)
  })

  it('stands for rules that only read, on TLS unless apt', () => {
    for (const rule of registryRules(ruleFor(name))) {
      expect(rule.methods).toEqual(['GET', 'HEAD'])
      expect(rule.ports).toEqual([rule.scheme === 'http' ? 80 : 443])
      expect(rule.scheme === 'http' && name !== 'apt').toBe(false)
      for (const path of rule.paths ?? []) expect(parsePathPattern(path)).toEqual({ ok: true })
    }
  })

  it('allows reading and refuses writing', () => {
    const policy = compilePolicy({ allow: [ruleFor(name)], deny: [], access: [] })
    for (const { host, ports, scheme, paths } of registryRules(ruleFor(name))) {
      const path = paths?.[0]?.replace('**', 'x') ?? '/x'
      const ask = (method: string): string => {
        const request = { kind: 'http', scheme, method, path, now: 0 } as const
        return decide(policy, { ...request, destination: destination(host, ports[0]) }).verdict
      }
      expect(ask('GET')).toBe('allow')
      expect([ask('PUT'), ask('POST'), ask('DELETE')]).toEqual(['deny', 'deny', 'deny'])
    }
  })
})

describe('registry rules', () => {
  it('pass on the id, the end and the opened ranges', () => {
    const rule = { ...ruleFor('go'), id: 'go-modules', expires: 5, addresses: [cidr('10.9.0.0/16')] }
    for (const host of registryRules(rule)) {
      expect(host).toMatchObject({ id: 'go-modules', expires: 5, addresses: [{ text: '10.9.0.0/16' }] })
    }
  })

  it('of apt allow cleartext on port 80 as well as TLS', () => {
    const schemes = new Set(
      registryRules(ruleFor('apt')).map(({ scheme, ports }) => `${scheme}:${ports.join()}`),
    )
    expect(schemes).toEqual(new Set(['https:443', 'http:80']))
  })

  it('of go reach the storage bucket of the proxy and no other', () => {
    const shared = registryHosts('go').find(({ paths }) => paths !== undefined)
    const host = hostOf(shared?.labels ?? [])
    const policy = compilePolicy({ allow: [ruleFor('go')], deny: [], access: [] })
    const ask = (path: string): unknown =>
      decide(policy, {
        kind: 'http',
        destination: destination(host),
        scheme: 'https',
        method: 'GET',
        path,
        now: 0,
      })
    const bucket = shared?.paths?.[0]?.replace('**', 'x.zip') ?? ''
    expect(ask(bucket)).toMatchObject({ verdict: 'allow' })
    expect(ask('/another-bucket/x.zip')).toMatchObject({ verdict: 'deny', reason: 'path_denied' })
  })
})
