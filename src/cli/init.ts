import { chmod, mkdir, readFile, writeFile } from 'node:fs/promises'
import { isAbsolute, join, resolve } from 'node:path'
import { loadConfig } from '../config/load.ts'
import { formatProblem } from '../config/problem.ts'
import { systemClock } from '../core/clock.ts'
import { OperatorError } from '../core/errors.ts'
import type { Io } from './io.ts'

/** What `octroi init` copies from the package. */
const shippedConfig = join(import.meta.dirname, '../../config/octroi.yaml')
const shippedSchema = join(import.meta.dirname, '../../config/octroi.schema.json')

/**
 * Writes the commented first configuration into a folder (default: the one that commands look in) and has the CA made.
 * Never replaces a file.
 */
export async function initConfig(
  io: Io,
  folder: string | undefined,
  makeAuthority: (stateFolder: string) => Promise<void>,
): Promise<number> {
  const target = folder === undefined ? defaultFolder(io.env) : resolve(io.cwd, folder)
  const path = join(target, 'octroi.yaml')
  await mkdir(target, { recursive: true, mode: 0o700 })
  await create(path, withoutRoot(await readFile(shippedConfig, 'utf8')))
  await create(join(target, 'octroi.schema.json'), await readFile(shippedSchema, 'utf8')).catch(
    (error: unknown) => {
      // An editor's schema that is there already is no reason to fail.
      if (!(error instanceof OperatorError)) throw error
    },
  )
  const loaded = loadConfig(path, { env: io.env, now: systemClock.now() })
  if (!loaded.ok) throw new OperatorError(loaded.problems.map(formatProblem).join('\n'))
  const { stateFolder } = loaded.config
  await mkdir(stateFolder, { recursive: true, mode: 0o700 })
  await chmod(stateFolder, 0o700)
  await makeAuthority(stateFolder)
  io.out(`wrote ${path}`)
  io.out(`state, with the certificate authority: ${stateFolder}`)
  const flag = folder === undefined ? '' : ` --config ${path}`
  io.out(`next: octroi check${flag}, then octroi serve${flag}`)
  return 0
}

function defaultFolder({ XDG_CONFIG_HOME: xdg, HOME: home }: Io['env']): string {
  if (xdg !== undefined && isAbsolute(xdg)) return join(xdg, 'octroi')
  if (home !== undefined && isAbsolute(home)) return join(home, '.config', 'octroi')
  throw new OperatorError('neither XDG_CONFIG_HOME nor HOME is set; name a folder: octroi init DIR', {
    exitCode: 2,
  })
}

/** In a checkout paths begin one folder up; where `init` writes, they begin beside the file. */
function withoutRoot(text: string): string {
  return text.replace(/^#[^\n]*\nroot: [^\n]*\n\n/m, '')
}

async function create(path: string, text: string): Promise<void> {
  try {
    await writeFile(path, text, { flag: 'wx', mode: 0o600 })
  } catch (cause) {
    const isThere = cause instanceof Error && 'code' in cause && cause.code === 'EEXIST'
    if (!isThere) throw new OperatorError(`cannot write ${path}`, { cause })
    throw new OperatorError(`${path} is there already; octroi init never replaces a file`, { cause })
  }
}
