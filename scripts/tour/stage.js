import { spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { lookup } from 'node:dns/promises'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { connect, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { judge } from '../../src/policy/address.ts'
import { hostOf, registryHosts } from '../../src/policy/registries/catalogue.ts'
import { makeAuthority } from './authority.js'
import { standInPackage, startUpstream } from './upstream.js'

/** Names below `.test` belong to nobody (RFC 6761 section 6.2), so a fixed answer takes nothing from anyone. */
const apiHost = 'api.tour.test'
const otherHost = 'other.tour.test'

/**
 * @typedef {object} Stage
 * @property {string} folder temporary; holds the configuration, the state and the trust files
 * @property {string} configFile
 * @property {string} configText
 * @property {{ proxy: number, admin: number, upstream: number }} ports
 * @property {string} apiKey what the upstream is to get, and nobody else
 * @property {{ host: string, install: string, explanation: string }} registry what `npm install` is told
 * @property {boolean} isIsolated can `octroi run` isolate here?
 * @property {Awaited<ReturnType<typeof startUpstream>>} upstream
 * @property {() => Promise<void>} clear
 */

/**
 * Makes everything that the tour needs but the broker: a folder, a local upstream with a CA of its own, a configuration.
 * @returns {Promise<Stage>}
 */
export async function setStage() {
  const folder = await mkdtemp(join(tmpdir(), 'octroi-tour-'))
  const { ca, ...identity } = await makeAuthority([apiHost, otherHost])
  const upstream = await startUpstream(identity)
  const [proxy, admin] = [await freePort(), await freePort()]
  const ports = { proxy, admin, upstream: upstream.port }
  const registry = await findRegistry(upstream.port)
  const configText = configuration(registry.rule, ports)
  const configFile = join(folder, 'octroi.yaml')
  await writeFile(join(folder, 'upstream-ca.pem'), ca)
  await writeFile(configFile, configText)
  return {
    folder,
    configFile,
    configText,
    ports,
    apiKey: `key_${randomBytes(24).toString('base64url')}`,
    registry,
    isIsolated: spawnSync('bwrap', ['--unshare-all', '--ro-bind', '/', '/', 'true']).status === 0,
    upstream,
    async clear() {
      upstream.close()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

/**
 * The npm registry as this machine reaches it. Some networks answer its name with a mirror at an address that is not
 * public: the guard refuses that until the rule names the address, so the tour does what an operator would do. Where
 * nothing answers, the local upstream stands in.
 * @param {number} standInPort
 */
async function findRegistry(standInPort) {
  const host = registryHosts('npm').map(({ labels }) => hostOf(labels))[0] ?? ''
  const addresses = await lookup(host, { all: true }).then(
    (found) => found.map(({ address }) => address),
    () => [],
  )
  const [first] = addresses
  if (first === undefined || !(await accepts(first))) {
    return {
      host,
      rule: `{ host: ${otherHost}, ports: [${standInPort}], methods: [GET], addresses: [127.0.0.1/32] }`,
      install: `--registry https://${otherHost}:${standInPort}/registry ${standInPackage}`,
      explanation:
        'The npm registry did not answer here, so a local stand-in with one package took its place.',
    }
  }
  const reserved = addresses.filter((address) => !judge(address, []).allowed)
  const ranges = reserved.map((address) => `"${address}/${address.includes(':') ? 128 : 32}"`).join(', ')
  return {
    host,
    rule: `{ registry: npm, mode: install${ranges === '' ? '' : `, addresses: [${ranges}]`} }`,
    install: 'is-number',
    explanation:
      ranges === ''
        ? ''
        : 'On the machine of this recording the name of the npm registry resolves to an address that is not public, so ' +
          'the rule names it in `addresses`; elsewhere the rule needs no such key.',
  }
}

/** @param {string} rule @param {Stage['ports']} ports */
const configuration = (rule, { proxy, admin, upstream }) => `version: 1
state: data
listen: { proxy: 127.0.0.1:${proxy}, admin: 127.0.0.1:${admin} }

# The upstream of the tour: a server on this machine with a CA of its own, under names that nobody has.
trust: { ca: [upstream-ca.pem] }
resolver: { hosts: { ${apiHost}: [127.0.0.1], ${otherHost}: [127.0.0.1] } }

credentials:
  tour: { issuer: static, value: { secret: tour } }

access:
  api:
    credential: tour
    destinations:
      - { host: ${apiHost}, port: ${upstream}, methods: [GET], paths: [/echo/**], addresses: [127.0.0.1/32] }
    slot: { header: authorization, scheme: Bearer }
    env: API_TOKEN

sandboxes:
  demo:
    agent: demo-agent
    allow:
      - ${rule}
  caller:
    agent: api-agent
    access: [api]
    allow:
      - { host: ${otherHost}, ports: [${upstream}], addresses: [127.0.0.1/32] }
  tools:
    agent: mcp-agent
    access: [api]
`

/** @param {string} address */
function accepts(address) {
  return new Promise((resolve) => {
    const socket = connect({ host: address, port: 443, timeout: 3_000 })
    /** @param {boolean} result */
    const end = (result) => {
      socket.destroy()
      resolve(result)
    }
    socket.once('connect', () => end(true))
    socket.once('timeout', () => end(false))
    socket.once('error', () => end(false))
  })
}

/** @returns {Promise<number>} */
function freePort() {
  return new Promise((resolve, reject) => {
    const server = createServer().once('error', reject)
    server.listen(0, '127.0.0.1', () => {
      const address = server.address()
      server.close(() => resolve(typeof address === 'object' && address !== null ? address.port : 0))
    })
  })
}
