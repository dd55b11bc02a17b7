import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { rules } from './architecture/cases.ts'
import { chainsBetween, cyclesIn } from './architecture/imports.ts'
import { readTree } from './architecture/source.ts'
import { mayImport } from './architecture/table.ts'
import { privateKeys, registryCatalogue, registryHosts, spelledHosts } from './architecture/texts.ts'

const root = fileURLToPath(new URL('../', import.meta.url))
const source = readTree(`${root}src`, (path) => path.endsWith('.ts'))

/** Everything a reader of the repository sees; not what was installed, built or made at run time. */
const notOurs = /^(node_modules|\.git|dist|data|coverage|reports|certs\/.+)$/
const repository = readTree(
  root,
  (path) => /(\.(ts|js|json|md|ya?ml|toml|html|css|sh|txt|conf)|\/run|file|ignore|LICENSE)$/i.test(path),
  (path) => !notOurs.test(path),
)

describe.each(rules)('$name', ({ check, wrong, right }) => {
  it('holds for src/', () => {
    expect(source.size).toBeGreaterThan(0)
    expect(check(source)).toEqual([])
  })

  it.each(Object.keys(wrong))('is seen to be broken in a planted %s', (path) => {
    const planted = new Map(Object.entries(wrong))
    expect(check(planted).some((problem) => problem.includes(path))).toBe(true)
  })

  it('leaves what is right alone', () => {
    expect(check(new Map(Object.entries(right ?? {})))).toEqual([])
  })
})

describe('the import table', () => {
  it('is acyclic', () => {
    expect(cyclesIn(new Map(Object.entries(mayImport)))).toEqual([])
    expect(cyclesIn(new Map(Object.entries({ ...mayImport, core: ['app'] })))).not.toEqual([])
  })

  it('lists only folders that it has a row for', () => {
    const listed = Object.values(mayImport).flat()
    expect(listed.filter((name) => !(name in mayImport))).toEqual([])
  })

  it('keeps the admin interface from reaching the data plane through any chain of imports', () => {
    expect(chainsBetween(source, 'admin', 'proxy')).toEqual([])
    const planted = {
      'admin/a.ts': `import '../core/b.ts'`,
      'core/b.ts': `import '../proxy/c.ts'`,
      'proxy/c.ts': '',
    }
    expect(chainsBetween(new Map(Object.entries(planted)), 'admin', 'proxy')).toEqual(['admin/a.ts'])
  })
})

describe('the repository', () => {
  const hosts = registryHosts(repository)
  const texts = new Map([...repository].filter(([path]) => path !== 'package-lock.json'))

  it('spells no host name of a package registry', () => {
    expect(spelledHosts(texts, hosts)).toEqual([])
  })

  it.runIf(repository.has(registryCatalogue))('knows the host names to look for', () => {
    expect(hosts.length).toBeGreaterThan(5)
  })

  it('would notice a spelled host name', () => {
    const planted = new Map([
      [
        registryCatalogue,
        `const a = [{ labels: ['test', 'packages', 'files'] }, { labels: ['test', 'packages'] }]`,
      ],
      ['docs/a.md', 'Fetch it from https://FILES.packages.test/x.'],
    ])
    expect(registryHosts(planted)).toEqual(['files.packages.test', 'packages.test'])
    const found = spelledHosts(planted, registryHosts(planted))
    expect(found).toEqual(['docs/a.md: spells files.packages.test', 'docs/a.md: spells packages.test'])
  })

  it('holds no private key', () => {
    expect(privateKeys(repository)).toEqual([])
  })

  it('would notice a private key', () => {
    const dashes = '-----'
    const pem = `${dashes}BEGIN PRIVATE KEY${dashes}\n${'A'.repeat(64)}\n`
    const jwk = JSON.stringify({ kty: 'EC', d: 'A'.repeat(43) })
    const planted = new Map([
      ['a.pem.txt', pem],
      ['b.json', JSON.stringify({ pem })],
      ['c.json', jwk],
    ])
    expect(privateKeys(planted)).toHaveLength(3)
  })
})
