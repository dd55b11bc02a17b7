import { execFile } from 'node:child_process'
import { createServer } from 'node:https'
import { tmpdir } from 'node:os'
import type { SecureContext } from 'node:tls'
import type { TrustFiles } from './bundle.ts'
import type { Check } from './check.ts'
import { sandboxEnvironment } from './environment.ts'
import { findProgram } from './mounts.ts'

interface Client {
  readonly name: string
  /** Arguments for one request of the URL. */
  args(url: string): readonly string[]
  /** Why a failure is a known gap outside of `octroi run`, which lays the bundle over the distribution's. */
  readonly gap?: string
}

const python = 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1])'
const ruby = 'require "net/http"; Net::HTTP.get_response(URI(ARGV[0]))'

const clients: readonly Client[] = [
  { name: 'curl', args: (url) => ['-s', url] },
  { name: 'git', args: (url) => ['ls-remote', url] },
  { name: 'python3', args: (url) => ['-c', python, url] },
  { name: 'node', args: (url) => ['-e', `fetch(${JSON.stringify(url)}).catch(() => process.exit(1))`] },
  { name: 'ruby', args: (url) => ['-e', ruby, url] },
  { name: 'deno', args: (url) => ['eval', `await fetch(${JSON.stringify(url)})`] },
  { name: 'bun', args: (url) => ['-e', `await fetch(${JSON.stringify(url)})`] },
  {
    name: 'wget',
    args: (url) => ['-q', '-O', '-', url],
    gap: 'wget reads no variable, only the bundle of the system',
  },
]

/**
 * Lets every client that is installed ask a server with a leaf of the broker's CA, with the variables of a sandbox but
 * no proxy: one that gets to send its request trusts the broker. Loopback only.
 */
export async function checkClients(options: {
  readonly trust: TrustFiles
  readonly hostPath: string
  /** TLS context with a leaf for `localhost`. */
  readonly context: SecureContext
}): Promise<Check[]> {
  const { trust, hostPath, context } = options
  let requests = 0
  const server = createServer({ SNICallback: (_, done) => done(null, context) }, (_, response) => {
    requests += 1
    response.writeHead(404, { 'content-length': 0, connection: 'close' }).end()
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  const port = typeof address === 'object' && address !== null ? address.port : 0
  const env = { ...trustVariables(trust), PATH: hostPath, HOME: tmpdir(), GIT_TERMINAL_PROMPT: '0' }
  const checks: Check[] = []
  for (const client of clients) {
    const program = findProgram(client.name, hostPath)
    if (program === undefined) continue
    const before = requests
    const problem = await runQuietly(program, client.args(`https://localhost:${port}/`), env)
    checks.push(verdict(client, requests > before, problem))
  }
  server.closeAllConnections()
  await new Promise((resolve) => server.close(resolve))
  return checks
}

function verdict({ name, gap }: Client, trusted: boolean, problem: string): Check {
  if (trusted) return { status: 'PASS', name: `trust ${name}`, detail: 'sends a request to a leaf of the CA' }
  if (gap !== undefined) return { status: 'MISS', name: `trust ${name}`, detail: gap }
  return { status: 'FAIL', name: `trust ${name}`, detail: problem }
}

function trustVariables(trust: TrustFiles): Record<string, string> {
  const all = sandboxEnvironment({
    proxyScheme: 'http',
    proxyHost: '127.0.0.1',
    proxyPort: 1,
    login: undefined,
    bundlePath: trust.bundle,
    caPath: trust.ca,
    javaTrustStore: trust.javaTrustStore,
    aptConf: trust.aptConf,
    placeholders: [],
  })
  return Object.fromEntries(Object.entries(all).filter(([name]) => !/proxy|java/i.test(name)))
}

/** The last line of what the client complained, or an empty text. */
function runQuietly(program: string, args: readonly string[], env: Record<string, string>): Promise<string> {
  return new Promise((resolve) => {
    const child = execFile(program, args, { env, timeout: 15_000 }, (error, _, stderr) => {
      const lines = stderr.trim().split('\n')
      resolve(lines[lines.length - 1] || (error?.message ?? '').trim())
    })
    child.stdin?.end()
  })
}
