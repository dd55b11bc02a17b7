import { spawn, spawnSync } from 'node:child_process'
import { mkdir, mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import type { Server } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { rootCertificates } from 'node:tls'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { OperatorError } from '../../src/core/errors.ts'
import { writeTrustFiles } from '../../src/sandbox/bundle.ts'
import type { TrustFiles } from '../../src/sandbox/bundle.ts'
import { findBubblewrap, launch } from '../../src/sandbox/launcher.ts'
import type { Launch } from '../../src/sandbox/launcher.ts'

const path = process.env['PATH'] ?? ''
const hasBubblewrap = spawnSync('bwrap', ['--unshare-all', '--ro-bind', '/', '/', 'true']).status === 0

let folder: string
let trust: TrustFiles
let broker: Server
/** First lines that the fake broker received. */
const received: string[] = []

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'octroi-launch-'))
  trust = await writeTrustFiles({ folder: join(folder, 'certs'), caPem: rootCertificates[0] ?? '' })
  broker = createServer((client) => {
    client.on('error', () => undefined)
    client.once('data', (chunk) => {
      const line = chunk.toString('latin1').split('\r\n')[0] ?? ''
      received.push(line)
      client.end(`HTTP/1.1 403 octroi host_denied\r\ncontent-length: 6\r\nconnection: close\r\n\r\ndenied`)
    })
  })
  await new Promise<void>((resolve) => broker.listen(join(folder, 'proxy.sock'), resolve))
})
afterAll(async () => {
  broker.close()
  await rm(folder, { recursive: true, force: true })
})

function options(command: string, args: readonly string[], more: Partial<Launch> = {}): Launch {
  return {
    command,
    args,
    socketPath: join(folder, 'proxy.sock'),
    trust,
    placeholders: [{ env: 'GITHUB_TOKEN', placeholder: 'ghp_octroi0123456789ABCDEFGHIJKLMN' }],
    env: {},
    workspace: { input: undefined, output: undefined, readOnly: [], protectedPaths: [] },
    hostPath: path,
    ...more,
  }
}

async function capture(command: string, args: readonly string[], more: Partial<Launch> = {}) {
  let stdout = ''
  const launched = await launch(
    options(command, args, { ...more, onStdout: (chunk) => void (stdout += chunk) }),
  )
  return { exit: await launched.exit, stdout }
}

const shell = (script: string, more: Partial<Launch> = {}) => capture('/bin/sh', ['-c', script], more)

