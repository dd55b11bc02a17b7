import { randomBytes } from 'node:crypto'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { queryEvents } from '../../src/audit/query.ts'
import { installationOf } from '../../src/cli/offline.ts'
import { openSession } from '../../src/cli/run-session.ts'
import { serveHints } from '../../src/cli/serve-hints.ts'
import { demoKey, installed } from '../helpers/installation.ts'
import type { Installed } from '../helpers/installation.ts'
import { memoryIo } from '../helpers/memory-io.ts'

async function variables(octroi: Installed['octroi'], sandbox: string): Promise<Record<string, string>> {
  const { code, out, err } = await octroi('env', '--sandbox', sandbox, '--json')
  expect(code, err).toBe(0)
  return JSON.parse(out) as Record<string, string>
}

describe('octroi with the broker stopped', () => {
  it('knows the sandboxes of the files before any broker has run, and keeps what is done to them', async () => {
    const { octroi } = installed()
    expect((await octroi('sandbox', 'pause', 'first')).out).toBe('paused first')
    const made = await octroi('sandbox', 'create', '--template', 'coder', '--name', 's1', '--json')
    expect(made.code, made.err).toBe(0)
    const shown = JSON.parse((await octroi('sandbox', 'list', '--json')).out) as object[]
    expect(shown).toMatchObject([
      { name: 'first', state: 'paused', handles: [{ access: 'demo', state: 'live' }] },
      { name: 's1', state: 'active', handles: [{ access: 'demo', state: 'live' }] },
    ])
  })

  it('writes the events of what it does into the chain', async () => {
    const { octroi, state } = installed()
    await octroi('sandbox', 'create', '--template', 'coder', '--name', 's1')
    await octroi('revoke', 'credential', 'demo')
    await octroi('sandbox', 'destroy', 's1')
    const events = queryEvents(state, {})
    expect(events.map(({ kind, reason, sandbox }) => [kind, reason, sandbox])).toEqual([
      ['admin', 'create', 's1'],
      ['admin', 'revoke', undefined],
      ['admin', 'destroy', 's1'],
    ])
    expect((await octroi('verify')).code).toBe(0)
  })

  it('prints the token, the placeholder and trust files that exist', async () => {
    const { octroi, folder } = installed(`  ports: { identity: [{ token: generated }] }\n`)
    writeFileSync(
      join(folder, 'octroi.yaml'),
      readFileSync(join(folder, 'octroi.yaml'), 'utf8').replace(':0, admin', ':28431, admin'),
    )
    const env = await variables(octroi, 'first')
    expect(env['HTTPS_PROXY']).toMatch(/^http:\/\/first:[\w-]{43}@127\.0\.0\.1:28431$/)
    expect(env['DEMO_KEY']).toMatch(/^\S*octroi\S{22,}$/)
    expect(readFileSync(env['SSL_CERT_FILE'] ?? '', 'utf8')).toContain('BEGIN CERTIFICATE')
    expect(JSON.stringify(env)).not.toContain(demoKey)
    expect(await variables(octroi, 'first')).toEqual(env)
    expect((await octroi('env', '--sandbox', 'frist')).err).toContain('did you mean first?')
  })

  it('names the listener with TLS to a sandbox that its certificate identifies', async () => {
    const cert = `  cert: { identity: [{ client_certificate: "${'ab'.repeat(32)}" }] }\n`
    const { octroi, configPath } = installed(cert)
    const text = readFileSync(configPath, 'utf8')
    const both = '[127.0.0.1:28431, "https://127.0.0.1:28432"], admin'
    writeFileSync(configPath, text.replace('127.0.0.1:0, admin', both))
    expect((await variables(octroi, 'cert'))['HTTPS_PROXY']).toBe('https://127.0.0.1:28432')
    expect((await variables(octroi, 'first'))['HTTPS_PROXY']).toMatch(/^http:.*:28431$/)
  })

  it('issues a token again when the key that sealed it is another, and says so', async () => {
    const { octroi, state, configPath } = installed()
    writeFileSync(configPath, readFileSync(configPath, 'utf8').replace(':0, admin', ':28431, admin'))
    const before = await variables(octroi, 'first')
    writeFileSync(join(state, 'seal.key'), `${randomBytes(32).toString('base64url')}\n`)
    const { out, err } = await octroi('env', '--sandbox', 'first', '--json')
    expect(err).toContain('issued again')
    expect((JSON.parse(out) as Record<string, string>)['HTTPS_PROXY']).not.toBe(before['HTTPS_PROXY'])
  })

  it('says how to start the broker where one is needed, and every problem of a broken file', async () => {
    const { octroi, configPath } = installed()
    expect((await octroi('env', '--sandbox', 'first')).err).toContain('known only while the broker runs')
    writeFileSync(configPath, 'version: 1\nsandboxes:\n  a: { alow: [] }\n')
    const broken = await octroi('sandbox', 'list')
    expect(broken.code).toBe(2)
    expect(broken.err).toContain(`${configPath}:3:8`)
    expect(broken.err).toContain('allow')
  })

  it('tells nobody of a changed secret, and never shows its value', async () => {
    const { octroi } = installed()
    expect((await octroi('secret', 'list')).err).toContain('no secrets yet')
    expect((await octroi('explain', '--sandbox', 'first', 'GET', 'https://example.org/')).code).toBe(0)
    expect((await octroi('explain', '--sandbox', 'first', 'GET', 'https://evil.test/')).code).toBe(1)
  })
})

