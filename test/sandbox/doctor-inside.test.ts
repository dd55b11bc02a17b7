import { spawnSync } from 'node:child_process'
import { gzipSync } from 'node:zlib'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runCli } from '../../src/cli/wiring.ts'
import type { Check } from '../../src/sandbox/check.ts'
import { startTestBroker } from '../helpers/broker.ts'
import type { TestBroker } from '../helpers/broker.ts'
import { memoryIo } from '../helpers/memory-io.ts'
import { startOrigin } from '../helpers/origin.ts'
import type { OnRequest, Origin } from '../helpers/origin.ts'
import { createTestCa } from '../helpers/test-ca.ts'

const hasBubblewrap = spawnSync('bwrap', ['--unshare-all', '--ro-bind', '/', '/', 'true']).status === 0
const secret = 'sk_live_9dK2mQ7xR4tV8wZ1bN6c'

/** Returns the request in the form that its path names; gzip as a coding. */
const reflecting: OnRequest = ({ head, socket }) => {
  const path = /^GET (\S+)/.exec(head)?.[1] ?? ''
  const isGzip = path.endsWith('gzip')
  const plain = path.endsWith('base64')
    ? Buffer.from(Buffer.from(head).toString('base64'))
    : Buffer.from(head)
  const body = isGzip ? gzipSync(plain) : plain
  const coding = isGzip ? 'Content-Encoding: gzip\r\n' : ''
  socket.write(`HTTP/1.1 200 OK\r\n${coding}Content-Length: ${body.length}\r\n\r\n`)
  socket.write(body)
}

describe.skipIf(!hasBubblewrap)(
  'octroi doctor --inside against a broker (skipped without bubblewrap)',
  () => {
    let origin: Origin
    let broker: TestBroker

    beforeAll(async () => {
      const ca = await createTestCa()
      const { cert, key } = await ca.issue({ names: ['api.good.test', 'docs.good.test'] })
      origin = await startOrigin({ tls: { cert, key }, onRequest: reflecting })
      broker = await startTestBroker({
        files: { 'root.pem': ca.cert },
        env: { KEY: secret },
        yaml: `
resolver: { hosts: { api.good.test: [127.0.0.1], docs.good.test: [127.0.0.1] } }
trust: { system: false, ca: [root.pem] }
credentials: { key: { issuer: static, value: { env: KEY } } }
access:
  bearer:
    credential: key
    destinations: [{ host: api.good.test, port: ${origin.port}, methods: [GET], addresses: [127.0.0.0/8] }]
    slot: { header: authorization, scheme: Bearer }
  password:
    credential: key
    destinations: [{ host: api.good.test, port: ${origin.port}, methods: [GET], addresses: [127.0.0.0/8] }]
    slot: { basic: password }
sandboxes:
  demo:
    agent: agent-1
    identity: [{ token: generated }]
    access: [bearer]
    allow: [{ host: docs.good.test, ports: [${origin.port}], addresses: [127.0.0.0/8] }]
  basic: { access: [password] }
  open: { allow: [{ host: any }] }
`,
      })
    })
    afterAll(async () => {
      await broker.stop()
      await origin.stop()
    })

    async function inside(sandbox: string, path = '/{form}') {
      const url = `https://api.good.test:${origin.port}${path}`
      const { io, out, err } = memoryIo({ env: { PATH: process.env['PATH'], KEY: secret } })
      const args = ['doctor', '--inside', '--sandbox', sandbox, '--reflect', url, '--json']
      const code = await runCli(['--config', `${broker.folder}/octroi.yaml`, ...args], io)
      return { code, err, text: out.join('\n'), checks: out.map((line) => JSON.parse(line) as Check) }
    }

    const named = (checks: readonly Check[]) => Object.fromEntries(checks.map((check) => [check.name, check]))

    it('passes every check, and the log shows what was tried', async () => {
      const before = origin.received.length
      const { code, err, text, checks } = await inside('demo')
      expect(checks.filter(({ status }) => status !== 'PASS')).toEqual([])
      expect([code, err]).toEqual([0, []])
      expect(checks.map(({ name }) => name)).toEqual([
        ...['broker', 'denied-host', 'direct-tcp', 'direct-dns'],
        ...[
          ...['169.254.169.254', '2852039166', '0xa9fea9fe', '0251.0376.0251.0376', '169.254.43518'],
          ...[
            '[::ffff:169.254.169.254]',
            '[::ffff:a9fe:a9fe]',
            '[fd00:ec2::254]',
            'metadata.google.internal',
          ],
          '100.100.100.200',
        ].map((spelling) => `metadata ${spelling}`),
        ...['host canary', 'placeholder-wrong-host', 'reflected-raw', 'reflected-base64', 'reflected-gzip'],
        'canary on the host',
      ])
      expect(text).not.toContain(secret)
      // The credential reached its upstream three times, and nothing else did with the placeholder in it.
      const received = origin.received.slice(before).join('')
      expect(received.split(`Bearer ${secret}`)).toHaveLength(4)
      expect(received).not.toContain(broker.placeholder('demo', 'bearer'))
      expect(received).not.toContain('Host: docs.good.test')
      const events = await broker.events((all) =>
        all.some(({ kind, sandbox }) => kind === 'run' && sandbox === 'demo'),
      )
      const reasons = new Set(events.filter(({ sandbox }) => sandbox === 'demo').map(({ reason }) => reason))
      expect(reasons).toEqual(
        new Set(['host_denied', 'metadata_denied', 'access', 'handle_wrong_destination', undefined]),
      )
    })

    it('passes for a Basic slot, but for base64 of it, where nothing is promised', async () => {
      const { code, checks } = await inside('basic')
      const of = named(checks)
      expect(of['placeholder-wrong-host']).toMatchObject({ status: 'SKIP' })
      expect(of['reflected-raw']).toMatchObject({ status: 'PASS' })
      expect(of['reflected-base64']).toMatchObject({
        status: 'MISS',
        detail: expect.stringContaining('two codings'),
      })
      expect(of['reflected-gzip']).toMatchObject({ status: 'PASS' })
      expect(checks.filter(({ status }) => status === 'FAIL')).toEqual([])
      expect(code).toBe(0)
    })

    it('finds a sandbox that may reach any public host no less shut in', async () => {
      const { code, checks } = await inside('open')
      const of = named(checks)
      expect(of['placeholder-wrong-host']).toMatchObject({
        status: 'SKIP',
        detail: 'this sandbox has no placeholder',
      })
      expect(of['reflected-raw']).toMatchObject({ status: 'SKIP' })
      expect(checks.filter(({ status }) => status === 'FAIL')).toEqual([])
      expect(code).toBe(0)
    })
  },
)
