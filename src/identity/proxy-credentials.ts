/** User and password of a proxy URL. */
export interface ProxyCredentials {
  /** Name of a sandbox. */
  readonly user: string
  readonly password: string
}

/**
 * Reads `Proxy-Authorization: Basic …` strictly (RFC 7617): one scheme in any case, canonical base64, UTF-8 without
 * control characters, a user before the first colon. `undefined` for everything else, lists of credentials included.
 */
export function readProxyCredentials(value: string): ProxyCredentials | undefined {
  const token = /^[ \t]*basic +([A-Za-z0-9+/]{4,4096}={0,2})[ \t]*$/i.exec(value)?.[1]
  if (token === undefined) return undefined
  const bytes = Buffer.from(token, 'base64')
  // Lenient decoders read several texts as the same bytes; only the one that encodes back is taken.
  if (bytes.toString('base64') !== token) return undefined
  const text = bytes.toString('utf8')
  if (!Buffer.from(text, 'utf8').equals(bytes) || /\p{Cc}/u.test(text)) return undefined
  const colon = text.indexOf(':')
  if (colon <= 0 || colon === text.length - 1) return undefined
  return { user: text.slice(0, colon), password: text.slice(colon + 1) }
}