describe('octroi with the broker running', () => {
  it('works on the running broker, in force at once', async () => {
    const { octroi, serve } = installed()
    const app = await serve()
    const views = () => app.holder.current().sandboxes
    await octroi('sandbox', 'create', '--template', 'coder', '--name', 's1', '--ttl', '10m')
    expect(
      views()
        .get('s1')
        ?.grants.map(({ access }) => access.name),
    ).toEqual(['demo'])
    await octroi('sandbox', 'pause', 's1')
    expect(views().get('s1')?.paused).toBe(true)
    const handle = views().get('first')?.grants[0]?.handle
    const revoked = await octroi('revoke', 'handle', handle?.placeholder ?? '')
    expect([revoked.code, revoked.err]).toEqual([0, ''])
    expect(views().get('first')?.grants[0]?.handle.revokedAt).toBeDefined()
    await octroi('grant', 'first', 'demo')
    const fresh = views().get('first')?.grants[0]?.handle
    expect(fresh?.revokedAt).toBeUndefined()
    expect(fresh?.placeholder).not.toBe(handle?.placeholder)
    await octroi('revoke', 'sandbox', 'first')
    expect(views().get('first')?.paused).toBe(true)
    await octroi('sandbox', 'destroy', 's1')
    expect(views().has('s1')).toBe(false)
  })

  it('prints the variables with the port that is bound, and keeps the token over a rotation', async () => {
    const { octroi, serve } = installed()
    const app = await serve()
    const address = app.listeners.find(({ name }) => name === 'proxy')?.address.replace('http://', '')
    const before = await variables(octroi, 'first')
    expect(before['HTTPS_PROXY']?.endsWith(`@${address ?? ''}`)).toBe(true)
    const rotated = JSON.parse((await octroi('sandbox', 'rotate-token', 'first', '--json')).out) as {
      token: string
    }
    expect((await variables(octroi, 'first'))['HTTPS_PROXY']).toContain(rotated.token)
  })

  it('tells it of a changed secret', async () => {
    const { serve, configPath } = installed()
    await serve()
    const { io, err } = memoryIo({
      env: { DEMO_KEY: demoKey },
      readStdin: () => Promise.resolve(`${demoKey}-2`),
    })
    const { runCli } = await import('../../src/cli/wiring.ts')
    expect(await runCli(['secret', 'set', 'other', '--config', configPath], io)).toBe(0)
    expect(err.join('\n')).toContain('the running broker uses it from now on')
  })

  it('refuses to change the state folder beside a broker that does not answer yet', async () => {
    const { octroi, state } = installed()
    const { lockState } = await import('../../src/store/sqlite-lock.ts')
    const lock = lockState(state)
    const answer = await octroi('sandbox', 'pause', 'first')
    lock.release()
    expect([answer.code, answer.err]).toEqual([1, expect.stringContaining('another broker')])
  })
})

describe('session of octroi run', () => {
  const caller = (configPath: string) => ({ io: memoryIo({ env: { DEMO_KEY: demoKey } }).io, configPath })

  it('joins the running broker, and writes the end of the run into its log', async () => {
    const { serve, configPath, state } = installed()
    const app = await serve()
    const installation = installationOf(configPath, { DEMO_KEY: demoKey })
    const session = await openSession(installation, 'first', caller(configPath))
    expect(existsSync(session.socketPath)).toBe(true)
    expect(session.socketPath).not.toBe(await app.openSandboxSocket('first'))
    expect(session.protectedPaths).toEqual([state])
    expect(session.placeholders).toMatchObject([{ env: 'DEMO_KEY' }])
    await session.ended(7)
    await session.close()
    expect(queryEvents(state, { kind: 'run' })).toMatchObject([
      { kind: 'run', sandbox: 'first', agent: 'agent-1', run: expect.stringMatching(/^\w{26}$/), exit: 7 },
    ])
  })
})

describe('hints after the start', () => {
  it('shows the token on a terminal only', async () => {
    const { serve, configPath, folder } = installed()
    const app = await serve()
    const piped = await serveHints(app, { io: memoryIo({ cwd: folder }).io, configPath })
    expect(piped).toEqual([
      expect.stringMatching(
        /^paste {2}eval "\$\(node \S+octroi\.js env --config octroi\.yaml --sandbox first\)" {3}# sets HTTPS_PROXY/,
      ),
      'paste  curl -sS https://example.org/   # after that',
    ])
    const shown = await serveHints(app, { io: memoryIo({ cwd: folder, isTerminal: true }).io, configPath })
    expect(shown.join('\n')).toMatch(
      /^paste {2}export HTTPS_PROXY=http:\/\/first:[\w-]{43}@127\.0\.0\.1:\d+$/m,
    )
    expect(shown.join('\n')).toMatch(
      /^paste {2}curl --proxy http:\S+ --cacert \S+ https:\/\/example\.org\/$/m,
    )
    const token = /first:([\w-]{43})@/.exec(shown.join('\n'))?.[1] ?? 'none'
    expect(piped.join('\n')).not.toContain(token)
  })
})
