import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startTestBroker, type TestBroker } from '../../helpers/broker.ts'
import { eventsOf, missing, openShell, titleOf, type Ran, type Shell } from './kit.ts'
import { basicFor, startPrivateRegistry, type PrivateRegistry } from './private.ts'
import { reach } from './registry.ts'
import { basicOf, send } from './upstream.ts'

const registry = await reach('apt')
const [host = ''] = registry.hosts
const keyring = '/usr/share/keyrings/debian-archive-keyring.gpg'
const release = existsSync('/etc/os-release') ? readFileSync('/etc/os-release', 'utf8') : ''
const codename = /^ID=debian$/m.test(release) ? /^VERSION_CODENAME=(\w+)$/m.exec(release)?.[1] : undefined
const otherSystem = codename === undefined || !existsSync(keyring) ? 'this system is not Debian' : undefined
const skip = missing('apt-get', 'dpkg') ?? otherSystem ?? registry.skip

/** A system of its own for each list of sources, so that nothing of this machine's is read or written. */
async function system(
  shell: Shell,
  name: string,
  source: string,
): Promise<(...args: string[]) => Promise<Ran>> {
  const folder = join(shell.home, name)
  const folders = [
    'etc/apt/preferences.d',
    'var/lib/apt/lists/partial',
    'var/cache/apt/archives/partial',
    'var/lib/dpkg',
  ]
  for (const path of folders) await mkdir(join(folder, path), { recursive: true })
  await writeFile(join(folder, 'etc/apt/sources.list'), `${source}\n`)
  await writeFile(join(folder, 'var/lib/dpkg/status'), '')
  const options = [
    `Dir=${folder}`,
    `Dir::State::status=${folder}/var/lib/dpkg/status`,
    // The user that apt would change to cannot read this folder.
    'APT::Sandbox::User=root',
    'Acquire::Check-Valid-Until=false',
    'Acquire::Check-Date=false',
    'Acquire::Languages=none',
    'Acquire::GzipIndexes=false',
    'Acquire::Retries=0',
  ].flatMap((option) => ['-o', option])
  return (...args) => shell.run('apt-get', [...options, ...args], { cwd: folder })
}

async function packageLists(shell: Shell, name: string): Promise<string[]> {
  const lists = join(shell.home, name, 'var/lib/apt/lists')
  const found = (await readdir(lists)).filter((entry) => entry.endsWith('_Packages'))
  return Promise.all(found.map((entry) => readFile(join(lists, entry), 'utf8')))
}

describe.skipIf(skip !== undefined)(titleOf('apt-get against the Debian mirrors', skip), () => {
  let broker: TestBroker
  let shell: Shell

  beforeAll(async () => {
    broker = await startTestBroker({ yaml: `sandboxes: { s1: { agent: a1, allow: [${registry.rule}] } }` })
    shell = await openShell(broker, 's1')
  })

  afterAll(async () => {
    await shell.stop()
    await broker.stop()
  })

  const suite = `${codename}-updates`
  const source = (scheme: string, at: string): string =>
    `deb [signed-by=${keyring}] ${scheme}://${at}/debian ${suite} main`

  for (const scheme of ['http', 'https'] as const) {
    it(`updates its lists over ${scheme}`, async () => {
      const apt = await system(shell, scheme, source(scheme, host))
      expect(await apt('update')).toMatchObject({ code: 0, stderr: '' })
      expect(await packageLists(shell, scheme)).toHaveLength(1)
      const path = `/debian/dists/${suite}/InRelease`
      const inRelease = (await eventsOf(broker, 'a1', { host, path })).filter(
        (event) => event.scheme === scheme,
      )
      expect(inRelease).toMatchObject([
        { method: 'GET', verdict: 'allow', reason: 'rule', rule: 'apt', status: 200 },
      ])
    })
  }

  it('downloads a package', async () => {
    const apt = await system(shell, 'download', source('https', host))
    expect(await apt('update')).toMatchObject({ code: 0 })
    const name = smallestPackage(await packageLists(shell, 'download'))
    expect(await apt('download', name)).toMatchObject({ code: 0 })
    const [file] = (await readdir(join(shell.home, 'download'))).filter((entry) => entry.endsWith('.deb'))
    const archive = join(shell.home, 'download', file ?? '')
    expect(execFileSync('dpkg', ['--field', archive, 'Package'], { encoding: 'utf8' }).trim()).toBe(name)
    const archives = await eventsOf(broker, 'a1', { host, path: /\.deb$/ })
    expect(archives).toMatchObject([{ method: 'GET', verdict: 'allow', rule: 'apt', status: 200 }])
  })

  it('reaches no other mirror', async () => {
    const plain = await (await system(shell, 'plain', source('http', 'mirror.evil.test')))('update')
    // apt only warns when it keeps its old lists.
    expect(plain.output).toContain('403  octroi host_denied mirror.evil.test:80')
    const tls = await (await system(shell, 'tls', source('https', 'tls.evil.test')))('update')
    expect(tls.output).toContain('403')
    for (const [at, method] of [
      ['mirror.evil.test', 'GET'],
      ['tls.evil.test', 'CONNECT'],
    ] as const) {
      const [event] = await eventsOf(broker, 'a1', { host: at })
      expect(event).toMatchObject({ method, verdict: 'deny', reason: 'host_denied' })
    }
  })
})

