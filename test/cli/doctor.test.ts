import { spawnSync } from 'node:child_process'
import { chmod, mkdir, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { createSecureContext } from 'node:tls'
import { gzipSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { registerDoctor } from '../../src/cli/doctor.ts'
import type { HostFacts, InsideFacts } from '../../src/cli/doctor.ts'
import { runProgram } from '../../src/cli/program.ts'
import { OperatorError } from '../../src/core/errors.ts'
import type { Grant } from '../../src/handles/model.ts'
import { shapePresets } from '../../src/handles/shapes.ts'
import { writeTrustFiles } from '../../src/sandbox/bundle.ts'
import type { Check } from '../../src/sandbox/check.ts'
import { fakeBroker } from '../helpers/fake-broker.ts'
import type { FakeBrokerOptions } from '../helpers/fake-broker.ts'
import { memoryIo } from '../helpers/memory-io.ts'
import { stateFolder } from '../helpers/state-folder.ts'
import { createTestCa } from '../helpers/test-ca.ts'

const path = process.env['PATH'] ?? ''
const hasBubblewrap = spawnSync('bwrap', ['--unshare-all', '--ro-bind', '/', '/', 'true']).status === 0
const ca = await createTestCa()
const placeholder = 'ghp_octroi0123456789ABCDEFGHIJKLMN'

const grant: Grant = {
  access: {
    name: 'api',
    credential: 'api',
    destinations: [{ access: 'api', host: 'api.good.test', port: 443, addresses: [] }],
    slot: { kind: 'header', name: 'authorization', scheme: 'Bearer' },
    shape: shapePresets.github,
    env: undefined,
    foreign: 'refuse',
  },
  handle: {
    id: 'h1',
    placeholder,
    sandboxId: 's1',
    sandbox: 's1',
    access: 'api',
    createdAt: 0,
    revokedAt: undefined,
    expiresAt: undefined,
  },
}

async function contextFor(name: string) {
  const issued = await ca.issue({ names: [name] })
  return createSecureContext({ cert: issued.chain, key: issued.key })
}
const contexts = {
  'free.good.test': await contextFor('free.good.test'),
  'api.good.test': await contextFor('api.good.test'),
}

const notAsked = () => Promise.reject(new TypeError('not part of this test'))

/** A broker that refuses everything but the two tunnels, in which it does as the options say. */
async function inside(broker: Partial<FakeBrokerOptions>, args: readonly string[] = [], freePort = 443) {
  const folder = stateFolder()
  const trust = await writeTrustFiles({ folder: join(folder, 'certs'), caPem: ca.cert })
  const fake = await fakeBroker({
    socketPath: join(folder, 's'),
    answer: () => '403 octroi host_denied id=1',
    tunnel: (host) => (host === 'free.good.test' || host === 'api.good.test' ? contexts[host] : undefined),
    ...broker,
  })
  const ended: number[] = []
  const facts: InsideFacts = {
    grants: [grant],
    freeHost: { host: 'free.good.test', port: freePort },
    brokerPorts: [],
  }
  const register = registerDoctor({
    host: notAsked,
    inside: () => Promise.resolve(facts),
    firstSandbox: () => Promise.resolve('coder'),
    run: {
      open: () =>
        Promise.resolve({
          socketPath: fake.socketPath,
          trust,
          placeholders: [],
          protectedPaths: [],
          ended: (exit) => Promise.resolve(void ended.push(exit)),
          close: () => Promise.resolve(),
        }),
    },
  })
  const { io, out } = memoryIo({ env: { PATH: path } })
  const argv = ['--config', '/c.yaml', 'doctor', '--inside', '--sandbox', 's1', '--json', ...args]
  try {
    const code = await runProgram(argv, { io, groups: [register] })
    const checks = out.map((line) => JSON.parse(line) as Check)
    return { code, checks, ended, of: (name: string) => checks.find((check) => check.name === name)?.status }
  } finally {
    await fake.close()
  }
}

const http = (status: string, body: string | Buffer = '') =>
  Buffer.concat([
    Buffer.from(`HTTP/1.1 ${status}\r\ncontent-length: ${body.length}\r\nconnection: close\r\n\r\n`),
    Buffer.from(body),
  ])

/** An upstream that returns the request in the form of its path, with `credential` where the placeholder was sent. */
function reflecting(credential: string) {
  return (head: string) => {
    if (head.includes('Host: free.good.test')) return http('403 octroi handle_wrong_destination')
    const body = head.replaceAll(placeholder, credential)
    if (head.startsWith('GET /base64')) return http('200 OK', Buffer.from(body).toString('base64'))
    return http('200 OK', head.startsWith('GET /gzip') ? gzipSync(body) : body)
  }
}

const reflect = ['--reflect', 'https://api.good.test/{form}']

describe.skipIf(!hasBubblewrap)('octroi doctor --inside (skipped without bubblewrap)', () => {
  it('passes when everything is refused and credentials come back as placeholders', async () => {
    const { code, checks, ended } = await inside({ inTunnel: reflecting(placeholder) }, reflect)
    expect(checks.filter(({ status }) => status !== 'PASS')).toEqual([])
    expect(checks.map(({ name }) => name)).toEqual([
      'broker',
      'denied-host',
      'direct-tcp',
      'direct-dns',
      ...[
        '169.254.169.254',
        '2852039166',
        '0xa9fea9fe',
        '0251.0376.0251.0376',
        '169.254.43518',
        '[::ffff:169.254.169.254]',
        '[::ffff:a9fe:a9fe]',
        '[fd00:ec2::254]',
        'metadata.google.internal',
        '100.100.100.200',
      ].map((spelling) => `metadata ${spelling}`),
      'host canary',
      'placeholder-wrong-host',
      'reflected-raw',
      'reflected-base64',
      'reflected-gzip',
      'canary on the host',
    ])
    expect([code, ended]).toEqual([0, [0]])
  })

  it('fails when a reflected credential comes back', async () => {
    const { code, of } = await inside({ inTunnel: reflecting('the-real-credential') }, reflect)
    expect(['raw', 'base64', 'gzip'].map((form) => of(`reflected-${form}`))).toEqual(['FAIL', 'FAIL', 'FAIL'])
    expect(code).toBe(1)
  })

  it('passes when a marker comes back, as it does inside base64 where a placeholder does not fit', async () => {
    const { of } = await inside({ inTunnel: reflecting('[octroi:redacted].') }, reflect)
    expect(['raw', 'base64', 'gzip'].map((form) => of(`reflected-${form}`))).toEqual(['PASS', 'PASS', 'PASS'])
  })

  it('names the port of the wrong host in its Host field, or the broker would refuse that first', async () => {
    const heads: string[] = []
    const inTunnel = (head: string) => {
      heads.push(head)
      return http('403 octroi handle_wrong_destination')
    }
    for (const port of [443, 8443]) {
      const { of } = await inside({ inTunnel }, [], port)
      expect(of('placeholder-wrong-host')).toBe('PASS')
    }
    const fields = heads.map((head) => /Host: (\S+)/.exec(head)?.[1])
    expect(fields).toEqual(['free.good.test', 'free.good.test:8443'])
  })

  it('fails when metadata is answered, or only fails upstream', async () => {
    const answered = await inside({
      answer: (line) => (line.includes('2852039166') ? '200 OK' : '403 octroi host_denied'),
    })
    expect(answered.of('metadata 2852039166')).toBe('FAIL')
    expect(answered.of('metadata 169.254.169.254')).toBe('PASS')
    const tried = await inside({
      answer: (line) =>
        line.includes('metadata.google') ? '502 octroi dns_failed' : '403 octroi host_denied',
    })
    expect(tried.of('metadata metadata.google.internal')).toBe('FAIL')
    expect(tried.code).toBe(1)
  })

  it('fails when a placeholder is passed on to another host', async () => {
    const { of, code } = await inside({ inTunnel: () => http('200 OK') })
    expect(of('placeholder-wrong-host')).toBe('FAIL')
    expect(code).toBe(1)
  })

  it('fails when the broker gives access to the loopback of the host', async () => {
    const open = await inside({
      answer: (line) => (line.startsWith('CONNECT 127.0.0.1:') ? '200 OK' : '403 octroi host_denied'),
    })
    expect(open.of('host canary')).toBe('FAIL')
  })

  it('skips with a reason what it cannot try, and misses what proves nothing', async () => {
    const { checks, of, code } = await inside({ inTunnel: () => http('403 octroi handle_wrong_destination') })
    expect(checks.find(({ name }) => name === 'reflected-raw')?.detail).toContain('--reflect')
    expect([of('reflected-raw'), of('reflected-gzip'), code]).toEqual(['SKIP', 'SKIP', 0])
    const other = await inside({ inTunnel: reflecting(placeholder) }, [
      '--reflect',
      'https://api.good.test/raw',
    ])
    expect([other.of('reflected-raw'), other.of('reflected-base64')]).toEqual(['PASS', 'SKIP'])
    const deaf = await inside({ inTunnel: () => http('200 OK', 'hello') }, reflect)
    expect(deaf.of('reflected-raw')).toBe('MISS')
  })

  it('stops when there is no broker behind the socket', async () => {
    const { checks, code } = await inside({ answer: () => '407 Proxy authentication required' })
    expect(checks[0]).toMatchObject({ status: 'FAIL', name: 'broker' })
    expect(checks.map(({ name }) => name)).not.toContain('denied-host')
    expect(code).toBe(1)
  })
})

async function outside(spoil: (facts: HostFacts) => Promise<void> = () => Promise.resolve()) {
  const folder = stateFolder()
  const stateDir = join(folder, 'state')
  await mkdir(stateDir, { mode: 0o700 })
  await writeFile(join(stateDir, 'seal.key'), '', { mode: 0o600 })
  const listener = createServer()
  await new Promise<void>((resolve) => listener.listen(0, '127.0.0.1', resolve))
  const address = listener.address()
  const port = typeof address === 'object' && address !== null ? address.port : 0
  const facts: HostFacts = {
    stateFolder: stateDir,
    trust: await writeTrustFiles({ folder: join(folder, 'certs'), caPem: ca.cert }),
    listeners: [{ name: 'proxy', at: { host: '127.0.0.1', port } }],
    context: await contextFor('localhost'),
    now: Date.now(),
  }
  await spoil(facts)
  const { io, out } = memoryIo({ env: { PATH: path } })
  const register = registerDoctor({
    host: () => Promise.resolve(facts),
    inside: notAsked,
    firstSandbox: notAsked,
    run: { open: notAsked },
  })
  const code = await runProgram(['--config', '/c.yaml', 'doctor'], { io, groups: [register] })
  listener.close()
  const find = (name: string) => out.find((line) => line.slice(6).startsWith(name)) ?? ''
  return { code, out, find }
}

describe('octroi doctor', () => {
  it('passes for an installation in order, and lets the installed clients prove their trust', async () => {
    const { code, out, find } = await outside()
    expect(out.filter((line) => line.startsWith('FAIL'))).toEqual([])
    expect(code).toBe(0)
    for (const name of ['node', 'state folder', 'trust files', 'ca', 'listener proxy']) {
      expect(find(name)).toMatch(/^PASS/)
    }
    expect(find('trust node')).toMatch(/^PASS/)
  })

  it.each([
    ['state folder', 'mode 644', (facts: HostFacts) => chmod(join(facts.stateFolder, 'seal.key'), 0o644)],
    ['trust files', 'is missing', (facts: HostFacts) => rm(facts.trust.bundle)],
    ['ca', 'does not hold the CA', (facts: HostFacts) => writeFile(facts.trust.bundle, '')],
  ])('fails when the %s is not in order', async (name, detail, spoil) => {
    const { code, find } = await outside(spoil)
    expect(find(name)).toMatch(/^FAIL/)
    expect(find(name)).toContain(detail)
    expect(find('trust of clients')).toMatch(name === 'state folder' ? /^$/ : /^SKIP/)
    expect(code).toBe(1)
  })

  it('takes --sandbox with --inside only, which tests the first of the configuration else', async () => {
    const { io, err } = memoryIo()
    const asked: string[] = []
    const groups = (first: string | undefined) => [
      registerDoctor({
        host: notAsked,
        inside: (_, sandbox) => {
          asked.push(sandbox)
          return Promise.reject(new OperatorError('far enough'))
        },
        firstSandbox: () => Promise.resolve(first),
        run: { open: notAsked },
      }),
    ]
    const doctor = (first: string | undefined, ...args: string[]) =>
      runProgram(['--config', '/c', 'doctor', ...args], { io, groups: groups(first) })
    expect(await doctor('coder', '--sandbox', 's')).toBe(2)
    expect(await doctor(undefined, '--inside')).toBe(2)
    expect(err.join('\n')).toContain('the configuration has no sandbox; name one with --sandbox')
    expect(await doctor('coder', '--inside')).toBe(1)
    expect(await doctor('coder', '--inside', '--sandbox', 'other')).toBe(1)
    expect(asked).toEqual(['coder', 'other'])
    expect(err).toContain('testing from inside the sandbox coder')
  })
})
