import { randomBytes } from 'node:crypto'
import { startAdminServer, startOwnerSocket } from '../admin/server.ts'
import type { ProxyListener } from '../config/model.ts'
import type { Holder } from '../identity/holder.ts'
import { listen, type Listener } from '../proxy/listener.ts'
import type { Control, NamedListener } from './control.ts'
import type { RunningPlane } from './plane.ts'
import { holderOf } from './port-holder.ts'

type Closers = (() => Promise<void> | void)[]

/** Opens every listener of `listen.proxy`, in order; a taken port is an `OperatorError` that names its holder. */
export async function openListeners(
  parts: { holder: Holder; running: RunningPlane; listeners: Listener[]; named: NamedListener[] },
  closers: Closers,
): Promise<void> {
  const { holder, running, listeners, named } = parts
  closers.push(() => {
    for (const listener of listeners) {
      void listener.close()
      listener.destroy()
    }
  })
  for (const at of holder.config().listen.proxy) {
    const listener = await listen(running.plane, at, holderOf)
    listeners.push(listener)
    named.push({ name: 'proxy', address: addressOf(listener, at) })
  }
}

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
