import { createHash } from 'node:crypto'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startTestBroker, type TestBroker } from '../../helpers/broker.ts'
import { createTestCa } from '../../helpers/test-ca.ts'
import { packedTar } from './archive.ts'
import { eventsOf, expectNowhere, missing, openShell, titleOf, type Ran, type Shell } from './kit.ts'
import { reach } from './registry.ts'
import { send, startUpstream, type Upstream } from './upstream.ts'

const registry = await reach('npm')
const [host = ''] = registry.hosts
const noNpm = missing('npm')
const skip = noNpm ?? registry.skip
const quiet = { npm_config_update_notifier: 'false', npm_config_fetch_retries: '0' }

async function project(shell: Shell, name: string, files: Record<string, string>): Promise<string> {
  const folder = join(shell.home, name)
  await mkdir(folder)
  for (const [file, text] of Object.entries(files)) await writeFile(join(folder, file), text)
  return folder
}

const install = (shell: Shell, cwd: string, name: string): Promise<Ran> =>
  shell.run('npm', ['install', '--no-audit', '--no-fund', '--ignore-scripts', name], { cwd, env: quiet })

describe.skipIf(skip !== undefined)(titleOf('npm against the npm registry', skip), () => {
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

  it('installs a package', async () => {
    const cwd = await project(shell, 'app', { 'package.json': '{ "name": "app", "version": "1.0.0" }' })
    const ran = await install(shell, cwd, 'is-number@7.0.0')
    expect(ran).toMatchObject({ code: 0 })
    const installed = await readFile(join(cwd, 'node_modules/is-number/package.json'), 'utf8')
    expect(JSON.parse(installed)).toMatchObject({ name: 'is-number', version: '7.0.0' })
    expect(await readFile(join(cwd, 'package-lock.json'), 'utf8')).toContain('"integrity": "sha512-')
    const events = await eventsOf(broker, 'a1', { host, count: 2 })
    for (const event of events) {
      expect(event).toMatchObject({ agent: 'a1', verdict: 'allow', reason: 'rule', rule: 'npm', status: 200 })
      expect(event).toMatchObject({ method: 'GET', tls: { mode: 'terminate' } })
    }
    expect(events.map(({ path }) => path)).toEqual(['/is-number', '/is-number/-/is-number-7.0.0.tgz'])
  })

  it('may not publish', async () => {
    const cwd = await project(shell, 'mine', {
      'package.json': '{ "name": "octroi-test-never-published", "version": "1.0.0" }',
      '.npmrc': `//${host}/:_authToken=npm_ownTokenOfTheSandbox0123456789\n`,
    })
    const ran = await shell.run('npm', ['publish'], { cwd, env: quiet })
    expect(ran.code).not.toBe(0)
    const [event] = await eventsOf(broker, 'a1', { host, method: 'PUT' })
    expect(event).toMatchObject({
      path: '/octroi-test-never-published',
      verdict: 'deny',
      reason: 'method_denied',
      rule: 'npm',
      status: 403,
    })
    expect(ran.stderr).toContain(`403 octroi method_denied ${host}:443 id=${event?.id}`)
  })

  it('reaches no other registry', async () => {
    const cwd = await project(shell, 'elsewhere', { 'package.json': '{ "name": "app", "version": "1.0.0" }' })
    const ran = await shell.run('npm', ['install', '--registry=https://registry.evil.test/', 'is-number'], {
      cwd,
      env: quiet,
    })
    expect(ran.code).not.toBe(0)
    const [event] = await eventsOf(broker, 'a1', { host: 'registry.evil.test' })
    expect(event).toMatchObject({ agent: 'a1', method: 'CONNECT', verdict: 'deny', reason: 'host_denied' })
    expect(ran.stderr).toContain(`403 octroi host_denied registry.evil.test:443 id=${event?.id}`)
  })
})

const secret = 'npm_Kq83vTz0LmWb5Rj2Xd7Ny4Hc9Ps6Gf1AeUo'

