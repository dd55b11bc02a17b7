import { chmodSync, lstatSync, unlinkSync } from 'node:fs'
import { createConnection } from 'node:net'
import { join } from 'node:path'
import { OperatorError } from '../core/errors.ts'
import { requireStateFolder } from '../store/folder.ts'

const maxPathBytes = 107

/** Path of the owner-only admin socket of a state folder; `OperatorError` when the system could not bind it. */
export function ownerSocketPath(stateFolder: string): string {
  const path = join(stateFolder, 'admin.sock')
  const bytes = Buffer.byteLength(path)
  // sun_path is 108 bytes with its NUL (unix(7)); longer names are cut off by some kernels instead of refused.
  if (bytes > maxPathBytes)
    throw new OperatorError(
      `${path} has ${String(bytes)} bytes, a unix socket takes ${String(maxPathBytes)}: ` +
        'set `state` to a shorter path',
      { exitCode: 2 },
    )
  return path
}

/** Makes the path free to bind: removes a socket that nobody answers on, refuses everything else. */
export async function clearOwnerSocket(stateFolder: string): Promise<string> {
  requireStateFolder(stateFolder)
  const path = ownerSocketPath(stateFolder)
  const found = lstatSync(path, { throwIfNoEntry: false })
  if (found === undefined) return path
  if (!found.isSocket()) throw new OperatorError(`${path} is in the way and is not a socket; move it`)
  if (await answers(path))
    throw new OperatorError(
      `another broker answers on ${path}; stop it, or set another state folder with \`state\``,
    )
  unlinkSync(path)
  return path
}

/** The folder is 0700 already; the mode is a second lock. */
export function closeToOthers(path: string): void {
  chmodSync(path, 0o600)
}

function answers(path: string): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const socket = createConnection({ path })
    socket.setTimeout(2_000, () => {
      // Somebody listens whose queue is full: not stale.
      socket.destroy()
      resolve(true)
    })
    socket.once('connect', () => {
      socket.destroy()
      resolve(true)
    })
    socket.once('error', (error: NodeJS.ErrnoException) => {
      socket.destroy()
      if (error.code === 'ECONNREFUSED' || error.code === 'ENOENT') resolve(false)
      else reject(new OperatorError(`cannot tell whether a broker answers on ${path}`, { cause: error }))
    })
  })
}
