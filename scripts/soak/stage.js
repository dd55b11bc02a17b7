import { execFileSync, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { packageDir } from '../../bin/node24.js'
import { createTestCa } from '../../test/helpers/test-ca.ts'
import { rawClient } from '../../test/helpers/raw-client.ts'
import { startUpstream } from './upstream.js'

/** Sandboxes by what their requests are like, so that the log can be counted by it. */
export const kinds = /** @type {const} */ (['good', 'hostile', 'aborted'])

/** @typedef {typeof kinds[number]} Kind */

/**
 * @typedef {object} Stage
 * @property {string} stateFolder
 * @property {number} port
 * @property {Awaited<ReturnType<typeof startUpstream>>} upstream
 * @property {Readonly<Record<Kind, string>>} tokens
 * @property {string} placeholder of the access `api`, in the sandbox `good`
 * @property {string} brokerCa
 * @property {string} upstreamCa
 * @property {import('node:child_process').ChildProcess} broker
 * @property {() => Promise<number>} stop ends the broker as an operator does; its exit code
 * @property {() => Promise<void>} clear
 */

/** A broker in a process of its own, and upstreams in this one. @returns {Promise<Stage>} */
export async function setStage() {
  const folder = await mkdtemp(join(tmpdir(), 'octroi-soak-'))
  const secret = randomBytes(24).toString('base64url')
  const ca = await createTestCa()
  const names = ['api.soak.test', 'free.soak.test', 'spliced.soak.test']
  const upstream = await startUpstream(await ca.issue({ names }), secret)
  const [port, admin] = [await freePort(), await freePort()]
  const tokens = { good: newToken(), hostile: newToken(), aborted: newToken() }
  const configFile = join(folder, 'octroi.yaml')
  await writeFile(join(folder, 'root.pem'), ca.cert)
  await writeFile(configFile, configuration({ port, admin, tls: upstream.tls, plain: upstream.plain }), {
    mode: 0o600,
  })
  const env = {
    PATH: process.env['PATH'] ?? '',
    HOME: folder,
    KEY: secret,
    ...Object.fromEntries(kinds.map((kind) => [`TOKEN_${kind.toUpperCase()}`, tokens[kind]])),
  }
  const main = join(packageDir, 'src', 'main.ts')
  /** @param {string[]} args */
  const octroi = (...args) =>
    execFileSync(process.execPath, [main, ...args, '--config', configFile], {
      ...{ cwd: folder, env, encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] },
    })
  const hook = pathToFileURL(join(import.meta.dirname, 'hook.js')).href
  const broker = spawn(process.execPath, ['--import', hook, main, 'serve', '--config', configFile], {
    cwd: folder,
    env,
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  })
  /** @type {Promise<number>} */
  const ended = new Promise((resolve) => broker.once('exit', (code) => resolve(code ?? 1)))
  await answering(port, broker)
  return {
    stateFolder: join(folder, 'data'),
    port,
    upstream,
    tokens,
    placeholder: JSON.parse(octroi('env', '--sandbox', 'good', '--format', 'json')).API_KEY,
    brokerCa: octroi('ca', 'show'),
    upstreamCa: ca.cert,
    broker,
    stop() {
      broker.kill('SIGTERM')
      return ended
    },
    async clear() {
      broker.kill('SIGKILL')
      await ended
      upstream.close()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

const newToken = () => randomBytes(24).toString('base64url')

/** @param {{ port: number, admin: number, tls: number, plain: number }} ports */
function configuration({ port, admin, tls, plain }) {
  const loopback = 'addresses: [127.0.0.0/8]'
  const sandboxes = kinds.map(
    (kind) => `
  ${kind}:
    agent: ${kind}
    identity: [{ token: { env: TOKEN_${kind.toUpperCase()} } }]
    access: [api]
    allow:
      - { host: free.soak.test, ports: [${tls}], ${loopback} }
      - { host: spliced.soak.test, ports: [${tls}], tls: splice, ${loopback} }
      - { host: plain.soak.test, scheme: http, ports: [${plain}], paths: ["/**"], ${loopback} }
    deny: [{ host: free.soak.test, ports: [${tls}], paths: ["/denied/**"] }]`,
  )
  return `
version: 1
state: data
listen: { proxy: 127.0.0.1:${port}, admin: 127.0.0.1:${admin} }
resolver: { hosts: { api.soak.test: [127.0.0.1], free.soak.test: [127.0.0.1], spliced.soak.test: [127.0.0.1], plain.soak.test: [127.0.0.1] } }
trust: { system: false, ca: [root.pem] }
credentials: { key: { issuer: static, value: { env: KEY } } }
access:
  api:
    credential: key
    destinations: [{ host: api.soak.test, port: ${tls}, ${loopback} }]
    env: API_KEY
sandboxes:${sandboxes.join('')}
`
}

/** @param {number} port @param {import('node:child_process').ChildProcess} broker */
async function answering(port, broker) {
  for (let tries = 0; tries < 400; tries++) {
    const client = await rawClient(port).catch(() => undefined)
    client?.destroy()
    if (client !== undefined) return
    if (broker.exitCode !== null) break
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  throw new TypeError('the broker did not start')
}

/** @returns {Promise<number>} */
function freePort() {
  return new Promise((resolve, reject) => {
    const server = createServer()
    server.once('error', reject)
    server.listen(0, '127.0.0.1', () => {
      const address = server.address()
      server.close(() => resolve(typeof address === 'object' ? (address?.port ?? 0) : 0))
    })
  })
}
