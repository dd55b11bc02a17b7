import { accessSync, constants, existsSync, lstatSync, readlinkSync, realpathSync, statSync } from 'node:fs'
import { basename, delimiter, dirname, isAbsolute, join, resolve, sep } from 'node:path'
import { OperatorError } from '../core/errors.ts'
import { trustFilesIn } from './bundle.ts'
import type { TrustFiles } from './bundle.ts'

/** Paths of Octroi's own files inside the sandbox. */
export const inside = {
  bin: '/opt/octroi/bin',
  node: '/opt/octroi/bin/node',
  socket: '/run/octroi/proxy.sock',
  input: '/workspace/input',
  output: '/workspace/output',
  tmp: '/workspace/tmp',
} as const

/** Paths of the trust files inside the sandbox. */
export const insideTrust = trustFilesIn('/opt/octroi/certs')

/** What of the host a sandbox sees besides the system's programs. */
export interface Workspace {
  /** Folder seen read-only at `/workspace/input`; `undefined` leaves it empty. */
  readonly input: string | undefined
  /** Folder seen writable at `/workspace/output`; `undefined` makes one that is thrown away. */
  readonly output: string | undefined
  /** Paths seen read-only where they are, such as the modules of a server. */
  readonly readOnly: readonly string[]
  /** Paths that none of the others may contain or lie in: the state folder, files with credentials. */
  readonly protectedPaths: readonly string[]
}

// Programs and libraries. Links, as on distributions with a merged /usr, are made again as links.
const systemFolders = ['/bin', '/sbin', '/lib', '/lib32', '/lib64', '/libx32']

// What programs read to start: the loader's cache, alternatives, time zone, fonts, settings of runtimes. No passwords,
// no /etc/ssl/private, no resolver: names are the broker's business.
const etc = [
  'alternatives',
  'ld.so.cache',
  'ld.so.conf',
  'ld.so.conf.d',
  'localtime',
  'mime.types',
  'fonts',
  'crypto-policies',
  'pki/tls/certs',
  'pki/ca-trust/extracted',
  'ssl/certs',
  'ssl/openssl.cnf',
  'java-11-openjdk',
  'java-17-openjdk',
  'java-21-openjdk',
  'java-25-openjdk',
  'maven',
  'python3',
  'perl',
].map((name) => `/etc/${name}`)

// Bundles of the distributions; whatever reads one of them trusts the broker without any variable set.
const distributionBundles = [
  '/etc/ssl/certs/ca-certificates.crt',
  '/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem',
  '/etc/pki/tls/certs/ca-bundle.crt',
  '/etc/ssl/cert.pem',
  '/etc/ssl/ca-bundle.pem',
]
const javaBundle = '/etc/ssl/certs/java/cacerts'

/** Options of bubblewrap for the read-only system: programs, libraries and the harmless part of `/etc`. */
export function systemMounts(): string[] {
  const mounts = ['--ro-bind', '/usr', '/usr']
  for (const folder of systemFolders) {
    const found = lstatSync(folder, { throwIfNoEntry: false })
    if (found?.isSymbolicLink() === true) mounts.push('--symlink', readlinkSync(folder), folder)
    else if (found !== undefined) mounts.push('--ro-bind', folder, folder)
  }
  for (const path of etc) if (existsSync(path)) mounts.push('--ro-bind', path, path)
  return mounts
}

/**
 * Options that put the trust files in their own place and over the distribution's. Files one by one: a folder could hold
 * more than what a sandbox may read. `aptConf` is the one that names the bundle's path inside.
 */
export function trustMounts(trust: TrustFiles, aptConf: string): string[] {
  const mounts = new Map<string, string>([
    [insideTrust.bundle, trust.bundle],
    [insideTrust.ca, trust.ca],
    [insideTrust.javaTrustStore, trust.javaTrustStore],
    [insideTrust.aptConf, aptConf],
  ])
  const cover = (target: string, file: string) => {
    if (!existsSync(target)) return
    const real = realpathSync(target)
    if (real.startsWith('/etc/')) mounts.set(real, file)
  }
  for (const target of distributionBundles) cover(target, trust.bundle)
  cover(javaBundle, trust.javaTrustStore)
  return [...mounts].flatMap(([target, file]) => ['--ro-bind', file, target])
}

