import { createHash } from 'node:crypto'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startTestBroker, type TestBroker } from '../../helpers/broker.ts'
import { packedTar } from './archive.ts'
import { cargoFolder, eventsOf, openShell, titleOf, type Ran, type Shell } from './kit.ts'
import { startPrivateRegistry, type PrivateRegistry } from './private.ts'
import { reach } from './registry.ts'
import { send } from './upstream.ts'

const registry = await reach('crates')
const [index = ''] = registry.hosts
const noCargo = cargoFolder === undefined ? 'cargo is not installed' : undefined
const skip = noCargo ?? registry.skip

async function newProject(shell: Shell): Promise<string> {
  const project = join(shell.home, 'app')
  await mkdir(join(project, 'src'), { recursive: true })
  await writeFile(join(project, 'src/lib.rs'), '')
  const facts = [
    'name = "octroi-test-never-published"',
    'version = "1.0.0"',
    'edition = "2021"',
    'license = "MIT"',
    'description = "x"',
  ]
  await writeFile(join(project, 'Cargo.toml'), `[package]\n${facts.join('\n')}\n`)
  return project
}

describe.skipIf(skip !== undefined)(titleOf('cargo against the crates registry', skip), () => {
  let broker: TestBroker
  let shell: Shell
  let project: string

  beforeAll(async () => {
    broker = await startTestBroker({ yaml: `sandboxes: { s1: { agent: a1, allow: [${registry.rule}] } }` })
    shell = await openShell(broker, 's1', { path: [cargoFolder ?? ''] })
    project = await newProject(shell)
  })

  afterAll(async () => {
    await shell.stop()
    await broker.stop()
  })

  const cargo = (...args: string[]): Promise<Ran> =>
    shell.run('cargo', args, { cwd: project, env: { CARGO_NET_RETRY: '0' } })

  it('adds and fetches a crate through the sparse index', async () => {
    expect(await cargo('add', 'cfg-if@=1.0.0')).toMatchObject({ code: 0 })
    expect(await cargo('fetch')).toMatchObject({ code: 0 })
    expect(await readFile(join(project, 'Cargo.lock'), 'utf8')).toMatch(
      /name = "cfg-if"\nversion = "1\.0\.0"\n.*\nchecksum = /,
    )
    const [config] = await eventsOf(broker, 'a1', { host: index, path: '/config.json' })
    expect(config).toMatchObject({
      method: 'GET',
      verdict: 'allow',
      reason: 'rule',
      rule: 'crates',
      status: 200,
    })
    const [entry] = await eventsOf(broker, 'a1', { host: index, path: '/cf/g-/cfg-if' })
    expect(entry).toMatchObject({ verdict: 'allow', status: 200 })
    // The index names the host of the archives; a mirror may name itself.
    const archives = await eventsOf(broker, 'a1', { path: /cfg-if.*1\.0\.0/ })
    expect(archives).toMatchObject([{ method: 'GET', verdict: 'allow', rule: 'crates', status: 200 }])
    expect(registry.hosts).toContain(archives[0]?.host)
  })

  it('may not publish', async () => {
    const ran = await shell.run('cargo', ['publish', '--no-verify', '--allow-dirty'], {
      cwd: project,
      env: { CARGO_NET_RETRY: '0', CARGO_REGISTRY_TOKEN: 'ownTokenOfTheSandbox' },
    })
    expect(ran.code).not.toBe(0)
    // The upload goes to a host that serves no installation and no rule names; with a mirror it may be the index itself.
    const refused = (await broker.events((all) => all.some(({ verdict }) => verdict === 'deny'))).filter(
      ({ verdict, method }) => verdict === 'deny' || method === 'PUT',
    )
    for (const event of refused) expect(event).toMatchObject({ agent: 'a1', verdict: 'deny', status: 403 })
    expect(['CONNECT host_denied', 'PUT method_denied']).toContain(
      `${refused[0]?.method} ${refused[0]?.reason}`,
    )
    expect(ran.stderr).toContain('403')
  })

  it('reaches no other index', async () => {
    const elsewhere = ['--config', 'registries.other.index="sparse+https://index.evil.test/"']
    const ran = await cargo(...elsewhere, 'add', '--registry', 'other', 'cfg-if')
    expect(ran.code).not.toBe(0)
    const [event] = await eventsOf(broker, 'a1', { host: 'index.evil.test' })
    expect(event).toMatchObject({ method: 'CONNECT', verdict: 'deny', reason: 'host_denied' })
    expect(ran.stderr).toContain('403')
  })
})

