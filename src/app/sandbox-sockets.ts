import { mkdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { OperatorError } from '../core/errors.ts'
import { LifecycleError } from '../identity/lifecycle-model.ts'
import type { SandboxView, Snapshot } from '../identity/model.ts'
import { listen, type Listener } from '../proxy/listener.ts'
import type { DataPlane } from '../proxy/plane.ts'

/** Longest path of a unix socket on Linux, bytes. */
const maxSocketPath = 107

/** Unix sockets that the broker opens for one sandbox each: whoever can connect is that sandbox. */
export interface SandboxSockets {
  /**
   * Path of the socket of a living sandbox; opened at the first call. With `run` it is that run's own, and the events of
   * what comes through it carry the run.
   */
  open(sandbox: string, run?: string): Promise<string>
  /** From now until `leave` the run may have sockets. */
  enter(run: string): void
  /** The run is over: its sockets end with every connection. */
  leave(run: string): void
  readonly listeners: readonly Listener[]
  /** Closes those of sandboxes that have ended since. */
  prune(): void
  close(): Promise<void>
}

interface Opened {
  readonly path: string
  readonly listener: Listener
}

interface Entry {
  readonly sandboxId: string
  readonly run: string | undefined
  readonly opening: Promise<Opened>
}

interface SocketsOptions {
  readonly plane: DataPlane
  readonly folder: string
  readonly snapshot: () => Snapshot
}

/** Nothing is opened before the first `open`; sockets are 0600 files in `folder`. */
export function createSandboxSockets(options: SocketsOptions): SandboxSockets {
  return new OpenSockets(options)
}

class OpenSockets implements SandboxSockets {
  readonly #options: SocketsOptions
  readonly #open = new Map<string, Entry>()
  readonly #runs = new Set<string>()
  readonly listeners: Listener[] = []

  constructor(options: SocketsOptions) {
    this.#options = options
  }

  async open(name: string, run?: string): Promise<string> {
    const sandbox = this.#options.snapshot().sandboxes.get(name)
    if (sandbox === undefined) throw new OperatorError(`there is no sandbox ${name}`)
    if (run !== undefined && !this.#runs.has(run))
      throw new LifecycleError('not_found', 'there is no such run')
    const key = `${sandbox.id} ${run ?? ''}`
    const known = this.#open.get(key)
    if (known !== undefined) return (await known.opening).path
    const opening = this.#start(sandbox, run)
    this.#open.set(key, { sandboxId: sandbox.id, run, opening })
    opening.catch(() => this.#open.delete(key))
    return (await opening).path
  }

  enter(run: string): void {
    this.#runs.add(run)
  }

  leave(run: string): void {
    this.#runs.delete(run)
    this.#end((entry) => entry.run === run)
  }

  prune(): void {
    const living = new Set(Array.from(this.#options.snapshot().sandboxes.values(), ({ id }) => id))
    this.#end((entry) => !living.has(entry.sandboxId))
  }

  async close(): Promise<void> {
    for (const { opening } of this.#open.values()) {
      const opened = await opening.catch(() => undefined)
      if (opened === undefined) continue
      await opened.listener.close()
      await rm(opened.path, { force: true })
    }
    this.#open.clear()
  }

  async #start({ id }: SandboxView, run: string | undefined): Promise<Opened> {
    const { plane, folder } = this.#options
    await mkdir(folder, { recursive: true, mode: 0o700 })
    // Ids are random and never reused: a socket of a destroyed sandbox is nobody's.
    const path = join(folder, `${(run ?? id).slice(-16)}.sock`)
    if (Buffer.byteLength(path) > maxSocketPath) {
      throw new OperatorError(
        `${path} is longer than ${maxSocketPath} bytes; choose a shorter path with the key \`state\``,
      )
    }
    const listener = await listen(plane, { kind: 'unix', path, openedFor: id, run })
    this.listeners.push(listener)
    return { path, listener }
  }

  #end(isOver: (entry: Entry) => boolean): void {
    for (const [key, entry] of this.#open) {
      if (!isOver(entry)) continue
      this.#open.delete(key)
      // What cannot be removed is found again by nobody; the socket itself is shut.
      entry.opening.then((opened) => this.#shut(opened)).catch(() => undefined)
    }
  }

  async #shut({ path, listener }: Opened): Promise<void> {
    this.listeners.splice(this.listeners.indexOf(listener), 1)
    listener.destroy()
    await listener.close()
    await rm(path, { force: true })
  }
}
