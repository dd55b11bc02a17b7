import { createHash, randomUUID } from 'node:crypto'
import { chmod, mkdir, open, readFile, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { getCACertificates } from 'node:tls'
import { OperatorError } from '../core/errors.ts'
import { javaTrustStore, splitPem, uniqueCertificates } from './trust-store.ts'

/** The public files that make clients trust the broker; absolute paths. */
export interface TrustFiles {
  readonly folder: string
  /** System roots and the broker's CA, PEM. */
  readonly bundle: string
  /** The broker's CA alone, PEM. */
  readonly ca: string
  /** The bundle as a Java key store. */
  readonly javaTrustStore: string
  /** Configuration for apt that names the bundle. */
  readonly aptConf: string
}

/**
 * The public trust folder of an installation with this `root`: one of its own, since sandboxes see it whole and `certs`
 * may hold keys of the operator's.
 */
export function trustFolder(root: string): string {
  return join(root, 'certs', 'sandbox')
}

/** Paths of the trust files in a folder, whether they exist or not. */
export function trustFilesIn(folder: string): TrustFiles {
  return {
    folder,
    bundle: join(folder, 'octroi-bundle.pem'),
    ca: join(folder, 'octroi-ca.pem'),
    javaTrustStore: join(folder, 'octroi-bundle.jks'),
    aptConf: join(folder, 'apt.conf'),
  }
}

/**
 * Writes the trust files, each at once or not at all, world-readable. `extra` are more roots, PEM, that sandboxes need
 * for tunnels that are spliced. The folder is made for sandboxes to read: never the state folder, never one with keys.
 */
export async function writeTrustFiles(options: {
  readonly folder: string
  readonly caPem: string
  readonly extra?: readonly string[] | undefined
}): Promise<TrustFiles> {
  const files = trustFilesIn(options.folder)
  const certificates = uniqueCertificates([
    ...splitPem(options.caPem),
    ...(options.extra ?? []).flatMap(splitPem),
    ...systemRoots(),
  ])
  await mkdir(options.folder, { recursive: true, mode: 0o755 }).catch((cause: unknown) => {
    throw cannotWrite(options.folder, cause)
  })
  const bundle = certificates.map((certificate) => certificate.toString()).join('')
  await publish(files.ca, splitPem(options.caPem).join('\n') + '\n')
  await publish(files.bundle, bundle)
  await publish(files.javaTrustStore, javaTrustStore(certificates))
  await publish(files.aptConf, aptConf(files.bundle))
  return files
}

/**
 * Writes the configuration that apt needs in a sandbox that sees the bundle under another path, and returns its file
 * name in `folder`; one file per path, since apt takes no other.
 */
export async function writeAptConf(folder: string, bundlePath: string): Promise<string> {
  const name = `apt-${createHash('sha256').update(bundlePath).digest('hex').slice(0, 8)}.conf`
  await publish(join(folder, name), aptConf(bundlePath))
  return name
}

/** The roots that clients without Octroi would use: the system's, or Node's own list on a system without any. */
function systemRoots(): string[] {
  const system = getCACertificates('system')
  return system.length > 0 ? system : getCACertificates('bundled')
}

function aptConf(bundlePath: string): string {
  if (/["\r\n]/.test(bundlePath)) {
    throw new OperatorError(`apt cannot read a path with quotes or line breaks: ${bundlePath}`, {
      exitCode: 2,
    })
  }
  return `Acquire::https::CAInfo "${bundlePath}";\n`
}

async function publish(path: string, content: string | Buffer): Promise<void> {
  const wanted = Buffer.from(content)
  try {
    if ((await readFile(path)).equals(wanted)) return await chmod(path, 0o644)
    await replace(path, wanted)
  } catch (error) {
    if (!isMissing(error)) throw cannotWrite(path, error)
    await replace(path, wanted).catch((cause: unknown) => {
      throw cannotWrite(path, cause)
    })
  }
}

async function replace(path: string, content: Buffer): Promise<void> {
  const draft = `${path}.${randomUUID()}`
  const file = await open(draft, 'wx', 0o644)
  try {
    await file.writeFile(content)
    // The umask may have taken bits away; sandboxes run as other users.
    await file.chmod(0o644)
    await file.sync()
    await file.close()
    await rename(draft, path)
  } catch (error) {
    await file.close().catch(() => undefined)
    await rm(draft, { force: true })
    throw error
  }
}

function isMissing(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'ENOENT'
}

function cannotWrite(path: string, cause: unknown): OperatorError {
  const why = cause instanceof Error ? cause.message : String(cause)
  return new OperatorError(`cannot write ${path}: ${why}`, { cause })
}