const crate = packedTar({
  'acme-web-1.0.0/Cargo.toml': '[package]\nname = "acme-web"\nversion = "1.0.0"\nedition = "2021"\n',
  'acme-web-1.0.0/src/lib.rs': 'pub fn answer() -> u8 { 42 }\n',
})

describe.skipIf(noCargo !== undefined)(titleOf('cargo against a private registry', noCargo), () => {
  let registry: PrivateRegistry

  beforeAll(async () => {
    registry = await startPrivateRegistry({
      name: 'crates',
      // Cargo sends the token as the whole field, without a scheme.
      slot: '{ header: authorization }',
      env: 'CARGO_REGISTRIES_ACME_TOKEN',
      path: [cargoFolder ?? ''],
      authorization: (secret) => secret,
      handler({ target, headers }, response) {
        const origin = `https://${headers.host}`
        if (target === '/config.json')
          send(response, 'application/json', `{ "dl": "${origin}/dl", "auth-required": true }`)
        else if (target === '/ac/me/acme-web') send(response, 'text/plain', indexLine)
        else send(response, 'application/gzip', crate)
      },
    })
  })

  afterAll(() => registry.stop())

  /** What a user of the registry sets, but for the token. */
  const acme = (): Record<string, string> => ({
    CARGO_NET_RETRY: '0',
    CARGO_REGISTRIES_ACME_INDEX: `sparse+${registry.origin}/`,
    CARGO_REGISTRY_GLOBAL_CREDENTIAL_PROVIDERS: 'cargo:token',
  })

  it('logs in with the placeholder, of which it knows nothing but the variable', async () => {
    const { shell, upstream } = registry
    const cwd = await newProject(shell)
    const env = acme()
    const added = await shell.run('cargo', ['add', '--registry', 'acme', 'acme-web'], { cwd, env })
    expect(added).toMatchObject({ code: 0 })
    const fetched = await shell.run('cargo', ['fetch'], { cwd, env })
    expect(fetched).toMatchObject({ code: 0 })
    const [archive] = upstream.received.filter(({ target }) => target === '/dl/acme-web/1.0.0/download')
    expect(archive?.headers.authorization).toBe(registry.secret)
    await registry.expectSwapped('/dl/acme-web/1.0.0/download', [added, fetched])
  })

  it('is refused a token of its own', async () => {
    const { broker, shell, upstream } = registry
    const before = upstream.received.length
    const ran = await shell.run('cargo', ['search', '--registry', 'acme', 'web'], {
      env: {
        ...acme(),
        CARGO_HOME: join(shell.home, 'other'),
        CARGO_REGISTRIES_ACME_TOKEN: 'a-token-of-its-own',
      },
    })
    expect(ran.code).not.toBe(0)
    expect(
      upstream.received.slice(before).filter(({ headers }) => headers.authorization !== undefined),
    ).toEqual([])
    const events = await broker.events((all) => all.some(({ reason }) => reason === 'foreign_credential'))
    expect(events.at(-1)).toMatchObject({ agent: 'a1', verdict: 'deny', status: 403 })
    expect(ran.stderr).toContain('403')
  })
})

const indexLine = `${JSON.stringify({
  name: 'acme-web',
  vers: '1.0.0',
  deps: [],
  cksum: createHash('sha256').update(crate).digest('hex'),
  features: {},
  yanked: false,
})}\n`
