import { contains, parseAddress, parseCidr } from '../policy/address.ts'
import { parseAuthority } from '../policy/destination.ts'
import type { AdminListener, ProxyListener } from './model.ts'
import type { Parsed } from './units.ts'

/** Longest path of a unix socket, bytes: `sun_path` of Linux without its final NUL. */
export const maxSocketPath = 107

interface Endpoint {
  readonly host: string
  readonly port: number
}

const refuse = (problem: string, suggestion?: string): Parsed<never> => ({ ok: false, problem, suggestion })

/** `ADDRESS:PORT`; `localhost` means 127.0.0.1, port `0` any free one. */
export function parseEndpoint(text: string): Parsed<Endpoint> {
  const anyPort = text.endsWith(':0')
  const parsed = parseAuthority(anyPort ? `${text.slice(0, -1)}1` : text)
  if (!parsed.ok) {
    const isBare = /^[1-9]\d{0,4}$/.test(text)
    const why = isBare ? 'has no address' : parsed.problem
    return refuse(
      `\`${text.slice(0, 80)}\` is not ADDRESS:PORT; it ${why}`,
      isBare ? `127.0.0.1:${text}` : undefined,
    )
  }
  const { host, port, ip } = parsed.destination
  const shown = anyPort ? 0 : port
  if (host === 'localhost') return { ok: true, value: { host: '127.0.0.1', port: shown } }
  if (ip === 0) return refuse(`\`${host}\` is a name; a listener needs an address`, `127.0.0.1:${shown}`)
  return { ok: true, value: { host, port: shown } }
}

/** One entry of `listen.proxy`; socket paths stay as written. */
export function parseProxyListener(text: string): Parsed<ProxyListener> {
  if (text.startsWith('unix:')) {
    const path = text.slice('unix:'.length)
    if (path === '') return refuse('`unix:` needs a path, such as unix:/run/octroi/proxy.sock')
    return { ok: true, value: { kind: 'unix', path, identity: false } }
  }
  if (/^http:\/\//.test(text))
    return refuse('a plain listener has no scheme', text.slice('http://'.length).replace(/\/$/, ''))
  const tls = text.startsWith('https://')
  const endpoint = parseEndpoint(tls ? text.slice('https://'.length) : text)
  if (!endpoint.ok) return endpoint
  return { ok: true, value: { kind: 'tcp', ...endpoint.value, tls, identity: false } }
}

/** `listen.admin`: loopback only, since the admin API has the power to change what sandboxes may do. */
export function parseAdminListener(text: string): Parsed<AdminListener> {
  const endpoint = parseEndpoint(text)
  if (!endpoint.ok) return endpoint
  if (isLoopback(endpoint.value.host)) return endpoint
  return refuse('the admin API listens on loopback only', `127.0.0.1:${endpoint.value.port}`)
}

const loopback = ['127.0.0.0/8', '::1/128'].flatMap((text) => {
  const parsed = parseCidr(text)
  return parsed.ok ? [parsed.cidr] : []
})

/** Is the IP literal reachable from this machine only? */
export function isLoopback(host: string): boolean {
  const address = parseAddress(host)
  return address !== undefined && loopback.some((range) => contains(range, address))
}

/** Do two listeners want the same port? The wildcard addresses take every one; port 0 never clashes. */
export function clash(a: Endpoint, b: Endpoint): boolean {
  if (a.port !== b.port || a.port === 0) return false
  return a.host === b.host || [a.host, b.host].some((host) => host === '0.0.0.0' || host === '::')
}
