import { execFileSync, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import type { ServerResponse } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startTestBroker, type TestBroker } from '../../helpers/broker.ts'
import { createTestCa } from '../../helpers/test-ca.ts'
import {
  eventsOf,
  expectNowhere,
  hostPath,
  missing,
  openShell,
  titleOf,
  type Ran,
  type Shell,
} from './kit.ts'
import { basicOf, startUpstream, type Received, type Upstream } from './upstream.ts'

const secret = 'ghs_V7kQ2mZx9RtB4wLc8NpJ6sYd3HfTg1EuAo5i'
const skip = missing('git')

describe.skipIf(skip !== undefined)(titleOf('git', skip), () => {
  let folder: string
  let upstream: Upstream
  let broker: TestBroker
  let writer: Shell
  let reader: Shell
  let stranger: Shell
  const all: Ran[] = []

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'octroi-git-'))
    seedRepository(folder)
    const ca = await createTestCa()
    upstream = await startUpstream((received, response) => httpBackend(folder, received, response), {
      ca,
      names: ['git.good.test'],
    })
    const there = `host: git.good.test, addresses: [127.0.0.0/8]`
    broker = await startTestBroker({
      files: { 'root.pem': ca.cert },
      env: { KEY: secret },
      yaml: `
resolver: { hosts: { git.good.test: [127.0.0.1] } }
trust: { system: false, ca: [root.pem] }
credentials: { key: { issuer: static, value: { env: KEY } } }
access:
  write:
    credential: key
    destinations: [{ ${there}, port: ${upstream.port}, paths: ["/r.git/**"] }]
    slot: { basic: password }
    env: GIT_TOKEN
  read:
    credential: key
    destinations: [{ ${there}, port: ${upstream.port}, paths: [/r.git/info/refs, /r.git/git-upload-pack] }]
    slot: { basic: password }
    env: GIT_TOKEN
sandboxes:
  writer: { agent: a1, access: [write] }
  reader: { agent: a2, access: [read] }
  stranger: { agent: a3, allow: [{ ${there}, ports: [${upstream.port}] }] }
`,
    })
    writer = await openShell(broker, 'writer')
    reader = await openShell(broker, 'reader')
    stranger = await openShell(broker, 'stranger')
  })

  afterAll(async () => {
    for (const shell of [writer, reader, stranger]) await shell.stop()
    await broker.stop()
    await upstream.stop()
    await rm(folder, { recursive: true, force: true })
  })

  const git = async (shell: Shell, ...args: string[]): Promise<Ran> => {
    const identity = ['-c', 'user.name=Tester', '-c', 'user.email=tester@good.test']
    const ran = await shell.run('git', [...identity, ...args], { env: { GIT_TERMINAL_PROMPT: '0' } })
    all.push(ran)
    return ran
  }
  const clone = (shell: Shell, token: string, to: string): Promise<Ran> =>
    git(shell, 'clone', `https://x-access-token:${token}@git.good.test:${upstream.port}/r.git`, to)

  it('clones with the placeholder as its password', async () => {
    const ran = await clone(writer, writer.env['GIT_TOKEN'] ?? '', 'clone')
    expect(ran).toMatchObject({ code: 0 })
    expect(await readFile(join(writer.home, 'clone/README'), 'utf8')).toBe('first\n')
    const credentials = upstream.received.map(({ headers }) => basicOf(headers)).filter((text) => text !== '')
    expect(new Set(credentials)).toEqual(new Set([`x-access-token:${secret}`]))
    expect(upstream.received.at(-1)).toMatchObject({ method: 'POST', target: '/r.git/git-upload-pack' })
    // The clone keeps the URL, so what is on disk is the placeholder.
    expect(await readFile(join(writer.home, 'clone/.git/config'), 'utf8')).toContain(writer.env['GIT_TOKEN'])
    const [event] = await eventsOf(broker, 'a1', { host: 'git.good.test', path: '/r.git/git-upload-pack' })
    expect(event).toMatchObject({
      verdict: 'allow',
      reason: 'access',
      rule: 'access:write',
      access: 'write',
      status: 200,
    })
    expect((await broker.events()).filter(({ status }) => status === 407)).toEqual([])
  })

  it('pushes small and large packs', async () => {
    for (const [name, content] of [
      ['small', 'x\n'],
      // More than git buffers (1 MiB): the pack goes chunked, after an empty request that tries the credentials.
      ['large', randomBytes(1_500_000).toString('base64')],
    ] as const) {
      await writeFile(join(writer.home, 'clone', name), content)
      await git(writer, '-C', 'clone', 'add', '.')
      await git(writer, '-C', 'clone', 'commit', '-q', '-m', name)
      expect(await git(writer, '-C', 'clone', 'push', 'origin', 'main')).toMatchObject({ code: 0 })
      const pushed = execFileSync('git', ['-C', join(folder, 'r.git'), 'show', `main:${name}`], {
        encoding: 'utf8',
        maxBuffer: 1e8,
      })
      expect(pushed).toBe(content)
    }
    const packs = upstream.received.filter(({ target }) => target === '/r.git/git-receive-pack')
    expect(packs.at(-1)?.headers).toMatchObject({ 'transfer-encoding': 'chunked' })
    for (const { headers } of packs) expect(basicOf(headers)).toBe(`x-access-token:${secret}`)
    const events = await eventsOf(broker, 'a1', {
      host: 'git.good.test',
      path: '/r.git/git-receive-pack',
      count: packs.length,
    })
    for (const event of events) expect(event).toMatchObject({ method: 'POST', access: 'write', status: 200 })
  })

  it('may not push where the access covers reading', async () => {
    expect(await clone(reader, reader.env['GIT_TOKEN'] ?? '', 'clone')).toMatchObject({ code: 0 })
    await git(reader, '-C', 'clone', 'commit', '-q', '--allow-empty', '-m', 'no')
    const pushes = (): number =>
      upstream.received.filter(({ target }) => target === '/r.git/git-receive-pack').length
    const before = pushes()
    const ran = await git(reader, '-C', 'clone', 'push', 'origin', 'main')
    expect(ran.code).not.toBe(0)
    expect(ran.stderr).toContain('HTTP 403')
    expect(pushes()).toBe(before)
    const [event] = await eventsOf(broker, 'a2', { host: 'git.good.test', path: '/r.git/git-receive-pack' })
    expect(event).toMatchObject({ method: 'POST', verdict: 'deny', reason: 'path_denied', status: 403 })
  })

  it('may not use the placeholder of another sandbox', async () => {
    const before = upstream.received.length
    const ran = await clone(stranger, writer.env['GIT_TOKEN'] ?? '', 'clone')
    expect(ran.code).toBe(128)
    expect(ran.stderr).toContain('The requested URL returned error: 403')
    for (const { headers } of upstream.received.slice(before))
      expect(headers).not.toHaveProperty('authorization')
    const events = await eventsOf(broker, 'a3', { host: 'git.good.test', count: 2 })
    expect(events.at(-1)).toMatchObject({ verdict: 'deny', reason: 'handle_unknown', status: 403 })
    const alerts = (await broker.events()).filter(({ kind }) => kind === 'alert')
    expect(alerts).toMatchObject([{ sandbox: 'writer', reason: 'handle_wrong_sandbox', access: 'write' }])
  })

  it('is refused a host that no rule names', async () => {
    const ran = await git(writer, 'ls-remote', 'https://git.evil.test/r.git')
    expect(ran.code).toBe(128)
    expect(ran.stderr).toMatch(/CONNECT tunnel failed, response 403|Received HTTP code 403 from proxy/)
    const [event] = await eventsOf(broker, 'a1', { host: 'git.evil.test' })
    expect(event).toMatchObject({ method: 'CONNECT', verdict: 'deny', reason: 'host_denied' })
  })

  it('never shows the credential to a client or the log', async () => {
    await expectNowhere(broker, secret, all)
  })
})