describe.skipIf(!hasBubblewrap)('launch (skipped without a bubblewrap that may make namespaces)', () => {
  it('passes the exit code on', async () => {
    expect((await shell('exit 7')).exit).toBe(7)
    expect((await shell('true')).exit).toBe(0)
  })

  it('says 128 + n for a signal, 127 and 126 for a command that cannot run', async () => {
    expect((await shell('kill -KILL $$')).exit).toBe(137)
    expect((await capture('no-such-command', [])).exit).toBe(127)
    expect((await capture('/etc/passwd', [])).exit).toBe(126)
  })

  it('says 125 when the sandbox itself cannot be made', async () => {
    const missing = new Map([['/opt/octroi/x', join(folder, 'no-such-file')]])
    expect((await shell('true', { files: missing })).exit).toBe(125)
  })

  it('has no interface but loopback, no route, and no names', async () => {
    const { stdout } = await shell(
      'cut -d: -f1 /proc/net/dev | tail -n +3; tail -n +2 /proc/net/route; cat /etc/resolv.conf; getent hosts one.one.one.one || echo no-name',
    )
    expect(stdout.trim().split(/\s+/)).toEqual(['lo', 'no-name'])
  })

  it('reaches nothing directly, neither outside nor on the loopback of the host', async () => {
    const canary = createServer((socket) => socket.end('leak'))
    await new Promise<void>((resolve) => canary.listen(0, '127.0.0.1', resolve))
    const address = canary.address()
    const port = typeof address === 'object' && address !== null ? address.port : 0
    const script = `for (const [host, port] of [['192.0.2.1', 443], ['127.0.0.1', ${port}]]) {
      await new Promise((done) => require('node:net').connect(port, host)
        .on('connect', () => { console.log('LEAK', host); done() })
        .on('error', (error) => { console.log(error.code); done() }))
    }`
    const { stdout } = await capture('node', ['-e', `(async () => { ${script} })()`])
    canary.close()
    expect(stdout.trim().split('\n')).toEqual(['ENETUNREACH', 'ECONNREFUSED'])
  })

  it('reaches the broker through the proxy variables', async () => {
    received.length = 0
    const script = `require('node:http').get('http://api.good.test/x', (r) => console.log(r.statusCode, r.statusMessage))`
    const { stdout } = await capture('node', ['-e', script])
    expect(stdout.trim()).toBe('403 octroi host_denied')
    expect(received).toEqual(['GET http://api.good.test/x HTTP/1.1'])
  })

  it('answers 503 with a reason when the broker is gone', async () => {
    const socketPath = join(folder, 'gone.sock')
    const gone = createServer()
    await new Promise<void>((resolve) => gone.listen(socketPath, resolve))
    await new Promise((resolve) => gone.close(resolve))
    await writeFile(socketPath, '')
    const script = `require('node:http').get('http://a.test/', (r) => console.log(r.statusCode, r.statusMessage))`
    const { stdout } = await capture('node', ['-e', script], { socketPath })
    expect(stdout.trim()).toBe('503 octroi not_ready')
  })

  it('builds the environment from nothing', async () => {
    process.env['OCTROI_TEST_SECRET'] = 'host secret'
    try {
      const { stdout } = await shell('env', { env: { EXTRA: 'yes' } })
      const env = Object.fromEntries(
        stdout
          .trim()
          .split('\n')
          .map((line) => line.split(/=(.*)/s).slice(0, 2)),
      )
      expect(stdout).not.toContain('host secret')
      expect(env).toMatchObject({
        HOME: '/workspace/tmp',
        HTTPS_PROXY: 'http://127.0.0.1:3128',
        GITHUB_TOKEN: 'ghp_octroi0123456789ABCDEFGHIJKLMN',
        SSL_CERT_FILE: '/opt/octroi/certs/octroi-bundle.pem',
        EXTRA: 'yes',
      })
      expect(Object.keys(env).filter((name) => /SSH|XDG|NODE_CHANNEL|VITEST|SUDO|DBUS/.test(name))).toEqual(
        [],
      )
    } finally {
      delete process.env['OCTROI_TEST_SECRET']
    }
  })

  it('keeps what is in the environment off every command line', async () => {
    const launched = await launch(options('sleep', ['5'], { env: { KEY: 'only-in-the-environment' } }))
    try {
      const lines: string[] = []
      for (const pid of (await readdir('/proc')).filter((name) => /^\d+$/.test(name))) {
        lines.push(await readFile(`/proc/${pid}/cmdline`, 'latin1').catch(() => ''))
      }
      expect(lines.some((line) => line.includes('bwrap'))).toBe(true)
      expect(lines.filter((line) => /only-in-the-environment|ghp_octroi0123/.test(line))).toEqual([])
    } finally {
      launched.signal('SIGTERM')
      await launched.exit
    }
  })

  it('runs Node 24 first, and hides the home, the processes and the keys of the host', async () => {
    const { stdout } = await shell(
      `node -p 'process.versions.node.split(".")[0]'; ls -d /root /home /etc/shadow /etc/ssl/private 2>/dev/null; ls /proc | grep -c '^[0-9]'; grep CapEff /proc/self/status; grep NoNewPrivs /proc/self/status`,
    )
    const [node, processes, capabilities, privileges] = stdout.trim().split('\n')
    expect(node).toBe(process.versions.node.split('.')[0])
    expect(Number(processes)).toBeLessThan(10)
    expect(capabilities).toMatch(/0000000000000000$/)
    expect(privileges).toMatch(/1$/)
  })

  it('lets it write in output and tmp only, and keeps output alone', async () => {
    const input = join(folder, 'in')
    const output = join(folder, 'out')
    await mkdir(input)
    await mkdir(output)
    await writeFile(join(input, 'given'), 'data')
    const { stdout } = await shell(
      `cat input/given; for p in input/a output/b tmp/c /d /etc/e /usr/f /opt/octroi/g /workspace/h; do touch $p 2>/dev/null && echo " $p"; done; true`,
      { workspace: { input, output, readOnly: [], protectedPaths: [] } },
    )
    expect(stdout).toBe('data output/b\n tmp/c\n')
    expect(await readdir(output)).toEqual(['b'])
    expect(await readdir(input)).toEqual(['given'])
  })

  it('shows more paths read-only where they are', async () => {
    const modules = join(folder, 'server', 'node_modules')
    await mkdir(modules, { recursive: true })
    await writeFile(join(modules, 'main.mjs'), 'console.log("served")')
    const workspace = { input: undefined, output: undefined, readOnly: [modules], protectedPaths: [] }
    const { stdout } = await shell(
      `node ${modules}/main.mjs; touch ${modules}/x 2>/dev/null || echo read-only`,
      { workspace },
    )
    expect(stdout).toBe('served\nread-only\n')
  })

  it('trusts the broker where no variable reaches, by the bundle of the distribution', async () => {
    const { stdout } = await shell(
      'f=/etc/ssl/certs/ca-certificates.crt; [ -e $f ] || { echo same; exit; }; cmp -s $f /opt/octroi/certs/octroi-bundle.pem && echo same; cat /opt/octroi/certs/apt.conf',
    )
    expect(stdout).toContain('same')
    expect(stdout).toContain('"/opt/octroi/certs/octroi-bundle.pem"')
  })

  it('delivers a signal once and reports what the command makes of it', async () => {
    let ready = (): void => undefined
    const running = new Promise<void>((resolve) => (ready = resolve))
    let stdout = ''
    const launched = await launch(
      options('/bin/sh', ['-c', 'trap "echo caught; exit 3" TERM; echo up; while :; do sleep 0.05; done'], {
        onStdout: (chunk) => {
          stdout += chunk.toString()
          ready()
        },
      }),
    )
    await running
    launched.signal('SIGTERM')
    expect(await launched.exit).toBe(3)
    expect(stdout).toBe('up\ncaught\n')
  })

  it('leaves stdin and stdout to the command, byte for byte, and closes every other descriptor', async () => {
    const probe = join(folder, 'probe.ts')
    const imports = `import { launch } from ${JSON.stringify(new URL('../../src/sandbox/launcher.ts', import.meta.url).href)}`
    await writeFile(
      probe,
      `${imports}
       const options = JSON.parse(process.argv[2])
       process.exit(await (await launch(options)).exit)`,
    )
    const command =
      'ls /proc/self/fd /proc/2/fd -l | grep -v -e anon_inode -e pipe: -e socket: -e /dev/null -e /proc | grep -e "->" >&2; cat'
    const json = JSON.stringify(options('/bin/sh', ['-c', command]))
    // An open folder under a high number, as a careless parent process passes one on.
    const child = spawn(
      '/bin/bash',
      ['--norc', '-c', 'exec 200</; exec "$@"', 'bash', process.execPath, probe, json],
      {
        env: { PATH: path },
      },
    )
    const bytes = Buffer.from(Array.from({ length: 100_000 }, (_, index) => (index * 31) % 256))
    const out: Buffer[] = []
    let errors = ''
    child.stdout.on('data', (chunk: Buffer) => out.push(chunk))
    child.stderr.on('data', (chunk: Buffer) => (errors += chunk.toString()))
    child.stdin.end(bytes)
    const code = await new Promise((resolve) => child.once('close', resolve))
    expect(errors).toBe('')
    expect(code).toBe(0)
    expect(Buffer.concat(out).equals(bytes)).toBe(true)
  })

  it('leaves nothing behind in the folder for temporary files', async () => {
    const before = process.env['TMPDIR']
    const temporary = join(folder, 'temporary')
    await mkdir(temporary)
    process.env['TMPDIR'] = temporary
    try {
      const launched = await launch(options('sleep', ['0.1']))
      expect(await readdir(temporary)).toHaveLength(1)
      await launched.exit
      expect(await readdir(temporary)).toEqual([])
    } finally {
      if (before === undefined) delete process.env['TMPDIR']
      else process.env['TMPDIR'] = before
    }
  })

  it.each([
    ['the state folder', (state: string) => state],
    ['a folder in it', (state: string) => join(state, 'inner')],
    ['a folder around it', (state: string) => join(state, '..')],
    ['the whole file system', () => '/'],
    ['a path that does not exist', (state: string) => join(state, 'missing')],
  ])('refuses to show %s', async (_, pathOf) => {
    const state = join(folder, 'home', 'state')
    await mkdir(join(state, 'inner'), { recursive: true })
    const workspace = {
      input: undefined,
      output: undefined,
      readOnly: [pathOf(state)],
      protectedPaths: [state],
    }
    await expect(launch(options('true', [], { workspace }))).rejects.toThrow(OperatorError)
  })
})

describe('findBubblewrap', () => {
  it('says what to install when it is missing', () => {
    expect(() => findBubblewrap('/nonexistent')).toThrow(/install the package "bubblewrap"/)
  })

  it('never takes a program from the working directory', () => {
    expect(() => findBubblewrap('.::bin')).toThrow(OperatorError)
  })
})
