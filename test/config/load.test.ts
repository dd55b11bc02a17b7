import { chmodSync, globSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { loadConfig } from '../../src/config/load.ts'
import { formatProblem } from '../../src/config/problem.ts'
import { configFolder, goodConfig } from '../helpers/config-files.ts'

const shipped = fileURLToPath(new URL('../../config/', import.meta.url))

describe('the files that are shipped', () => {
  const options = { env: { GIT_ROBOT_PASSWORD: 'x' }, now: Date.UTC(2026, 0, 1) }

  it.each(['octroi.yaml', ...globSync('samples/*.yaml', { cwd: shipped })])('%s is good', (name) => {
    const loaded = loadConfig(`${shipped}${name}`, options)
    expect(loaded.ok ? [] : loaded.problems.map(formatProblem)).toEqual([])
    expect(loaded.warnings).toEqual([])
  })

  it('begin with a sandbox that may install packages and read one site', () => {
    const loaded = loadConfig(`${shipped}octroi.yaml`, options)
    if (!loaded.ok) throw new TypeError('not good')
    const { sandboxes, listen, stateFolder } = loaded.config
    expect(stateFolder).toBe(fileURLToPath(new URL('../../data', import.meta.url)))
    expect(listen.admin).toEqual({ host: '127.0.0.1', port: 18_081 })
    expect(sandboxes.get('demo')).toMatchObject({
      agent: 'demo-agent',
      tenant: 'default',
      token: 'generated',
      allow: [
        { kind: 'registry', registry: 'npm', mode: 'install' },
        { kind: 'host', host: 'example.com', ports: [443], scheme: 'https', methods: ['GET', 'HEAD'] },
      ],
    })
  })
})

describe('a good configuration', () => {
  it('becomes canonical: hosts, ranges, ports, durations and sizes', () => {
    const config = goodConfig(`
version: 1
self: [Broker.Example.COM.]
templates:
  t:
    tenant: web
    allow:
      - { host: API.Example.com., scheme: http, addresses: [10.20.0.0/16] }
      - { host: "*.Bücher.example" }
      - { address: 2001:db8::/32, ports: [8443] }
    deny:
      - { host: "*.EVIL.example" }
    limits: { body: 50MB, requests_per_minute: 60 }
    max_ttl: 4h
audit: { retention: 30d }
`)
    const template = config.templates.get('t')
    expect(template?.allow).toMatchObject([
      { host: 'api.example.com', ports: [80], scheme: 'http', addresses: [{ text: '10.20.0.0/16' }] },
      { host: '*.xn--bcher-kva.example', ports: [443] },
      { kind: 'address', address: { text: '2001:db8::/32' }, ports: [8443] },
    ])
    // Every port: a deny is never dead on the one that it does not name.
    expect(template?.deny).toMatchObject([{ host: '*.evil.example', ports: [] }])
    expect(template?.limits).toMatchObject({ bodyBytes: 50_000_000, requestsPerMinute: 60 })
    expect(template?.maxTtlMs).toBe(14_400_000)
    expect(config.audit.retentionMs).toBe(30 * 86_400_000)
    expect(config.selfNames).toEqual(['broker.example.com'])
  })

  it.each(['', 'allow:', 'allow: null', 'allow: []', 'deny: []'])('that says %j allows nothing', (key) => {
    const config = goodConfig(`version: 1\nsandboxes:\n  s:\n    agent: a\n    ${key}\n`)
    expect(config.sandboxes.get('s')).toMatchObject({ allow: [], access: [] })
  })

  it('is frozen through and through', () => {
    const config = goodConfig('version: 1\nsandboxes:\n  s:\n    allow: [{ host: example.com }]\n')
    const allow = config.sandboxes.get('s')?.allow
    expect(Object.isFrozen(config)).toBe(true)
    expect(Object.isFrozen(allow)).toBe(true)
    expect(Object.isFrozen(allow?.[0])).toBe(true)
  })

  it('opens a listener for each socket and port that proves a sandbox', () => {
    const config = goodConfig(`
version: 1
listen: { proxy: [127.0.0.1:0, "https://0.0.0.0:18443", unix:run/proxy.sock] }
sandboxes:
  java: { identity: [{ port: 18090 }] }
  jail: { identity: [{ socket: run/jail.sock }] }
`)
    const unix = { kind: 'unix', path: expect.stringMatching(/^\/.*\/run\/.*\.sock$/) }
    expect(config.listen.proxy).toMatchObject([
      { kind: 'tcp', host: '127.0.0.1', port: 0, tls: false, identity: false },
      { kind: 'tcp', host: '0.0.0.0', port: 18_443, tls: true, identity: false },
      { ...unix, identity: false },
      { kind: 'tcp', host: '127.0.0.1', port: 18_090, identity: true },
      { ...unix, identity: true },
    ])
  })

  it('may send passwords in cleartext where it says so itself', () => {
    const config = goodConfig(
      'version: 1\nlisten: { proxy: 0.0.0.0:18080, insecure: true }\nsandboxes:\n  s: {}\n',
    )
    expect(config.listen.proxy).toMatchObject([{ host: '0.0.0.0', port: 18_080 }])
  })

  it('lets two accesses share the user and the password of one Basic header', () => {
    const config = goodConfig(`
version: 1
credentials: { c: { issuer: static, value: { secret: c } } }
access:
  user: { credential: c, destinations: [{ host: api.example.com }], slot: { basic: user } }
  pass: { credential: c, destinations: [{ host: api.example.com }], slot: { basic: password } }
sandboxes: { s: { access: [user, pass] } }
`)
    expect(config.sandboxes.get('s')?.access).toEqual(['user', 'pass'])
  })

  it('lets an alias share rules between templates', () => {
    const config = goodConfig(`
version: 1
templates:
  a: { allow: &shared [{ id: docs, host: docs.example.com }] }
  b: { allow: *shared }
`)
    expect(config.templates.get('b')?.allow).toEqual(config.templates.get('a')?.allow)
  })
})

describe('what is not there yet', () => {
  it.each([
    ['a variable that is not set', '{ env: NOT_SET }', 'the variable `NOT_SET` is not set'],
    ['a variable that is empty', '{ env: EMPTY }', 'the variable `EMPTY` is empty'],
    ['a file that is missing', '{ file: none.txt }', 'there is no file'],
  ])('%s leaves its credential dead and loud', (_, value, message) => {
    const yaml = `version: 1\ncredentials:\n  c: { issuer: static, value: ${value} }\n`
    const loaded = configFolder(yaml).load({ env: { EMPTY: '' } })
    expect(loaded.ok).toBe(true)
    expect(loaded.warnings).toMatchObject([
      { line: 3, path: 'credentials.c.value', message: expect.stringContaining(message) },
    ])
    expect(loaded.warnings[0]?.message).toContain('`c` is dead')
  })

  it('an expired rule is shown', () => {
    const yaml = 'version: 1\nsandboxes:\n  s:\n    allow: [{ host: example.com, expires: 2025-12-31 }]\n'
    expect(configFolder(yaml).load().warnings).toMatchObject([
      { path: 'sandboxes.s.allow.0.expires', message: 'this rule has expired; it denies now' },
    ])
  })

  it('a sandbox whose address alone names it cannot earn a credential, which is shown', () => {
    const yaml = `
version: 1
credentials: { c: { issuer: static, value: { secret: c } } }
access: { a: { credential: c, destinations: [{ host: api.example.com }] } }
sandboxes: { s: { access: [a], identity: [{ source: 192.0.2.7/32 }] } }
`
    expect(configFolder(yaml).load().warnings).toMatchObject([{ path: 'sandboxes.s.identity' }])
  })
})

describe('several files', () => {
  const main = 'version: 1\ninclude: ["policy/*.yaml", extra.yaml]\nsandboxes:\n  a: { template: t }\n'

  it('are one configuration', () => {
    const files = configFolder(main.replace('policy/', ''), {
      'extra.yaml': 'templates:\n  t: { allow: [{ host: example.com }] }\n',
      'more.yaml': 'sandboxes:\n  b: {}\n',
    })
    const loaded = files.load()
    if (!loaded.ok) throw new TypeError(loaded.problems.map(formatProblem).join('\n'))
    expect([...loaded.config.sandboxes.keys()]).toEqual(['a', 'b'])
    expect(loaded.config.files).toEqual(['octroi.yaml', 'extra.yaml', 'more.yaml'].map(files.path))
    expect(loaded.config.includes).toEqual([files.path('*.yaml'), files.path('extra.yaml')])
  })

  it('may not name the same thing twice, and both places are named', () => {
    const files = configFolder('version: 1\ninclude: [extra.yaml]\nsandboxes:\n  a: {}\n', {
      'extra.yaml': '\n\nsandboxes:\n  a: {}\n',
    })
    expect(files.load()).toMatchObject({
      ok: false,
      problems: [
        {
          file: files.path('extra.yaml'),
          line: 4,
          column: 3,
          message: `\`a\` is already at ${files.path('octroi.yaml')}:4:3`,
        },
      ],
    })
  })

  it('set the listeners in the main one only', () => {
    const files = configFolder('version: 1\ninclude: [extra.yaml]\n', { 'extra.yaml': 'listen: {}\n' })
    expect(files.load()).toMatchObject({
      ok: false,
      problems: [{ file: files.path('extra.yaml'), message: '`listen` belongs in the main file' }],
    })
  })

  it('show the problems of all of them at once', () => {
    const files = configFolder('version: 1\ninclude: [extra.yaml]\nbogus: 1\n', {
      'extra.yaml': 'sandboxes:\n  a: { colour: red }\n',
    })
    const loaded = files.load()
    expect(loaded.ok ? [] : loaded.problems.map(({ path }) => path)).toEqual(['bogus', 'sandboxes.a.colour'])
  })
})

describe('a file that cannot be trusted or read', () => {
  it.each([
    ['the main file', 'octroi.yaml'],
    ['an included file', 'extra.yaml'],
    ['a secret file', 'secret.txt'],
  ])('%s is refused when every user may write it', (_, name) => {
    const yaml = `
version: 1
include: [extra.yaml]
credentials: { c: { issuer: static, value: { file: secret.txt } } }
`
    const files = configFolder(yaml, { 'extra.yaml': '{}\n', 'secret.txt': 'x' })
    expect(files.load().ok).toBe(true)
    chmodSync(files.path(name), 0o606)
    const loaded = files.load()
    expect(loaded.ok ? [] : loaded.problems.map(({ message }) => message)).toEqual([
      `${files.path(name)} can be written by every user; run: chmod o-w ${files.path(name)}`,
    ])
  })

  it('is named when it is missing', () => {
    expect(loadConfig('/nonexistent/octroi.yaml', { env: {}, now: 0 })).toMatchObject({
      ok: false,
      problems: [{ file: '/nonexistent/octroi.yaml', message: 'there is no file /nonexistent/octroi.yaml' }],
    })
  })
})

describe('a hostile file', () => {
  const bomb = (levels: number): string => {
    const lines = Array.from({ length: levels }, (_, level) => {
      const item = level === 0 ? 'x' : `*a${level - 1}`
      return `a${level}: &a${level} [${Array<string>(9).fill(item).join(', ')}]`
    })
    return `${lines.join('\n')}\n`
  }

  it.each([
    ['an alias bomb', bomb(12), 'too many values or aliases'],
    ['an alias inside itself', 'version: 1\nself: &a [*a]\n', 'part of itself'],
    ['ten megabytes', `version: 1\nself: ["${'x'.repeat(1e7)}"]\n`, 'larger than 1 MB'],
    ['a megabyte of brackets', `self: ${'['.repeat(900_000)}`, 'nested too deeply'],
    ['a megabyte of nested lists', '- '.repeat(450_000), 'nested too deeply'],
    ['a megabyte of nested keys', 'a: '.repeat(300_000), 'nested too deeply'],
    ['ever deeper lines', Array.from({ length: 1300 }, (_, i) => `${' '.repeat(i)}a:`).join('\n'), 'nested'],
    ['binary', 'version: 1\0', 'not UTF-8 text'],
  ])('%s is refused before it costs anything', (_, yaml, message) => {
    const files = configFolder(yaml)
    const start = process.cpuUsage()
    const loaded = files.load()
    const { user } = process.cpuUsage(start)
    expect(loaded.ok ? [] : loaded.problems.map((problem) => problem.message)).toContainEqual(
      expect.stringContaining(message),
    )
    // About 100 ms, in `µs` of this process alone; without the bounds some of these take seconds to minutes.
    expect(user).toBeLessThan(1_000_000)
  })

  it('with 20,000 keys is read in time that grows with their number, not its square', () => {
    const keys = Array.from({ length: 20_000 }, (_, index) => `  s${index}: {}`)
    const files = configFolder(`version: 1\nsandboxes:\n${keys.join('\n')}\n`)
    const start = process.cpuUsage()
    const loaded = files.load()
    expect(loaded.ok && loaded.config.sandboxes.size).toBe(20_000)
    expect(process.cpuUsage(start).user).toBeLessThan(8_000_000)
  })
})
