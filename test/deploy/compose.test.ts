import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { loadConfig } from '../../src/config/load.ts'
import { sandboxEnvironment } from '../../src/sandbox/environment.ts'

interface Service {
  readonly build?: string
  readonly image?: string
  readonly user?: string
  readonly read_only?: boolean
  readonly cap_drop?: string[]
  readonly security_opt?: string[]
  readonly healthcheck?: { readonly test: string[] }
  readonly depends_on?: Record<string, { readonly condition: string }>
  readonly networks: Record<string, { readonly ipv4_address?: string }>
  readonly volumes?: string[]
  readonly environment?: Record<string, string>
  readonly command?: string[]
  readonly dns?: string[]
}

interface Network {
  readonly internal?: boolean
  readonly driver_opts?: Record<string, string>
  readonly ipam?: { readonly config: { readonly subnet: string }[] }
}

interface Compose {
  readonly services: { readonly broker: Service; readonly mcp: Service }
  readonly networks: { readonly egress: Network; readonly sandboxes: Network }
  readonly volumes: Record<string, object>
}

const root = fileURLToPath(new URL('../../', import.meta.url))
const text = (path: string): string => readFileSync(`${root}${path}`, 'utf8')
const compose = parse(text('docker-compose.yml'), { merge: true }) as Compose
const { broker, mcp } = compose.services
const services = Object.entries(compose.services)
const loaded = loadConfig(`${root}config/compose.yaml`, { env: {}, now: Date.now() })
if (!loaded.ok) throw new TypeError(JSON.stringify(loaded.problems.map(({ message }) => message)))
const policy = loaded.config

describe('docker-compose.yml', () => {
  it('puts the sandbox on an internal network alone, with no address of the host on it', () => {
    expect(Object.keys(mcp.networks)).toEqual(['sandboxes'])
    expect(compose.networks.sandboxes.internal).toBe(true)
    expect(compose.networks.sandboxes.driver_opts).toEqual({
      'com.docker.network.bridge.inhibit_ipv4': 'true',
    })
  })

  it('makes the broker the only service on both networks', () => {
    const both = services.filter(([, service]) => Object.keys(service.networks).length > 1)
    expect(both.map(([name]) => name)).toEqual(['broker'])
    expect(Object.keys(broker.networks).toSorted()).toEqual(['egress', 'sandboxes'])
    expect(compose.networks.egress.internal ?? false).toBe(false)
  })

  it('keeps state from the sandbox and lets it only read the certificates', () => {
    expect(mcp.volumes).toEqual(['certs:/certs:ro'])
    expect(broker.volumes).toContain('state:/var/lib/octroi')
  })

  it.each(services)('gives %s no privileges, no ports and no name space of the host', (_, service) => {
    expect(service.read_only).toBe(true)
    expect(service.cap_drop).toEqual(['ALL'])
    expect(service.security_opt).toContain('no-new-privileges:true')
    expect(service.user).toMatch(/^[1-9]\d*:[1-9]\d*$/)
    const dangerous = ['privileged', 'cap_add', 'devices', 'network_mode', 'pid', 'ipc', 'ports', 'expose']
    expect(Object.keys(service).filter((key) => dangerous.includes(key))).toEqual([])
  })

  it.each(services)('mounts no socket of the container engine into %s', (_, service) => {
    expect((service.volumes ?? []).filter((volume) => volume.includes('docker.sock'))).toEqual([])
  })

  it('starts the sandbox when the broker says that it is well', () => {
    expect(mcp.depends_on?.['broker']).toEqual({ condition: 'service_healthy' })
    expect(broker.healthcheck?.test.join(' ')).toContain(
      `http://${policy.listen.admin.host}:${policy.listen.admin.port}/healthz`,
    )
  })

  it('runs a real MCP server, of the version that the tests use', () => {
    const { devDependencies } = JSON.parse(text('package.json')) as {
      devDependencies: Record<string, string>
    }
    const name = '@modelcontextprotocol/server-filesystem'
    expect(mcp.command).toContain(`${name}@${devDependencies[name]}`)
  })

  it('takes name lookups away from the sandbox', () => {
    expect(mcp.dns).toEqual(['127.0.0.1'])
  })

  it('sets the variables that octroi env prints for it, and no secret', () => {
    const printed = sandboxEnvironment({
      proxyScheme: 'http',
      proxyHost: broker.networks['sandboxes']?.ipv4_address ?? '',
      proxyPort: 18090,
      login: undefined,
      bundlePath: '/certs/octroi-bundle.pem',
      caPath: '/certs/octroi-ca.pem',
      javaTrustStore: undefined,
      aptConf: undefined,
      placeholders: [],
    })
    const { HOME, npm_config_update_notifier, ...set } = mcp.environment ?? {}
    expect({ HOME, npm_config_update_notifier }).toEqual({
      HOME: '/tmp',
      npm_config_update_notifier: 'false',
    })
    expect(printed).toMatchObject(set)
    const needed = Object.keys(printed).filter((name) => /proxy$|^NODE_|^npm_/i.test(name))
    expect(needed.filter((name) => !/grpc/i.test(name) && !(name in set))).toEqual([])
  })

  const found = spawnSync('docker-compose', ['version']).error === undefined
  it.skipIf(!found)(`is valid to docker-compose${found ? '' : ' (docker-compose is not installed)'}`, () => {
    const { status, stderr, stdout } = spawnSync(
      'docker-compose',
      ['-f', `${root}docker-compose.yml`, 'config'],
      {
        encoding: 'utf8',
      },
    )
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
    expect(Object.keys((parse(stdout) as Compose).services)).toEqual(['broker', 'mcp'])
  })
})