describe.skipIf(noNpm !== undefined)(titleOf('npm against a private registry', noNpm), () => {
  let broker: TestBroker
  let upstream: Upstream
  let shell: Shell
  const tarball = packedTar({
    'package/package.json': '{ "name": "@acme/web", "version": "1.2.3", "main": "index.js" }',
    'package/index.js': 'module.exports = 42\n',
  })

  beforeAll(async () => {
    const ca = await createTestCa()
    upstream = await startUpstream(
      ({ headers, target }, response) => {
        const origin = `https://${headers.host}`
        const isTarball = target.endsWith('.tgz')
        if (isTarball) send(response, 'application/octet-stream', tarball)
        else send(response, 'application/json', packument(origin, target, tarball))
      },
      { ca, names: ['npm.good.test', 'cdn.good.test'] },
    )
    broker = await startTestBroker({
      files: { 'root.pem': ca.cert },
      env: { KEY: secret },
      yaml: `
resolver: { hosts: { npm.good.test: [127.0.0.1], cdn.good.test: [127.0.0.1] } }
trust: { system: false, ca: [root.pem] }
credentials: { key: { issuer: static, value: { env: KEY } } }
access:
  npm:
    credential: key
    destinations: [{ host: npm.good.test, port: ${upstream.port}, methods: [GET, HEAD], addresses: [127.0.0.0/8] }]
    slot: { header: authorization, scheme: Bearer }
    env: NPM_TOKEN
sandboxes:
  s1:
    agent: a1
    access: [npm]
    allow: [{ id: cdn, host: cdn.good.test, ports: [${upstream.port}], addresses: [127.0.0.0/8] }]
`,
    })
    shell = await openShell(broker, 's1')
  })

  afterAll(async () => {
    await shell.stop()
    await broker.stop()
    await upstream.stop()
  })

  it('logs in with the placeholder, and takes the archive from another host without the credential', async () => {
    const at = `npm.good.test:${upstream.port}`
    const cwd = await project(shell, 'app', {
      'package.json': '{ "name": "app", "version": "1.0.0" }',
      '.npmrc': `@acme:registry=https://${at}/\n//${at}/:_authToken=\${NPM_TOKEN}\nreplace-registry-host=never\n`,
    })
    const ran = await install(shell, cwd, '@acme/web')
    expect(ran).toMatchObject({ code: 0 })
    expect(await readFile(join(cwd, 'node_modules/@acme/web/index.js'), 'utf8')).toContain('42')
    const seen = upstream.received.map(({ method, target, headers }) => ({
      method,
      target,
      auth: headers.authorization,
    }))
    expect(seen).toEqual([
      { method: 'GET', target: '/@acme%2fweb', auth: `Bearer ${secret}` },
      { method: 'GET', target: '/web-1.2.3.tgz', auth: undefined },
    ])
    const [packed] = await eventsOf(broker, 'a1', { host: 'npm.good.test' })
    expect(packed).toMatchObject({ agent: 'a1', verdict: 'allow', access: 'npm', status: 200 })
    const [archive] = await eventsOf(broker, 'a1', { host: 'cdn.good.test' })
    expect(archive).toMatchObject({ agent: 'a1', verdict: 'allow', rule: 'cdn', status: 200 })
    expect(archive).not.toHaveProperty('access')
    await expectNowhere(broker, secret, [ran])
  })
})

function packument(origin: string, target: string, tarball: Buffer): string {
  const name = decodeURIComponent(target.slice(1))
  const dist = {
    tarball: `${origin.replace('npm.', 'cdn.')}/web-1.2.3.tgz`,
    integrity: `sha512-${createHash('sha512').update(tarball).digest('base64')}`,
  }
  const version = { name, version: '1.2.3', main: 'index.js', dist }
  return JSON.stringify({ name, 'dist-tags': { latest: '1.2.3' }, versions: { '1.2.3': version } })
}
