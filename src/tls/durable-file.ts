import { randomBytes } from 'node:crypto'
import { link, mkdir, open, rename, stat, unlink } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { OperatorError } from '../core/errors.ts'

/** The code of a system error, such as `ENOENT`; `undefined` for anything else. */
export const systemCode = (error: unknown): string | undefined =>
  error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : undefined

/** Makes the folder (0700) where it is missing; an `OperatorError` when others may enter it. */
export async function ensureFolder(folder: string): Promise<void> {
  try {
    await mkdir(folder, { recursive: true, mode: 0o700 })
    const { mode } = await stat(folder)
    if ((mode & 0o077) === 0) return
  } catch (cause) {
    throw new OperatorError(
      `cannot use the state folder ${folder}: ${systemCode(cause) ?? 'unknown error'}`,
      { cause },
    )
  }
  throw new OperatorError(`the state folder ${folder} is open to other users: chmod 700 ${folder}`)
}

async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r')
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}

/**
 * Writes a whole file or nothing, durably. Without `replace` an existing file is never touched: the write fails with
 * `EEXIST`, also when another process makes the file at the same moment.
 */
export async function writeDurably(
  path: string,
  text: string,
  options: { readonly mode: number; readonly replace: boolean },
): Promise<void> {
  const folder = dirname(path)
  const temporary = join(folder, `.${basename(path)}.${randomBytes(6).toString('hex')}`)
  const handle = await open(temporary, 'wx', options.mode)
  try {
    try {
      await handle.writeFile(text)
      // The umask may have narrowed the mode that `open` was given.
      await handle.chmod(options.mode)
      await handle.sync()
    } finally {
      await handle.close()
    }
    if (options.replace) await rename(temporary, path)
    else await link(temporary, path)
  } finally {
    // After a rename there is nothing left to remove.
    await unlink(temporary).catch(() => undefined)
  }
  await syncFolder(folder)
}

/** Text of a file that only its owner may read; `undefined` when there is none, else an `OperatorError`. */
export async function readOwnerOnly(path: string): Promise<string | undefined> {
  try {
    const handle = await open(path, 'r')
    try {
      // Judged on the open file, so that nobody swaps it between the check and the read.
      const { mode } = await handle.stat()
      if ((mode & 0o077) !== 0) {
        throw new OperatorError(
          `${path} is accessible to other users: chmod 600 ${path}, and consider the key known`,
        )
      }
      return await handle.readFile('utf8')
    } finally {
      await handle.close()
    }
  } catch (cause) {
    if (cause instanceof OperatorError) throw cause
    if (systemCode(cause) === 'ENOENT') return undefined
    throw new OperatorError(`cannot read ${path}: ${systemCode(cause) ?? 'unknown error'}`, { cause })
  }
}
