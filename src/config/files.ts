import { X509Certificate } from 'node:crypto'
import { globSync, readFileSync, statSync } from 'node:fs'
import type { Stats } from 'node:fs'
import { isAbsolute, resolve } from 'node:path'
import { maxFileBytes } from './document.ts'

/** What became of looking at a file: usable, gone (perhaps only for now), or refused for good. */
export type FileCheck =
  | { readonly state: 'ok' }
  | { readonly state: 'missing'; readonly problem: string }
  | { readonly state: 'refused'; readonly problem: string }

/** A path of the configuration, absolute. */
export function resolvePath(root: string, path: string): string {
  return isAbsolute(path) ? resolve(path) : resolve(root, path)
}

/** Text of a configuration file, or why it is not taken. */
export function readConfigFile(path: string): { ok: true; text: string } | { ok: false; problem: string } {
  const check = checkFile(path)
  if (check.state !== 'ok') return { ok: false, problem: check.problem }
  try {
    if (statSync(path).size > maxFileBytes) {
      return { ok: false, problem: 'the file is larger than 1 MB; split it with `include:`' }
    }
    return { ok: true, text: readFileSync(path, 'utf8') }
  } catch (cause) {
    return { ok: false, problem: `cannot be read (${codeOf(cause)})` }
  }
}

/** May a configuration or secret file be relied on? One that every user of the machine may write is refused. */
export function checkFile(path: string): FileCheck {
  let stats: Stats
  try {
    stats = statSync(path)
  } catch (cause) {
    const code = codeOf(cause)
    if (code === 'ENOENT' || code === 'ENOTDIR')
      return { state: 'missing', problem: `there is no file ${path}` }
    return { state: 'missing', problem: `${path} cannot be read (${code})` }
  }
  if (!stats.isFile()) return { state: 'refused', problem: `${path} is not a file` }
  if ((stats.mode & 0o002) !== 0) {
    return { state: 'refused', problem: `${path} can be written by every user; run: chmod o-w ${path}` }
  }
  return { state: 'ok' }
}

/** Like `checkFile`, for a PEM file: at least one certificate, and none that cannot be read. */
export function checkCertificates(path: string): FileCheck {
  const check = checkFile(path)
  if (check.state !== 'ok') return check
  try {
    const blocks = readFileSync(path, 'latin1').match(
      /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g,
    )
    if (blocks === null) return { state: 'refused', problem: `${path} has no PEM certificate` }
    for (const block of blocks) new X509Certificate(block)
    return check
  } catch (cause) {
    return { state: 'refused', problem: `${path} has a certificate that cannot be read (${codeOf(cause)})` }
  }
}

/** The files of an `include` pattern, sorted; `missing` when a plain path names none. */
export function includedFiles(pattern: string): { files: string[]; missing: boolean } {
  const isGlob = /[*?[\]{}]/.test(pattern)
  const files = globSync(pattern)
    .map((file) => resolve(file))
    .toSorted()
  return { files, missing: !isGlob && files.length === 0 }
}

/** System error code of a failed file operation, such as `EACCES`. */
export function codeOf(cause: unknown): string {
  return cause instanceof Error && 'code' in cause ? String(cause.code) : 'unknown error'
}