describe('config/compose.yaml', () => {
  it('is a configuration without warnings', () => {
    expect(loaded.warnings).toEqual([])
  })

  it('knows the sandbox by the addresses that docker-compose.yml gives', () => {
    const own = broker.networks['sandboxes']?.ipv4_address
    expect(policy.sandboxes.get('mcp')?.identity).toMatchObject([
      [
        { kind: 'port', port: 18090 },
        { kind: 'source', range: { text: `${mcp.networks['sandboxes']?.ipv4_address}/32` } },
      ],
    ])
    expect(policy.listen.proxy).toContainEqual({
      kind: 'tcp',
      host: own,
      port: 18090,
      tls: false,
      identity: true,
    })
    expect(mcp.environment?.['HTTPS_PROXY']).toBe(`http://${own}:18090`)
  })

  it('allows the sandbox one registry and nothing else', () => {
    expect(policy.sandboxes.get('mcp')?.allow).toMatchObject([{ kind: 'registry', registry: 'npm' }])
    expect([...policy.sandboxes.keys()]).toEqual(['mcp'])
  })

  it('keeps state where the image made a folder for it that is mounted nowhere else', () => {
    const mounts = services.flatMap(([name, { volumes = [] }]) =>
      volumes.map((volume) => `${name} ${volume}`),
    )
    expect(mounts.filter((mount) => mount.includes(`state:`))).toEqual([`broker state:${policy.stateFolder}`])
    expect(text('Dockerfile')).toContain(`-m 0700 ${policy.stateFolder}`)
  })

  it('binds the admin interface and the operator’s proxy to loopback only', () => {
    const shared = policy.listen.proxy.filter(({ identity }) => !identity)
    expect(shared).toMatchObject([{ host: '127.0.0.1', port: 18080 }])
    expect(policy.listen.admin).toEqual({ host: '127.0.0.1', port: 18081 })
  })
})

describe('Dockerfile', () => {
  const lines = text('Dockerfile').split('\n')

  it('ends as a user that is not root', () => {
    expect(lines.filter((line) => line.startsWith('USER ')).at(-1)).toBe(`USER ${broker.user}`)
  })

  it('copies nothing that .dockerignore leaves out', () => {
    const kept = new Set(
      text('.dockerignore')
        .split('\n')
        .filter((line) => line.startsWith('!'))
        .map((line) => line.slice(1)),
    )
    const copied = lines
      .filter((line) => line.startsWith('COPY ') && !line.includes('--from='))
      .flatMap((line) => line.split(/\s+/).slice(1, -1))
    expect(copied.length).toBeGreaterThan(0)
    expect(copied.filter((path) => !kept.has(path))).toEqual([])
  })

  it('takes the major of Node that the broker needs', () => {
    expect(text('Dockerfile')).toMatch(/^ARG NODE_IMAGE=node:24-/m)
  })
})
