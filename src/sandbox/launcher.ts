import { spawn } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import type { Socket } from 'node:net'
import { constants, tmpdir } from 'node:os'
import { join } from 'node:path'
import { OperatorError } from '../core/errors.ts'
import { writeAptConf } from './bundle.ts'
import type { TrustFiles } from './bundle.ts'
import { sandboxEnvironment } from './environment.ts'
import type { PlaceholderVariable } from './environment.ts'
import {
  findProgram,
  inside,
  insideTrust,
  nodeMounts,
  systemMounts,
  trustMounts,
  workspaceMounts,
} from './mounts.ts'
import type { Workspace } from './mounts.ts'

/** Exit code that says that the launcher failed, not the command. */
export const octroiFailed = 125

/** Port of the relay on the sandbox's own loopback. */
export const relayPort = 3128

/** One command to run isolated. */
export interface Launch {
  readonly command: string
  readonly args: readonly string[]
  /** Unix socket of the broker that is this sandbox's identity; its only way out. */
  readonly socketPath: string
  readonly trust: TrustFiles
  readonly placeholders: readonly PlaceholderVariable[]
  /** Variables the operator adds; they win over ours. */
  readonly env: Readonly<Record<string, string>>
  readonly workspace: Workspace
  /** `PATH` of the host, in which bubblewrap and npm are looked for. */
  readonly hostPath: string
  /** More files to show read-only: path inside by path outside. */
  readonly files?: ReadonlyMap<string, string> | undefined
  /** Where the command's stdout goes; `inherit` unless the caller wants to read it. */
  readonly onStdout?: ((chunk: Buffer) => void) | undefined
}

/** A running sandbox. */
export interface Launched {
  /** The command's exit code, 128 + n for signal n, 126 or 127 if it cannot be run, 125 if the sandbox failed. */
  readonly exit: Promise<number>
  /** Passes a signal to the command. */
  signal(name: NodeJS.Signals): void
}

/**
 * Starts a command in namespaces of its own: no network but the relay to the broker, no home, no other processes, no
 * capabilities, an environment built from nothing. stdio is the caller's. Linux with bubblewrap only; anything missing
 * is an `OperatorError` that says what to install.
 */
export async function launch(options: Launch): Promise<Launched> {
  const bubblewrap = findBubblewrap(options.hostPath)
  if (!existsSync(options.socketPath)) throw new OperatorError(`there is no socket at ${options.socketPath}`)
  const scratch = await mkdtemp(join(tmpdir(), 'octroi-run-'))
  const child = await start(bubblewrap, scratch, options).catch(async (error: unknown) => {
    await rm(scratch, { recursive: true, force: true })
    throw error
  })
  return supervise(child, scratch)
}

async function start(bubblewrap: string, scratch: string, options: Launch): Promise<ChildProcess> {
  const apt = join(options.trust.folder, await writeAptConf(options.trust.folder, insideTrust.bundle))
  const relay = scriptFor('relay')
  const args = [
    ...isolation,
    ...systemMounts(),
    ...(await accountMounts(scratch)),
    ...trustMounts(options.trust, apt),
    ...nodeMounts(process.execPath, options.hostPath),
    ...workspaceMounts(options.workspace),
    ...['--ro-bind', relay.outside, relay.inside],
    ...['--ro-bind', options.socketPath, inside.socket],
    ...[...(options.files ?? [])].flatMap(([target, file]) => ['--ro-bind', file, target]),
    // Last, since everything above makes its mount points in the root: what is left of it is read-only.
    ...['--remount-ro', '/', '--chdir', '/workspace', '--'],
    ...[inside.node, relay.inside, inside.socket, String(relayPort), options.command, ...options.args],
  ]
  return spawn(bubblewrap, args, {
    // Not --clearenv and --setenv: a command line is readable for every user of the host, an environment is not.
    env: environmentOf(options),
    stdio: ['inherit', options.onStdout === undefined ? 'inherit' : 'pipe', 'inherit', 'pipe'],
    // A session of its own, so that Ctrl-C reaches only us and the command gets it once, from us.
    detached: true,
  }).once('spawn', function (this: ChildProcess) {
    if (options.onStdout !== undefined) this.stdout?.on('data', options.onStdout)
  })
}

