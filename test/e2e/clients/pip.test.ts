import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startTestBroker, type TestBroker } from '../../helpers/broker.ts'
import { storedZip } from './archive.ts'
import { printedBy, eventsOf, openShell, python, titleOf, type Ran, type Shell } from './kit.ts'
import { basicFor, startPrivateRegistry, type PrivateRegistry } from './private.ts'
import { reach } from './registry.ts'
import { send } from './upstream.ts'

const registry = await reach('pypi')
const [index = '', files = ''] = registry.hosts
const pipVersion = printedBy('python3', ['-m', 'pip', '--version'])
const noPip = python === undefined || pipVersion === undefined ? 'pip is not installed' : undefined
const skip = noPip ?? registry.skip

const pip = (shell: Shell, ...args: string[]): Promise<Ran> =>
  shell.run(python ?? '', ['-m', 'pip', '--disable-pip-version-check', '--retries', '0', ...args])
const download = (shell: Shell, ...args: string[]): Promise<Ran> =>
  pip(shell, 'download', '--no-deps', '--no-cache-dir', '-d', 'out', ...args)

describe.skipIf(skip !== undefined)(titleOf('pip against the Python package index', skip), () => {
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

  it('downloads a package from the index and the host of the archives', async () => {
    const ran = await download(shell, 'six==1.17.0')
    expect(ran).toMatchObject({ code: 0 })
    expect(await readdir(join(shell.home, 'out'))).toEqual(['six-1.17.0-py2.py3-none-any.whl'])
    const [page] = await eventsOf(broker, 'a1', { host: index })
    expect(page).toMatchObject({
      method: 'GET',
      path: '/simple/six/',
      verdict: 'allow',
      reason: 'rule',
      rule: 'pypi',
      status: 200,
    })
    const archives = await eventsOf(broker, 'a1', { host: files })
    for (const event of archives)
      expect(event).toMatchObject({ method: 'GET', verdict: 'allow', rule: 'pypi', status: 200 })
    expect(archives.at(-1)?.path).toMatch(/\/six-1\.17\.0-py2\.py3-none-any\.whl(\.metadata)?$/)
  })

  it('may not post to the index', async () => {
    const ran = await pip(shell, 'search', 'six')
    expect(ran.code).not.toBe(0)
    const [event] = await eventsOf(broker, 'a1', { host: index, method: 'POST' })
    expect(event).toMatchObject({ path: '/pypi', verdict: 'deny', reason: 'method_denied', status: 403 })
    expect(ran.output).toContain('403')
  })

  it('reaches no other index', async () => {
    const ran = await download(shell, '-vv', '--index-url', 'https://pypi.evil.test/simple/', 'six')
    expect(ran.code).not.toBe(0)
    const [event] = await eventsOf(broker, 'a1', { host: 'pypi.evil.test' })
    expect(event).toMatchObject({ method: 'CONNECT', verdict: 'deny', reason: 'host_denied' })
    expect(ran.output).toContain('403 octroi host_denied pypi.evil.test:443')
  })
})

const wheelName = 'acme_web-1.0-py3-none-any.whl'
const wheel = storedZip({
  'acme_web.py': 'answer = 42\n',
  'acme_web-1.0.dist-info/METADATA': 'Metadata-Version: 2.1\nName: acme-web\nVersion: 1.0\n',
  'acme_web-1.0.dist-info/WHEEL':
    'Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n',
  'acme_web-1.0.dist-info/RECORD': '',
})

describe.skipIf(noPip !== undefined)(titleOf('pip against a private index', noPip), () => {
  let registry: PrivateRegistry

  beforeAll(async () => {
    registry = await startPrivateRegistry({
      name: 'pypi',
      slot: '{ basic: password }',
      env: 'INDEX_TOKEN',
      authorization: basicFor('build'),
      handler: ({ target }, response) =>
        target.endsWith('.whl')
          ? send(response, 'application/zip', wheel)
          : send(
              response,
              'text/html',
              `<!DOCTYPE html><html><body><a href="../../${wheelName}">${wheelName}</a></body></html>`,
            ),
    })
  })

  afterAll(() => registry.stop())

  it('logs in with the placeholder in the URL of the index', async () => {
    const { shell, upstream } = registry
    const url = `${registry.originWith(`build:${shell.env['INDEX_TOKEN']}`)}/simple/`
    const ran = await download(shell, '--index-url', url, 'acme-web')
    expect(ran).toMatchObject({ code: 0 })
    expect(await readdir(join(shell.home, 'out'))).toEqual([wheelName])
    expect(upstream.received.map(({ target }) => target)).toContain(`/${wheelName}`)
    await registry.expectSwapped(`/${wheelName}`, [ran])
  })

  it('is refused a password of its own', async () => {
    const { broker, shell, upstream } = registry
    const before = upstream.received.length
    const url = `${registry.originWith('build:a-password-of-its-own')}/simple/`
    const ran = await download(shell, '--index-url', url, 'acme-web')
    expect(ran.code).not.toBe(0)
    expect(
      upstream.received.slice(before).filter(({ headers }) => headers.authorization !== undefined),
    ).toEqual([])
    const events = await broker.events((all) => all.some(({ reason }) => reason === 'foreign_credential'))
    expect(events.at(-1)).toMatchObject({ agent: 'a1', host: 'pypi.good.test', verdict: 'deny', status: 403 })
  })
})