function seedRepository(folder: string): void {
  const run = (...args: string[]): void =>
    void execFileSync('git', args, { cwd: folder, env: { PATH: hostPath, HOME: folder }, stdio: 'pipe' })
  run('init', '-q', '--bare', '-b', 'main', 'r.git')
  run('-C', 'r.git', 'config', 'http.receivepack', 'true')
  run('init', '-q', '-b', 'main', 'seed')
  execFileSync('sh', ['-c', 'echo first > seed/README'], { cwd: folder })
  run('-C', 'seed', 'add', '.')
  run(
    '-C',
    'seed',
    '-c',
    'user.name=Tester',
    '-c',
    'user.email=tester@good.test',
    'commit',
    '-q',
    '-m',
    'first',
  )
  run('-C', 'seed', 'push', '-q', '../r.git', 'main')
}

/** Asks for the real credential, then hands the request to git's own CGI program (RFC 3875). */
function httpBackend(
  folder: string,
  { method, target, headers, body }: Received,
  response: ServerResponse,
): void {
  if (basicOf(headers) !== `x-access-token:${secret}`) {
    response.writeHead(401, { 'www-authenticate': 'Basic realm="git"', 'content-length': 0 }).end()
    return
  }
  const [path = '', query = ''] = target.split('?')
  const cgi = spawn('git', ['http-backend'], {
    env: {
      PATH: hostPath,
      HOME: folder,
      GIT_PROJECT_ROOT: folder,
      GIT_HTTP_EXPORT_ALL: '1',
      REMOTE_USER: 'x-access-token',
      REQUEST_METHOD: method,
      PATH_INFO: path,
      QUERY_STRING: query,
      CONTENT_LENGTH: String(body.length),
      CONTENT_TYPE: headers['content-type'] ?? '',
      HTTP_CONTENT_ENCODING: headers['content-encoding'] ?? '',
      GIT_PROTOCOL: String(headers['git-protocol'] ?? ''),
    },
  })
  const chunks: Buffer[] = []
  cgi.stdout.on('data', (chunk: Buffer) => chunks.push(chunk))
  cgi.stdin.on('error', () => undefined)
  cgi.stdin.end(body)
  cgi.on('close', () => {
    const all = Buffer.concat(chunks)
    const end = all.indexOf('\r\n\r\n')
    const fields = all.subarray(0, end).toString('latin1').split('\r\n')
    for (const field of fields) {
      const [, name = '', value = ''] = /^([^:]+): ?(.*)$/.exec(field) ?? []
      if (name === 'Status') response.statusCode = Number.parseInt(value, 10)
      else response.setHeader(name, value)
    }
    response.end(all.subarray(end + 4))
  })
}
