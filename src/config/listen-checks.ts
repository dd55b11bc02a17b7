import { resolvePath } from './files.ts'
import { clash, isLoopback, maxSocketPath } from './listeners.ts'
import type { AdminListener, Config, ProxyListener } from './model.ts'
import { below, describePlace, problemAt } from './problem.ts'
import type { Place, Problem } from './problem.ts'
import { socketTooLong } from './proofs.ts'
import type { ListenWire } from './schema.ts'

/** A listener and where it is written. */
export interface PlacedListener {
  readonly listener: ProxyListener
  /** Where it would be written, for a default. */
  readonly place: Place
  /** Not written anywhere. */
  readonly isDefault?: boolean
}

interface PlacedAdmin {
  readonly listener: AdminListener
  readonly place: Place
  readonly isDefault: boolean
}

/** What `listen` and the identities of sandboxes ask for. */
export interface ListenInput {
  readonly listen: ListenWire
  /** Place of `listen`. */
  readonly place: Place
  readonly root: string
  readonly identity: readonly PlacedListener[]
  /** Does any sandbox, now or made from a template, prove itself by a password? */
  readonly takesPasswords: boolean
}

/** Where the proxy and the admin API listen by default. */
const defaultProxy: ProxyListener = {
  kind: 'tcp',
  host: '127.0.0.1',
  port: 18_080,
  tls: false,
  identity: false,
}
const defaultAdmin: AdminListener = { host: '127.0.0.1', port: 18_081 }

/** Checks every listener against the others; the result is usable only without problems. */
export function checkListeners(input: ListenInput): { listen: Config['listen']; problems: Problem[] } {
  const problems: Problem[] = []
  const proxies = proxyListeners(input, problems)
  const admin = input.listen.admin ?? defaultAdmin
  const isDefault = input.listen.admin === undefined
  const all = [...proxies, ...input.identity]
  problems.push(
    ...findClashes(all),
    ...adminClashes({ listener: admin, place: below(input.place, 'admin'), isDefault }, all),
  )
  if (input.listen.insecure !== true && input.takesPasswords) problems.push(...exposed(proxies))
  return { listen: { proxy: dedupe(all.map(({ listener }) => listener)), admin }, problems }
}

function proxyListeners(input: ListenInput, problems: Problem[]): PlacedListener[] {
  const written = input.listen.proxy ?? defaultProxy
  const listeners = Array.isArray(written) ? written : [written]
  return listeners.map((listener, index) => {
    const place = below(input.place, 'proxy', ...(Array.isArray(written) ? [index] : []))
    if (listener.kind === 'tcp') return { listener, place, isDefault: input.listen.proxy === undefined }
    const path = resolvePath(input.root, listener.path)
    if (Buffer.byteLength(path) > maxSocketPath) problems.push(problemAt(place, socketTooLong(path)))
    return { listener: { ...listener, path }, place }
  })
}

function findClashes(all: readonly PlacedListener[]): Problem[] {
  return all.flatMap((one, index) => {
    const other = all.slice(0, index).find((earlier) => collide(one.listener, earlier.listener))
    if (other === undefined) return []
    return [problemAt(one.place, `listens where the proxy does already: ${nameOf(other)}`)]
  })
}

function collide(a: ProxyListener, b: ProxyListener): boolean {
  // Sandboxes may share a socket or port of their own where further proofs tell them apart; `identity-checks.ts` sees to it.
  if (a.identity && b.identity) {
    return a.kind === 'tcp' && b.kind === 'tcp' && a.port === b.port && a.host !== b.host
  }
  if (a.kind === 'unix' || b.kind === 'unix') return a.kind === b.kind && samePath(a, b)
  // The port alone is the proof, so it must be nobody else's on any address.
  return clash(a, b) || ((a.identity || b.identity) && a.port === b.port && a.port !== 0)
}

const samePath = (a: ProxyListener, b: ProxyListener): boolean =>
  a.kind === 'unix' && b.kind === 'unix' && a.path === b.path

function adminClashes(admin: PlacedAdmin, all: readonly PlacedListener[]): Problem[] {
  const other = all.find(({ listener }) => listener.kind === 'tcp' && clash(admin.listener, listener))
  if (other === undefined) return []
  if (admin.isDefault) return [problemAt(other.place, 'listens where the admin API does by default')]
  return [problemAt(admin.place, `listens where the proxy does already: ${nameOf(other)}`)]
}

const nameOf = ({ place, isDefault }: PlacedListener): string =>
  isDefault === true ? 'the default of `listen.proxy`' : describePlace(place)

function exposed(proxies: readonly PlacedListener[]): Problem[] {
  return proxies.flatMap(({ listener, place }) => {
    if (listener.kind !== 'tcp' || listener.tls || isLoopback(listener.host)) return []
    const message =
      'proxy passwords would cross the network in cleartext; use https://ADDRESS:PORT, or say `insecure: true` in `listen`'
    const suggestion = `https://${listener.host.includes(':') ? `[${listener.host}]` : listener.host}:${listener.port}`
    return [problemAt(place, message, { suggestion })]
  })
}

function dedupe(listeners: readonly ProxyListener[]): ProxyListener[] {
  const byKey = new Map(listeners.map((listener) => [JSON.stringify(listener), listener]))
  return [...byKey.values()]
}
