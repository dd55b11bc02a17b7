import { randomBytes } from 'node:crypto'
import { startAdminServer, startOwnerSocket } from '../admin/server.ts'
import type { ProxyListener } from '../config/model.ts'
import { OperatorError } from '../core/errors.ts'
import type { Holder, Prepare } from '../identity/holder.ts'
import { listen, type Listener } from '../proxy/listener.ts'
import type { Control, NamedListener } from './control.ts'
import type { RunningPlane } from './plane.ts'
import { holderOf } from './port-holder.ts'

type Closers = (() => Promise<void> | void)[]

/** What the listeners of the data plane are announced as. */
const proxy = 'proxy'

/** The listeners of `listen.proxy` and of identities. */
export interface Doors {
  /**
   * Opens what the configuration has and is not open yet, in order; a taken port is an `OperatorError` that names its
   * holder, and nothing has changed. With `commit` they are announced and what it has no more is closed.
   */
  prepare: Prepare
}

interface Door {
  readonly at: ProxyListener
  readonly listener: Listener
  readonly named: NamedListener
}

/** Keeps `listeners` and `named` as what is open; none is at first, and none ever in a private broker. */
export function createDoors(
  parts: { running: RunningPlane; listeners: Listener[]; named: NamedListener[]; isPrivate: boolean },
  closers: Closers,
): Doors {
  const { running, listeners, named, isPrivate } = parts
  const open = new Map<string, Door>()
  const left = new Set<Listener>()
  closers.push(() => {
    for (const listener of [...listeners, ...left]) end(listener)
  })

  function close({ at, listener }: Door): void {
    // A connection that a removed port or socket identified is nobody's; any other may finish what it carries.
    if (at.identity) return end(listener)
    left.add(listener)
    void listener.close()
  }

  /** Shows what is open, in the order of the configuration. */
  function announce(keys: readonly string[]): void {
    const doors = keys.map((key) => open.get(key)).filter((door) => door !== undefined)
    const others = named.filter(({ name }) => name !== proxy)
    listeners.splice(0, listeners.length, ...doors.map(({ listener }) => listener))
    named.splice(0, named.length, ...doors.map((door) => door.named), ...others)
  }

  return {
    async prepare(config) {
      const wanted = isPrivate ? [] : config.listen.proxy
      const keys = wanted.map(keyOf)
      const fresh: Door[] = []
      const abort = (): void => {
        for (const { listener } of fresh) end(listener)
      }
      try {
        for (const at of wanted.filter((one) => !open.has(keyOf(one)))) {
          refuseTaken(at, open.values())
          const listener = await listen(running.plane, at, holderOf)
          fresh.push({ at, listener, named: { name: proxy, address: addressOf(listener, at) } })
        }
      } catch (error) {
        abort()
        throw error
      }
      const commit = (): void => {
        for (const door of fresh) open.set(keyOf(door.at), door)
        for (const [key, door] of [...open]) {
          if (keys.includes(key)) continue
          open.delete(key)
          close(door)
        }
        announce(keys)
      }
      return { commit, abort }
    },
  }
}

/** Two listeners on one path: the end of the old one would remove the socket of the new one. */
function refuseTaken(at: ProxyListener, open: Iterable<Door>): void {
  if (at.kind === 'tcp') return
  for (const { at: other } of open) {
    if (other.kind === 'tcp' || other.path !== at.path) continue
    throw new OperatorError(`${at.path} is open for something else; it can be changed by a restart`)
  }
}

function end(listener: Listener): void {
  void listener.close()
  listener.destroy()
}

/** A listener for everybody and one that proves something are two, even in the same place. */
const keyOf = (at: ProxyListener): string => JSON.stringify(at)

function addressOf({ at }: Listener, configured: ProxyListener): string {
  if ('path' in at) return `unix:${at.path}`
  const host = at.host.includes(':') ? `[${at.host}]` : at.host
  return `${configured.kind === 'tcp' && configured.tls ? 'https' : 'http'}://${host}:${at.port}`
}

/**
 * Opens the owner-only socket and, unless the broker is private, the admin listener. Commands find a private broker by
 * its socket like any other.
 */
export async function openAdmin(
  parts: { holder: Holder; control: Control; named: NamedListener[]; isPrivate: boolean },
  closers: Closers,
): Promise<void> {
  const { holder, control, named, isPrivate } = parts
  const { stateFolder, listen: listenAt } = holder.config()
  const deps = control.adminDeps((bytes) => randomBytes(bytes))
  if (isPrivate) {
    const owner = await startOwnerSocket(deps, stateFolder)
    closers.push(() => owner.stop())
    named.push({ name: 'admin', address: `unix:${owner.socketPath}` })
    return
  }
  const server = await startAdminServer(deps, { stateFolder, listen: listenAt.admin, holderOf })
  closers.push(() => server.stop())
  const host = server.host.includes(':') ? `[${server.host}]` : server.host
  named.push(
    { name: 'admin', address: `http://${host}:${server.port}` },
    { name: 'admin', address: `unix:${server.socketPath}` },
  )
}