/** Options for `/workspace` and the paths the operator adds. Something missing or forbidden is an `OperatorError`. */
export function workspaceMounts(workspace: Workspace): string[] {
  const { input, output, readOnly } = workspace
  checkSystem(workspace)
  // What was checked is what is bound: a link may be made to lead elsewhere in between.
  const real = (path: string): string => checkPath(path, workspace)
  return [
    ...readOnly.flatMap((path) => ['--ro-bind', real(path), resolve(path)]),
    ...(input === undefined ? ['--dir', inside.input] : ['--ro-bind', real(input), inside.input]),
    ...(output === undefined ? ['--tmpfs', inside.output] : ['--bind', real(output), inside.output]),
    '--tmpfs',
    inside.tmp,
  ]
}

/** Every sandbox sees the system's folders, and runs as a user who may read what the broker may. */
function checkSystem({ protectedPaths }: Workspace): void {
  for (const kept of protectedPaths) {
    const folder = ['/usr', ...systemFolders, ...etc].find(
      (path) => existsSync(path) && contains(realpathSync(path), realPathOf(kept)),
    )
    if (folder === undefined) continue
    throw new OperatorError(`${kept} lies in ${folder}, which every sandbox sees; move it elsewhere`, {
      exitCode: 2,
    })
  }
}

/** The path without links, also of what does not exist yet. */
function realPathOf(path: string): string {
  if (existsSync(path)) return realpathSync(path)
  const parent = dirname(resolve(path))
  return parent === path ? path : join(realPathOf(parent), basename(path))
}

/** The path without links; an `OperatorError` for one that is missing or forbidden. */
function checkPath(path: string, { protectedPaths }: Workspace): string {
  if (!existsSync(path)) throw new OperatorError(`${path} does not exist`, { exitCode: 2 })
  const real = realpathSync(path)
  if (real === '/')
    throw new OperatorError('the whole file system cannot be shown to a sandbox', { exitCode: 2 })
  for (const kept of protectedPaths) {
    const realKept = realPathOf(kept)
    if (contains(real, realKept) || contains(realKept, real)) {
      throw new OperatorError(`${path} cannot be shown to a sandbox: ${kept} is Octroi's own`, {
        exitCode: 2,
      })
    }
  }
  return real
}

function contains(outer: string, path: string): boolean {
  return path === outer || path.startsWith(outer + sep)
}

/** Options for Node 24, first in PATH, and for an npm that the host has outside of `/usr`. */
export function nodeMounts(nodePath: string, hostPath: string): string[] {
  const mounts = ['--ro-bind', realpathSync(nodePath), inside.node]
  const npm = findNpm(hostPath)
  if (npm === undefined) return mounts
  const folder = '/opt/octroi/lib/node_modules/npm'
  mounts.push('--ro-bind', npm, folder)
  for (const name of ['npm', 'npx'])
    mounts.push('--symlink', `${folder}/bin/${name}-cli.js`, `${inside.bin}/${name}`)
  return mounts
}

function findNpm(hostPath: string): string | undefined {
  const found = findProgram('npm', hostPath)
  if (found === undefined) return undefined
  const script = realpathSync(found)
  // Below /usr it is visible already, together with what a distribution unbundled from it.
  if (script.startsWith('/usr/') || basename(script) !== 'npm-cli.js') return undefined
  return dirname(dirname(script))
}

/** The first executable file of this name in the absolute folders of a PATH. */
export function findProgram(name: string, path: string): string | undefined {
  for (const folder of path.split(delimiter)) {
    // Never from the working directory: a hostile repository must not bring programs.
    if (!isAbsolute(folder)) continue
    const file = join(folder, name)
    if (isExecutable(file)) return file
  }
  return undefined
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK)
    return statSync(file).isFile()
  } catch {
    // A folder of PATH that does not exist or that we may not read holds no program for us.
    return false
  }
}
