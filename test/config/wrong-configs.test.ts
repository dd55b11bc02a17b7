import { describe, expect, it } from 'vitest'
import { hostOf, registryHosts } from '../../src/policy/registries/catalogue.ts'
import { configFolder } from '../helpers/config-files.ts'
import rows from '../vectors/wrong-configs.json' with { type: 'json' }

// Spelled in one place only, the catalogue.
const registryHost = hostOf(registryHosts('npm')[0]?.labels ?? [])

describe('a wrong configuration', () => {
  it.each(rows)('is refused with its place: $name', ({ yaml, problems }) => {
    const files = configFolder(yaml.replaceAll('REGISTRY', registryHost))
    const loaded = files.load({ env: { HOME: 'set' } })
    const plain = (text: string): string =>
      text
        .replaceAll(files.path('octroi.yaml'), 'FILE')
        .replaceAll(files.folder, 'DIR')
        .replaceAll(registryHost, 'REGISTRY')
    const found = loaded.ok
      ? []
      : loaded.problems.map(({ line, column, path, message, suggestion }) => ({
          at: `${line}:${column}`,
          path: plain(path),
          message: plain(message),
          ...(suggestion === undefined ? {} : { suggestion: plain(suggestion) }),
        }))
    expect(found).toEqual(problems)
    expect(found.length).toBeGreaterThan(0)
  })

  it('never repeats a value that may be a secret', () => {
    const secret = 'sk-live-4242424242424242'
    const places = [
      `version: 1\ncredentials:\n  a: { issuer: static, value: ${secret} }\n`,
      `version: 1\ncredentials:\n  a: { issuer: static, value: [${secret}] }\n`,
      `version: 1\ncredentials:\n  a: ${secret}\n`,
      `version: 1\nsandboxes:\n  s: { identity: [{ token: ${secret} }] }\n`,
    ]
    for (const yaml of places) {
      const loaded = configFolder(yaml).load()
      expect(loaded.ok).toBe(false)
      expect(JSON.stringify(loaded)).not.toContain(secret)
    }
  })
})
