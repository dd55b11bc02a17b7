import { spawnSync } from 'node:child_process'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { gunzipSync } from 'node:zlib'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { getDefaultEnvironment, StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { describe, expect, it, onTestFinished } from 'vitest'
import { queryEvents } from '../../src/audit/query.ts'
import { installationOf } from '../../src/cli/offline.ts'
import { startTestBroker } from '../helpers/broker.ts'
import { demoKey, installed } from '../helpers/installation.ts'
import { ok, startOrigin } from '../helpers/origin.ts'
import { createTestCa } from '../helpers/test-ca.ts'

const hasBubblewrap = spawnSync('bwrap', ['--unshare-all', '--ro-bind', '/', '/', 'true']).status === 0
const checkout = join(import.meta.dirname, '../..')
const modules = join(checkout, 'node_modules')
const serverOf = (name: string): string => join(modules, '@modelcontextprotocol', name, 'dist', 'index.js')

interface Started {
  readonly client: Client
  /** Process of `octroi run`. */
  readonly pid: number
  /** What `octroi run` and the server wrote to stderr. */
  readonly stderr: () => string
}

/** Starts an MCP server as an MCP client does from its configuration: `octroi run` in front of the server's command. */
async function start(
  configPath: string,
  server: string,
  run: readonly string[],
  args: readonly string[] = [],
): Promise<Started> {
  const transport = new StdioClientTransport({
    command: process.execPath,
    args: [
      ...[join(checkout, 'bin', 'octroi.js'), 'run', '--config', configPath, '--sandbox', 'first'],
      ...['--ro', modules, ...run, '--', 'node', serverOf(server), ...args],
    ],
    env: { ...getDefaultEnvironment(), DEMO_KEY: demoKey, OCTROI_IDLE_EXIT: '1s' },
    stderr: 'pipe',
  })
  let text = ''
  transport.stderr?.on('data', (chunk: Buffer) => (text += chunk.toString()))
  const client = new Client({ name: 'octroi-test', version: '1.0.0' })
  await client.connect(transport)
  onTestFinished(() => client.close())
  return { client, pid: transport.pid ?? 0, stderr: () => text }
}

async function call(client: Client, name: string, args: Record<string, unknown>): Promise<string> {
  const result = await client.callTool({ name, arguments: args })
  return (result.content as { text?: string }[]).map(({ text = '' }) => text).join('\n')
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

async function ended(pid: number): Promise<void> {
  for (let waited = 0; isAlive(pid); waited += 50) {
    if (waited > 10_000) throw new Error(`process ${pid} still runs`)
    await sleep(50)
  }
}

describe.skipIf(!hasBubblewrap)(
  'MCP servers in octroi run (skipped without a bubblewrap that may make namespaces)',
  () => {
    it('serve an official client, several at once and no broker running, and leave no process behind', async () => {
      const place = installed()
      const output = join(place.folder, 'out')
      const input = join(place.folder, 'in')
      mkdirSync(input)
      writeFileSync(join(input, 'given.txt'), 'as given')
      const folders = ['/workspace/input', '/workspace/output']
      const [everything, files, another] = await Promise.all([
        start(place.configPath, 'server-everything', []),
        start(place.configPath, 'server-filesystem', ['--input', input, '--output', output], folders),
        start(place.configPath, 'server-everything', []),
      ])
      const { remote } = installationOf(place.configPath, { DEMO_KEY: demoKey })
      const status = await remote.status()
      expect(status).toMatchObject({ private: true, runs: 3 })

      expect((await everything.client.listTools()).tools.map(({ name }) => name)).toContain('echo')
      expect(await call(everything.client, 'echo', { message: 'hello' })).toBe('Echo: hello')
      expect(await call(another.client, 'get-sum', { a: 2, b: 3 })).toContain('5')
      const env = await call(everything.client, 'get-env', {})
      expect(env).toContain('"HTTPS_PROXY": "http://127.0.0.1:3128"')
      expect(env).toMatch(/"DEMO_KEY": "\S*octroi/)
      expect(env).not.toContain(demoKey)

      expect((await files.client.listTools()).tools.map(({ name }) => name)).toContain('write_file')
      expect(await call(files.client, 'read_text_file', { path: '/workspace/input/given.txt' })).toBe(
        'as given',
      )
      await call(files.client, 'write_file', { path: '/workspace/output/made.txt', content: 'made inside' })
      expect(readFileSync(join(output, 'made.txt'), 'utf8')).toBe('made inside')
      const refused = await files.client.callTool({
        name: 'read_text_file',
        arguments: { path: place.configPath },
      })
      expect(refused.isError).toBe(true)

      const runs = [everything, files, another]
      for (const { stderr } of runs) expect(stderr()).not.toMatch(/octroi:/)
      await Promise.all(runs.map(({ client }) => client.close()))
      for (const { pid } of runs) await ended(pid)
      await ended(status.pid)
      const exits = queryEvents(place.state, { kind: 'run' }).map(({ sandbox, agent, exit }) => [
        sandbox,
        agent,
        exit,
      ])
      expect(exits).toEqual(Array(3).fill(['first', 'agent-1', 0]))
    })

    it('reach what the policy allows, and read why they reach nothing else', async () => {
      const ca = await createTestCa()
      const { cert, key } = await ca.issue({ names: ['docs.good.test'] })
      const origin = await startOrigin({
        tls: { cert, key },
        onRequest: ({ socket }) => void socket.write(ok('from upstream')),
      })
      onTestFinished(() => origin.stop())
      const broker = await startTestBroker({
        files: { 'root.pem': ca.cert },
        yaml: `
resolver: { hosts: { docs.good.test: [127.0.0.1] } }
trust: { system: false, ca: [root.pem] }
sandboxes:
  first:
    agent: agent-1
    allow: [{ host: docs.good.test, ports: [${origin.port}], addresses: [127.0.0.0/8] }]
`,
      })
      onTestFinished(() => broker.stop())
      const { client } = await start(join(broker.folder, 'octroi.yaml'), 'server-everything', [])
      const fetched = async (data: string) => {
        const result = await client.callTool({
          name: 'gzip-file-as-resource',
          arguments: { name: 'x.gz', data, outputType: 'resource' },
        })
        const [first] = result.content as { text?: string; resource?: { blob: string } }[]
        const blob = first?.resource?.blob
        return blob === undefined ? (first?.text ?? '') : gunzipSync(Buffer.from(blob, 'base64')).toString()
      }
      expect(await fetched(`https://docs.good.test:${origin.port}/x`)).toBe('from upstream')
      for (const url of ['https://denied.example/', 'http://169.254.169.254/latest/meta-data/'])
        expect(await fetched(url)).not.toContain('from upstream')
      await client.close()
      const events = await broker.events((all) => all.some(({ kind }) => kind === 'run'))
      const rows = events.map(({ agent, sandbox, kind, verdict, host, reason }) => [
        agent,
        sandbox,
        kind,
        verdict,
        host,
        reason,
      ])
      expect(rows).toEqual([
        ['agent-1', 'first', 'exchange', 'allow', 'docs.good.test', 'rule'],
        ['agent-1', 'first', 'exchange', 'deny', 'denied.example', 'host_denied'],
        ['agent-1', 'first', 'exchange', 'deny', '169.254.169.254', 'metadata_denied'],
        ['agent-1', 'first', 'run', undefined, undefined, undefined],
      ])
    })
  },
)
