import { describe, expect, it } from 'vitest'
import { policyRecord, recordedPolicy } from '../../src/identity/policy-record.ts'
import type { RecordedFor } from '../../src/identity/policy-record.ts'
import { compileSnapshot } from '../../src/identity/snapshot.ts'
import { compilePolicy, describePolicy } from '../../src/policy/rules.ts'
import { goodConfig } from '../helpers/config-files.ts'

const yaml = `
version: 1
credentials: { key: { issuer: static, value: { env: KEY } } }
access:
  api:
    credential: key
    destinations: [{ host: api.example.com, paths: ["/v1/**"], addresses: [10.0.0.0/8] }]
    slot: { header: authorization, scheme: Bearer }
templates:
  coder:
    tenant: web
    allow:
      - { host: "*.example.org", methods: [GET], expires: 2030-01-01 }
      - { registry: npm, mode: install }
      - { address: fd12::/48, ports: [8443] }
    deny: [{ host: blocked.example.org }]
    access: [api]
sandboxes:
  first: { tenant: web, template: coder, allow: [{ id: own.rule, host: own.example.net, tls: splice }] }
  alone: { allow: [{ host: constructor.example.net }] }
`

const configOf = () => goodConfig(yaml, { env: { KEY: 'sk-live-0123456789abcdefghij' } })

function described(who: RecordedFor, text = policyRecord(configOf())): string {
  const found = recordedPolicy(text, who)
  return found.ok ? describePolicy(compilePolicy(found.input)) : found.problem
}

describe('a policy record', () => {
  it('gives back for each sandbox exactly the rules that were in force', () => {
    const sandboxes = [
      { name: 'first', origin: 'config', tenant: 'web', template: 'coder' },
      { name: 'alone', origin: 'config', tenant: 'default', template: undefined },
      { name: 'made', origin: 'runtime', tenant: 'web', template: 'coder' },
    ] as const
    const none = { expiresAt: undefined, pausedAt: undefined, destroyedAt: undefined, agent: undefined }
    const config = configOf()
    const snapshot = compileSnapshot({
      config,
      sandboxes: sandboxes.map((own) => ({ ...none, ...own, id: own.name, run: undefined, createdAt: 0 })),
      tokens: [],
      handles: [],
      now: 0,
    })
    for (const { name, tenant, template } of sandboxes) {
      const policy = snapshot.sandboxes.get(name)?.policy
      expect(policy?.rules.length).toBeGreaterThan(0)
      expect(described({ sandbox: name, tenant, template }, policyRecord(config))).toBe(
        policy && describePolicy(policy),
      )
    }
  })

  it('holds each rule once and no credential', () => {
    const record = policyRecord(configOf())
    expect(record.split('blocked.example.org')).toHaveLength(2)
    expect(record).not.toContain('KEY')
    expect(record).not.toContain('sk-live')
  })

  it('knows nobody by a name that every object has, and no template of another tenant', () => {
    const missing = 'it has neither this sandbox nor the template that it was made from'
    expect(described({ sandbox: 'constructor' })).toBe(missing)
    expect(described({ sandbox: 'made', tenant: 'other', template: 'coder' })).toBe(missing)
    expect(described({ sandbox: 'made', tenant: 'web', template: 'toString' })).toBe(missing)
  })

  it('is left out when it would be too large, and says so', () => {
    const config = configOf()
    const rule = { ...config.sandboxes.get('alone')?.allow[0], note: 'x'.repeat(1024 * 1024) }
    const templates = new Map(
      [...config.templates].map(([name, block]) => [name, { ...block, allow: Array(9).fill(rule) }]),
    )
    const text = policyRecord({ ...config, templates } as typeof config)
    expect(text.length).toBeLessThan(200)
    expect(described({ sandbox: 'first' }, text)).toBe('its rules (9 MB) were too many to be kept')
  })

  it('is not taken for one when an older version wrote it', () => {
    expect(described({ sandbox: 'first' }, '[{"sandbox":"first","policy":""}]')).toContain('does not read')
  })
})