/** The smallest package in the lists of a system. */
function smallestPackage(lists: readonly string[]): string {
  const packages = lists
    .flatMap((list) => list.split('\n\n'))
    .flatMap((text) => {
      const name = /^Package: (.+)$/m.exec(text)?.[1]
      const size = /^Size: ([0-9]+)$/m.exec(text)?.[1]
      return name === undefined || size === undefined ? [] : [{ name, size: Number(size) }]
    })
  const [smallest] = packages.toSorted((a, b) => a.size - b.size)
  if (smallest === undefined) throw new TypeError('the lists name no package')
  return smallest.name
}

const noApt = missing('apt-get')
const stanza = 'Package: acme-web\nVersion: 1.0\nArchitecture: all\nFilename: acme-web.deb\nSize: 1\n'

describe.skipIf(noApt !== undefined)(titleOf('apt-get against a private repository', noApt), () => {
  let registry: PrivateRegistry

  beforeAll(async () => {
    registry = await startPrivateRegistry({
      name: 'apt',
      slot: '{ basic: password }',
      env: 'REPOSITORY_TOKEN',
      authorization: basicFor('build'),
      handler: ({ target }, response) =>
        target.endsWith('/Packages')
          ? send(response, 'text/plain', stanza)
          : void response.writeHead(404, { 'content-length': 0 }).end(),
    })
  })

  afterAll(() => registry.stop())

  async function update(name: string, password: string): Promise<Ran> {
    // A flat repository without signatures: what is tried here is the way to it.
    const apt = await system(registry.shell, name, `deb [trusted=yes] ${registry.origin}/ ./`)
    const login = `machine ${registry.origin} login build password ${password}\n`
    await writeFile(join(registry.shell.home, name, 'etc/apt/auth.conf'), login, { mode: 0o600 })
    return apt('update')
  }

  it('logs in with the placeholder in its auth.conf', async () => {
    const { shell, upstream } = registry
    const ran = await update('mine', shell.env['REPOSITORY_TOKEN'] ?? '')
    expect(ran).toMatchObject({ code: 0 })
    expect(await packageLists(shell, 'mine')).toEqual([stanza])
    expect(new Set(upstream.received.map(({ headers }) => basicOf(headers)))).toEqual(
      new Set([`build:${registry.secret}`]),
    )
    await registry.expectSwapped('/./Packages', [ran])
  })

  it('is refused a password of its own', async () => {
    const { broker, shell, upstream } = registry
    const before = upstream.received.length
    const ran = await update('other', 'a-password-of-its-own')
    expect(ran.output).toContain('403  octroi foreign_credential')
    expect(await packageLists(shell, 'other')).toEqual([])
    expect(upstream.received).toHaveLength(before)
    const events = await broker.events((all) => all.some(({ reason }) => reason === 'foreign_credential'))
    expect(events.at(-1)).toMatchObject({ agent: 'a1', verdict: 'deny', status: 403 })
  })
})
