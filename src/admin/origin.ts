import type { IncomingMessage } from 'node:http'

/** What is wrong with where a request came from, or `undefined`. */
export type OriginFault = 'host' | 'origin' | undefined

/** Values of `Host` that name a listener: loopback names and the address it listens on, with the port. */
export function hostsOf(address: string, port: number): ReadonlySet<string> {
  const names = new Set(['localhost', '127.0.0.1', '[::1]', address.includes(':') ? `[${address}]` : address])
  return new Set(
    [...names].flatMap((name) => (port === 80 ? [name, `${name}:80`] : [`${name}:${String(port)}`])),
  )
}

/**
 * Refuses what a browser sends for another site. An exact `Host` defeats DNS rebinding: the browser resolves
 * `evil.test` to loopback but still names it. `Origin` and `Sec-Fetch-Site` defeat cross-site requests.
 */
export function originFault(request: IncomingMessage, hosts: ReadonlySet<string>): OriginFault {
  // node:http keeps the first of two Host lines; RFC 9112 section 3.2 wants 400 for both, here the answer is one for all.
  const host = valuesOf(request, 'host')
  if (host.length !== 1 || !hosts.has((host[0] ?? '').toLowerCase())) return 'host'
  // An absolute-form target overrides Host (RFC 9112 section 3.2.2), so it may not bring another authority.
  if (!(request.url ?? '').startsWith('/')) return 'host'
  const origins = valuesOf(request, 'origin')
  if (origins.some((origin) => !isOwnOrigin(origin, hosts))) return 'origin'
  const sites = valuesOf(request, 'sec-fetch-site')
  if (sites.some((site) => site !== 'same-origin' && site !== 'none')) return 'origin'
  return undefined
}

function isOwnOrigin(origin: string, hosts: ReadonlySet<string>): boolean {
  return origin.startsWith('http://') && hosts.has(origin.slice('http://'.length).toLowerCase())
}

function valuesOf(request: IncomingMessage, name: string): string[] {
  const { rawHeaders } = request
  return rawHeaders.flatMap((field, index) =>
    index % 2 === 0 && field.toLowerCase() === name ? [rawHeaders[index + 1] ?? ''] : [],
  )
}
