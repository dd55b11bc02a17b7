import { existsSync } from 'node:fs'
import { mkdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startTestBroker, type TestBroker } from '../../helpers/broker.ts'
import { eventsOf, freePort, missing, openShell, titleOf, type Ran, type Shell } from './kit.ts'
import { basicFor, startPrivateRegistry, type PrivateRegistry } from './private.ts'
import { reach } from './registry.ts'
import { basicOf, send } from './upstream.ts'

const registry = await reach('maven')
const [host = ''] = registry.hosts
const noMaven = missing('mvn', 'java')
const skip = noMaven ?? registry.skip

// Java takes the home of the user, whatever HOME says: its repository and settings have to be named.
async function mvn(at: Shell, args: readonly string[], servers = ''): Promise<Ran> {
  const settings = join(at.home, 'settings.xml')
  await writeFile(settings, `<settings>${servers}</settings>`)
  const own = ['-B', '-s', settings, `-Dmaven.repo.local=${join(at.home, 'repository')}`]
  return at.run('mvn', [...own, ...args], { timeoutMs: 120_000 })
}

const pom = (content: string): string =>
  `<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>${content}</project>`
const coordinates = (id: string): string =>
  `<groupId>test.good</groupId><artifactId>${id}</artifactId><version>1</version>`

/** A project whose parent is to be had from this repository only. */
async function projectOf(at: Shell, name: string, repository: { id: string; url: string }): Promise<string> {
  const folder = join(at.home, name)
  await mkdir(folder)
  const { id, url } = repository
  const text = `<parent>${coordinates('parent')}<relativePath/></parent><artifactId>child</artifactId>
<repositories><repository><id>${id}</id><url>${url}</url></repository></repositories>`
  await writeFile(join(folder, 'pom.xml'), pom(text))
  return join(folder, 'pom.xml')
}

describe.skipIf(skip !== undefined)(titleOf('mvn against the Maven repository', skip), () => {
  let broker: TestBroker
  let shell: Shell
  let withToken: Shell

  beforeAll(async () => {
    // Java cannot send a proxy password, so the port is its proof.
    broker = await startTestBroker({
      yaml: `
sandboxes:
  s1: { agent: a1, identity: [{ port: ${await freePort()} }], allow: [${registry.rule}] }
  s2: { agent: a2, allow: [${registry.rule}] }
`,
    })
    shell = await openShell(broker, 's1')
    withToken = await openShell(broker, 's2')
  })

  afterAll(async () => {
    await shell.stop()
    await withToken.stop()
    await broker.stop()
  })

  const plugin = 'org.apache.maven.plugins:maven-dependency-plugin:3.6.1:get'

  it('gets an artifact with its plugin', async () => {
    const ran = await mvn(shell, [plugin, '-Dtransitive=false', '-Dartifact=junit:junit:4.13.2'])
    expect(ran).toMatchObject({ code: 0 })
    expect(existsSync(join(shell.home, 'repository/junit/junit/4.13.2/junit-4.13.2.jar'))).toBe(true)
    const [event] = await eventsOf(broker, 'a1', { host, path: /\/junit-4\.13\.2\.jar$/ })
    expect(event).toMatchObject({
      method: 'GET',
      verdict: 'allow',
      reason: 'rule',
      rule: 'maven',
      status: 200,
    })
    const refused = (await broker.events()).filter(({ verdict }) => verdict === 'deny')
    expect(refused).toEqual([])
  }, 130_000)

  it('reaches no other repository', async () => {
    const project = await projectOf(shell, 'elsewhere', {
      id: 'central',
      url: 'https://repository.evil.test/',
    })
    const ran = await mvn(shell, ['-f', project, 'validate'])
    expect(ran.code).toBe(1)
    const [event] = await eventsOf(broker, 'a1', { host: 'repository.evil.test' })
    expect(event).toMatchObject({ method: 'CONNECT', verdict: 'deny', reason: 'host_denied' })
    expect(ran.stdout).toContain(`octroi host_denied repository.evil.test:443 id=${event?.id}`)
  })

  it('gets nowhere where only a password would prove who asks', async () => {
    const project = await projectOf(withToken, 'child', { id: 'central', url: `https://${host}/maven2/` })
    const ran = await mvn(withToken, ['-f', project, 'validate'])
    expect(ran.code).toBe(1)
    expect(ran.stdout).toContain('407')
    const events = await broker.events((all) => all.some(({ reason }) => reason === 'auth_missing'))
    expect(events.at(-1)).toMatchObject({
      host,
      method: 'CONNECT',
      verdict: 'deny',
      reason: 'auth_missing',
      status: 407,
    })
  })
})

describe.skipIf(noMaven !== undefined)(titleOf('mvn against a private repository', noMaven), () => {
  let registry: PrivateRegistry

  beforeAll(async () => {
    registry = await startPrivateRegistry({
      name: 'maven',
      slot: '{ basic: password }',
      env: 'REPOSITORY_TOKEN',
      identity: `{ port: ${await freePort()} }`,
      authorization: basicFor('build'),
      handler: ({ target }, response) =>
        target.endsWith('.pom')
          ? send(response, 'text/xml', pom(`${coordinates('parent')}<packaging>pom</packaging>`))
          : void response.writeHead(404, { 'content-length': 0 }).end(),
    })
  })

  afterAll(() => registry.stop())

  const server = (password: string): string =>
    `<servers><server><id>acme</id><username>build</username><password>${password}</password></server></servers>`

  it('logs in with the placeholder from the variable that its settings name', async () => {
    const { shell, upstream } = registry
    const project = await projectOf(shell, 'child', { id: 'acme', url: registry.origin })
    const ran = await mvn(shell, ['-f', project, 'validate'], server('${env.REPOSITORY_TOKEN}'))
    expect(ran).toMatchObject({ code: 0 })
    const credentials = upstream.received.map(({ headers }) => basicOf(headers)).filter((text) => text !== '')
    expect(new Set(credentials)).toEqual(new Set([`build:${registry.secret}`]))
    await registry.expectSwapped('/test/good/parent/1/parent-1.pom', [ran])
  })

  it('is refused a password of its own', async () => {
    const { broker, shell, upstream } = registry
    const before = upstream.received.length
    await rm(join(shell.home, 'repository'), { recursive: true })
    const project = await projectOf(shell, 'other', { id: 'acme', url: registry.origin })
    const ran = await mvn(shell, ['-f', project, 'validate'], server('a-password-of-its-own'))
    expect(ran.code).toBe(1)
    expect(
      upstream.received.slice(before).filter(({ headers }) => headers.authorization !== undefined),
    ).toEqual([])
    const events = await broker.events((all) => all.some(({ reason }) => reason === 'foreign_credential'))
    expect(events.at(-1)).toMatchObject({ agent: 'a1', verdict: 'deny', status: 403 })
    expect(ran.stdout).toContain('octroi foreign_credential')
  })
})
