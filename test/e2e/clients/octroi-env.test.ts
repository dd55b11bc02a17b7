import { fileURLToPath } from 'node:url'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startTestBroker, type TestBroker } from '../../helpers/broker.ts'
import { createTestCa } from '../../helpers/test-ca.ts'
import { eventsOf, expectNowhere, missing, openShell, titleOf, type Ran, type Shell } from './kit.ts'
import { send, startUpstream, type Upstream } from './upstream.ts'

const octroi = fileURLToPath(new URL('../../../bin/octroi.js', import.meta.url))
const secret = 'sk_live_2Wm8Kx5Tz9Rb4Vn7Qc1Lp6Hd'
const skip = missing('curl', 'git')

describe.skipIf(skip !== undefined)(titleOf('the variables that `octroi env` prints', skip), () => {
  let upstream: Upstream
  let broker: TestBroker
  let shell: Shell

  beforeAll(async () => {
    const ca = await createTestCa()
    upstream = await startUpstream(({ target }, response) => send(response, 'text/plain', `${target}\n`), {
      ca,
      names: ['api.good.test'],
    })
    broker = await startTestBroker({
      files: { 'root.pem': ca.cert },
      env: { KEY: secret },
      yaml: `
resolver: { hosts: { api.good.test: [127.0.0.1] } }
trust: { system: false, ca: [root.pem] }
credentials: { key: { issuer: static, value: { env: KEY } } }
access:
  api:
    credential: key
    destinations: [{ host: api.good.test, port: ${upstream.port}, addresses: [127.0.0.0/8] }]
    env: API_KEY
sandboxes: { s1: { agent: a1, access: [api] } }
`,
    })
    shell = await openShell(broker, 's1')
  })

  afterAll(async () => {
    await shell.stop()
    await broker.stop()
    await upstream.stop()
  })

  /** A command in a process without a variable but PATH and HOME. */
  const bare = (command: string, args: readonly string[]): Promise<Ran> =>
    shell.run('env', ['-i', `PATH=${shell.env['PATH']}`, `HOME=${shell.home}`, command, ...args])

  const octroiArgs = (...args: string[]): string[] => {
    const config = join(broker.folder, 'octroi.yaml')
    return [octroi, '--config', config, 'env', '--sandbox', 's1', ...args]
  }
  const printed = (...args: string[]): Promise<Ran> =>
    bare('env', [`KEY=${secret}`, process.execPath, ...octroiArgs(...args)])

  it('are the ones that these tests give to clients', async () => {
    const ran = await printed('--format', 'json')
    expect(ran).toMatchObject({ code: 0, stderr: '' })
    expect({ PATH: shell.env['PATH'], HOME: shell.home, ...(JSON.parse(ran.stdout) as object) }).toEqual(
      shell.env,
    )
    await expectNowhere(broker, secret, [ran])
  })

  it('work in a POSIX shell for curl, git and Node', async () => {
    const { stdout } = await printed()
    const url = `https://api.good.test:${upstream.port}`
    const script = `
set -eu
eval "$1"
curl -sS -H "Authorization: Bearer $API_KEY" ${url}/curl
git ls-remote ${url}/git.git 2>&1 || true
"$2" --input-type=module -e "const a = await fetch('${url}/node', { headers: { authorization: 'Bearer ' + process.env.API_KEY } }); process.stdout.write(await a.text())"
`
    const ran = await bare('sh', ['-c', script, 'sh', stdout, process.execPath])
    expect(ran.stdout).toContain('/curl\n')
    expect(ran.stdout).toContain('/node\n')
    expect(ran.code).toBe(0)
    const seen = upstream.received.map(({ target, headers }) => `${target} ${headers.authorization}`)
    expect(seen).toContain(`/curl Bearer ${secret}`)
    expect(seen).toContain(`/node Bearer ${secret}`)
    expect(seen).toContain('/git.git/info/refs?service=git-upload-pack undefined')
    for (const path of ['/curl', '/node', '/git.git/info/refs']) {
      const [event] = await eventsOf(broker, 'a1', { host: 'api.good.test', path })
      expect(event).toMatchObject({ verdict: 'allow', status: 200 })
    }
    await expectNowhere(broker, secret, [ran])
  })

  it('work as an env file and as the member of an MCP configuration', async () => {
    const docker = await printed('--format', 'docker')
    const mcp = JSON.parse((await printed('--format', 'mcp')).stdout) as { env: Record<string, string> }
    const sets = [
      docker.stdout.trimEnd().split('\n'),
      Object.entries(mcp.env).map(([name, value]) => `${name}=${value}`),
    ]
    for (const set of sets) {
      const ran = await bare('env', [...set, 'curl', '-sS', `https://api.good.test:${upstream.port}/set`])
      expect(ran).toMatchObject({ code: 0, stdout: '/set\n', stderr: '' })
    }
  })

  it('refuse what the sandbox may not reach', async () => {
    const { stdout } = await printed()
    const ran = await bare('sh', ['-c', 'eval "$1"; curl -sSv https://env.evil.test/', 'sh', stdout])
    expect(ran.code).toBe(56)
    const [event] = await eventsOf(broker, 'a1', { host: 'env.evil.test' })
    expect(event).toMatchObject({ method: 'CONNECT', verdict: 'deny', reason: 'host_denied' })
    expect(ran.stderr).toContain(`403 octroi host_denied env.evil.test:443 id=${event?.id}`)
  })
})