const isolation = [
  ...['--unshare-all', '--unshare-user', '--uid', '1000', '--gid', '1000', '--hostname', 'sandbox'],
  // No new session, no pushing of characters into the operator's terminal (TIOCSTI).
  ...['--new-session', '--die-with-parent', '--cap-drop', 'ALL'],
  ...['--proc', '/proc', '--dev', '/dev', '--tmpfs', '/tmp', '--dir', '/run', '--dir', '/var'],
  ...['--symlink', '/tmp', '/var/tmp', '--symlink', '/run', '/var/run'],
]

/** A script of this folder, and the path under which a sandbox sees it: its name alone says that it is a module. */
export function scriptFor(name: string): { readonly outside: string; readonly inside: string } {
  const extension = import.meta.filename.endsWith('.ts') ? 'ts' : 'js'
  const outside = join(import.meta.dirname, `${name}.${extension}`)
  return { outside, inside: `/opt/octroi/${name}.m${extension}` }
}

/** The sandbox's own accounts and names: the host's would tell who works here and which hosts it knows. */
async function accountMounts(scratch: string): Promise<string[]> {
  const files = {
    passwd: `root:x:0:0:root:/:/bin/sh\nsandbox:x:1000:1000:sandbox:${inside.tmp}:/bin/sh\n`,
    group: 'root:x:0:\nsandbox:x:1000:\n',
    hosts: '127.0.0.1 localhost\n::1 localhost\n127.0.0.1 sandbox\n',
    'nsswitch.conf': 'passwd: files\ngroup: files\nhosts: files dns\n',
    'resolv.conf': '',
  }
  const mounts: string[] = []
  for (const [name, text] of Object.entries(files)) {
    const file = join(scratch, name)
    await writeFile(file, text, { mode: 0o644 })
    mounts.push('--ro-bind', file, `/etc/${name}`)
  }
  return mounts
}

function environmentOf({ placeholders, env }: Launch): Record<string, string> {
  return {
    PATH: `${inside.bin}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin`,
    HOME: inside.tmp,
    TMPDIR: inside.tmp,
    USER: 'sandbox',
    LOGNAME: 'sandbox',
    SHELL: '/bin/sh',
    LANG: 'C.UTF-8',
    ...sandboxEnvironment({
      proxyScheme: 'http',
      proxyHost: '127.0.0.1',
      proxyPort: relayPort,
      login: undefined,
      bundlePath: insideTrust.bundle,
      caPath: insideTrust.ca,
      javaTrustStore: insideTrust.javaTrustStore,
      aptConf: insideTrust.aptConf,
      placeholders,
    }),
    ...env,
  }
}

function supervise(child: ChildProcess, scratch: string): Launched {
  // The fourth stdio entry above is a pipe, and Node makes it a duplex socket.
  const link = child.stdio[3] as Socket
  let started = false
  link.on('data', () => {
    started = true
  })
  link.on('error', () => undefined)
  link.unref()
  const exit = new Promise<number>((resolve, reject) => {
    child.once('error', (cause) =>
      reject(new OperatorError(`cannot start bubblewrap: ${cause.message}`, { cause })),
    )
    child.once('close', (code, signal) => {
      if (!started && signal === null) resolve(octroiFailed)
      else resolve(signal === null ? (code ?? octroiFailed) : 128 + constants.signals[signal])
    })
  }).finally(() => rm(scratch, { recursive: true, force: true }))
  return { exit, signal: (name) => void link.write(`${name}\n`) }
}

/** Path of bubblewrap, or an `OperatorError` that says how to get it. */
export function findBubblewrap(hostPath: string): string {
  if (process.platform !== 'linux') {
    throw new OperatorError('octroi run isolates on Linux only; use a container and `octroi env` here')
  }
  const found = findProgram('bwrap', hostPath)
  if (found !== undefined) return found
  throw new OperatorError(
    'octroi run needs bubblewrap, and there is no bwrap in PATH; install the package "bubblewrap" ' +
      '(apt-get install bubblewrap, dnf install bubblewrap, apk add bubblewrap, pacman -S bubblewrap)',
  )
}
