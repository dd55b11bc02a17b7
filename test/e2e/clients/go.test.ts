import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startTestBroker, type TestBroker } from '../../helpers/broker.ts'
import { storedZip } from './archive.ts'
import { eventsOf, missing, openShell, titleOf, type Ran, type Shell } from './kit.ts'
import { basicFor, startPrivateRegistry, type PrivateRegistry } from './private.ts'
import { reach } from './registry.ts'
import { basicOf, send } from './upstream.ts'

const registry = await reach('go')
const [host = ''] = registry.hosts
const noGo = missing('go')
const skip = noGo ?? registry.skip
const moduleAt = 'github.com/pkg/errors@v0.9.1'

// The module cache is read-only otherwise, and could not be taken away.
const download = (shell: Shell, module: string, env: Record<string, string> = {}): Promise<Ran> =>
  shell.run('go', ['mod', 'download', '-json', module], {
    env: { GOFLAGS: '-modcacherw', GOTOOLCHAIN: 'local', GOTELEMETRY: 'off', ...env },
  })

describe.skipIf(skip !== undefined)(titleOf('go against the module proxy', skip), () => {
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

  it('downloads a module and checks it against the checksum database', async () => {
    const ran = await download(shell, moduleAt)
    expect(ran).toMatchObject({ code: 0 })
    expect(JSON.parse(ran.stdout)).toMatchObject({
      Version: 'v0.9.1',
      Sum: expect.stringMatching(/^h1:/) as string,
    })
    const [archive] = await eventsOf(broker, 'a1', { host, path: '/github.com/pkg/errors/@v/v0.9.1.zip' })
    expect(archive).toMatchObject({
      method: 'GET',
      verdict: 'allow',
      reason: 'rule',
      rule: 'go',
      status: 200,
    })
    const asked = await eventsOf(broker, 'a1', { path: /\/lookup\/github\.com\/pkg\/errors@v0\.9\.1$/ })
    expect(asked).toMatchObject([{ verdict: 'allow', rule: 'go', status: 200 }])
  })

  it('reaches no other proxy and no repository itself', async () => {
    const other = await download(shell, moduleAt, {
      GOPROXY: 'https://modules.evil.test',
      GOMODCACHE: `${shell.home}/other`,
    })
    expect(other.code).not.toBe(0)
    const [event] = await eventsOf(broker, 'a1', { host: 'modules.evil.test' })
    expect(event).toMatchObject({ method: 'CONNECT', verdict: 'deny', reason: 'host_denied' })
    expect(other.output).toContain(`octroi host_denied modules.evil.test:443 id=${event?.id}`)
  })
})

const root = 'good.test/web@v1.2.3'
const goMod = 'module good.test/web\n'

describe.skipIf(noGo !== undefined)(titleOf('go against a private module proxy', noGo), () => {
  let registry: PrivateRegistry

  beforeAll(async () => {
    registry = await startPrivateRegistry({
      name: 'modules',
      slot: '{ basic: password }',
      env: 'MODULES_TOKEN',
      authorization: basicFor('build'),
      handler({ target }, response) {
        if (target.endsWith('.info'))
          send(response, 'application/json', '{"Version":"v1.2.3","Time":"2026-01-02T03:04:05Z"}')
        else if (target.endsWith('.mod')) send(response, 'text/plain', goMod)
        else
          send(
            response,
            'application/zip',
            storedZip({ [`${root}/go.mod`]: goMod, [`${root}/web.go`]: 'package web\n' }),
          )
      },
    })
  })

  afterAll(() => registry.stop())

  it('logs in with the placeholder in the URL of the proxy', async () => {
    const { shell, upstream } = registry
    const ran = await download(shell, root, {
      GOPROXY: registry.originWith(`build:${shell.env['MODULES_TOKEN']}`),
      GONOSUMDB: 'good.test',
    })
    expect(ran).toMatchObject({ code: 0 })
    expect(await readFile(join(shell.home, 'go/pkg/mod', root, 'web.go'), 'utf8')).toBe('package web\n')
    expect(new Set(upstream.received.map(({ headers }) => basicOf(headers)))).toEqual(
      new Set([`build:${registry.secret}`]),
    )
    await registry.expectSwapped('/good.test/web/@v/v1.2.3.zip', [ran])
  })

  it('is refused a password of its own', async () => {
    const { broker, shell, upstream } = registry
    const before = upstream.received.length
    const ran = await download(shell, 'good.test/web@v1.9.9', {
      GOPROXY: registry.originWith('build:a-password-of-its-own'),
      GONOSUMDB: 'good.test',
    })
    expect(ran.code).not.toBe(0)
    expect(ran.output).toContain('403 octroi foreign_credential')
    expect(upstream.received).toHaveLength(before)
    const [event] = await eventsOf(broker, 'a1', { path: /v1\.9\.9/ })
    expect(event).toMatchObject({ verdict: 'deny', reason: 'foreign_credential', status: 403 })
  })
})
