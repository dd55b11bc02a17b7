import { mkdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { OperatorError } from '../core/errors.ts'
import type { Snapshot } from '../identity/model.ts'
import { listen, type Listener } from '../proxy/listener.ts'
import type { DataPlane } from '../proxy/plane.ts'

/** Longest path of a unix socket on Linux, bytes. */
const maxSocketPath = 107

/** Unix sockets that the broker opens for one sandbox each: whoever can connect is that sandbox. */
export interface SandboxSockets {
  /** Path of the socket of a living sandbox; opened at the first call. */
  open(sandbox: string): Promise<string>
  readonly listeners: readonly Listener[]
  close(): Promise<void>
}

/** Nothing is opened before the first `open`; sockets are 0600 files in `folder`. */
export function createSandboxSockets(options: {
  plane: DataPlane
  folder: string
  snapshot: () => Snapshot
}): SandboxSockets {
  const { plane, folder, snapshot } = options
  const open = new Map<string, Promise<{ path: string; listener: Listener }>>()
  const listeners: Listener[] = []

  async function start(id: string, name: string): Promise<{ path: string; listener: Listener }> {
    await mkdir(folder, { recursive: true, mode: 0o700 })
    // The id is random and never reused: a socket of a destroyed sandbox is nobody's.
    const path = join(folder, `${id.slice(0, 16)}.sock`)
    if (Buffer.byteLength(path) > maxSocketPath) {
      throw new OperatorError(
        `${path} is longer than ${maxSocketPath} bytes; choose a shorter path with the key \`state\``,
      )
    }
    const listener = await listen(plane, { kind: 'unix', path, openedFor: name })
    listeners.push(listener)
    return { path, listener }
  }

  return {
    async open(name) {
      const sandbox = snapshot().sandboxes.get(name)
      if (sandbox === undefined) throw new OperatorError(`there is no sandbox ${name}`)
      let opening = open.get(sandbox.id)
      if (opening === undefined) {
        opening = start(sandbox.id, name)
        open.set(sandbox.id, opening)
        opening.catch(() => open.delete(sandbox.id))
      }
      return (await opening).path
    },
    listeners,
    async close() {
      for (const opening of open.values()) {
        const opened = await opening.catch(() => undefined)
        if (opened === undefined) continue
        await opened.listener.close()
        await rm(opened.path, { force: true })
      }
      open.clear()
    },
  }
}
