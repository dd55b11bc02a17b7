import { execFile } from 'node:child_process'
import { X509Certificate } from 'node:crypto'
import { readFile, readdir, stat } from 'node:fs/promises'
import { connect } from 'node:net'
import { join } from 'node:path'
import type { TrustFiles } from './bundle.ts'
import type { Check } from './check.ts'
import { findProgram } from './mounts.ts'
import { splitPem } from './trust-store.ts'

/** Where something of the broker listens. */
export interface ListenerAddress {
  readonly name: string
  readonly at: { readonly host: string; readonly port: number } | { readonly path: string }
}

/** Is this Node new enough? */
export function checkNode(version: string): Check {
  const major = Number(/^v?(\d+)/.exec(version)?.[1])
  return { status: major >= 24 ? 'PASS' : 'FAIL', name: 'node', detail: `${version}, wants 24 or later` }
}

/** Is the state folder, with every file in it, for its owner alone? */
export async function checkStateFolder(folder: string): Promise<Check> {
  const name = 'state folder'
  try {
    const open: string[] = []
    const names = await readdir(folder, { recursive: true })
    for (const path of [folder, ...names.map((entry) => join(folder, entry))]) {
      // A file of the store may be gone between the list and the look; the broker is running.
      const found = await stat(path).catch(() => undefined)
      if (found === undefined) continue
      if ((found.mode & 0o077) !== 0) open.push(`${path} has mode ${(found.mode & 0o777).toString(8)}`)
      if (process.getuid !== undefined && found.uid !== process.getuid())
        open.push(`${path} has another owner`)
    }
    if (open.length === 0) return { status: 'PASS', name, detail: `${folder} is its owner's alone` }
    return { status: 'FAIL', name, detail: `others may read: ${open.slice(0, 3).join('; ')}` }
  } catch (error) {
    return { status: 'FAIL', name, detail: `${folder}: ${message(error)}` }
  }
}

/** Are the trust files there, readable for sandboxes, and do they hold the CA while it is valid? */
export async function checkTrustFiles(trust: TrustFiles, now: number): Promise<Check[]> {
  const checks: Check[] = []
  for (const path of [trust.ca, trust.bundle, trust.javaTrustStore, trust.aptConf]) {
    const mode = await stat(path).then(
      ({ mode }) => mode,
      () => undefined,
    )
    const detail =
      mode === undefined ? `${path} is missing; octroi serve writes it` : `${path} is not world-readable`
    if (mode === undefined || (mode & 0o004) === 0)
      checks.push({ status: 'FAIL', name: 'trust files', detail })
  }
  if (checks.length > 0) return checks
  checks.push({ status: 'PASS', name: 'trust files', detail: trust.folder })
  checks.push(await checkCa(trust, now))
  return checks
}

async function checkCa(trust: TrustFiles, now: number): Promise<Check> {
  const name = 'ca'
  try {
    const [pem] = splitPem(await readFile(trust.ca, 'utf8'))
    if (pem === undefined) return { status: 'FAIL', name, detail: `${trust.ca} holds no certificate` }
    const ca = new X509Certificate(pem)
    const bundle = splitPem(await readFile(trust.bundle, 'utf8')).map(
      (each) => new X509Certificate(each).fingerprint256,
    )
    if (!bundle.includes(ca.fingerprint256)) {
      return {
        status: 'FAIL',
        name,
        detail: `${trust.bundle} does not hold the CA; octroi serve writes it again`,
      }
    }
    const valid = ca.validFromDate.getTime() <= now && now < ca.validToDate.getTime()
    const detail = `${valid ? 'valid' : 'not valid now'}, until ${ca.validToDate.toISOString()}; ${bundle.length} roots in the bundle`
    return { status: valid ? 'PASS' : 'FAIL', name, detail }
  } catch (error) {
    return { status: 'FAIL', name, detail: message(error) }
  }
}

/** Does somebody listen where the broker should? */
export async function checkListener({ name, at }: ListenerAddress): Promise<Check> {
  const shown = 'path' in at ? at.path : `${at.host}:${at.port}`
  const error = await new Promise<string | undefined>((resolve) => {
    const socket = connect({ ...at, timeout: 2_000 })
    socket.once('connect', () => resolve(undefined))
    socket.once('timeout', () => resolve('no answer in 2 s'))
    socket.once('error', (cause) => resolve(message(cause)))
    socket.once('close', () => undefined)
    for (const event of ['connect', 'timeout']) socket.once(event, () => socket.destroy())
  })
  if (error === undefined) return { status: 'PASS', name: `listener ${name}`, detail: shown }
  return {
    status: 'FAIL',
    name: `listener ${name}`,
    detail: `${shown}: ${error}; octroi serve starts the broker`,
  }
}

/** Can `octroi run` isolate here? */
export async function checkBubblewrap(hostPath: string): Promise<Check> {
  const name = 'bubblewrap'
  const program = findProgram('bwrap', hostPath)
  if (program === undefined) {
    return { status: 'SKIP', name, detail: 'not installed; octroi run needs the package "bubblewrap"' }
  }
  return new Promise((resolve) => {
    const args = [
      '--unshare-all',
      '--unshare-user',
      '--ro-bind',
      '/',
      '/',
      '--proc',
      '/proc',
      '--dev',
      '/dev',
      'true',
    ]
    execFile(program, args, { timeout: 10_000 }, (error, _, stderr) => {
      if (error === null) resolve({ status: 'PASS', name, detail: `${program} makes namespaces` })
      else
        resolve({
          status: 'FAIL',
          name,
          detail: `${stderr.trim() || error.message}; are user namespaces allowed?`,
        })
    })
  })
}

function message(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
