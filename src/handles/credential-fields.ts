/**
 * Fields in which APIs take credentials, lower-case. Where a client's own credential is refused, a value in any of them
 * is refused: an upstream that reads two fields could prefer the one that is not ours.
 */
const headerFields: ReadonlySet<string> = new Set([
  'authorization',
  'cookie',
  'cookie2',
  'api-key',
  'api-token',
  'apikey',
  'circle-token',
  'dd-api-key',
  'dd-application-key',
  'deploy-token',
  'job-token',
  'ocp-apim-subscription-key',
  'private-token',
  'x-access-token',
  'x-algolia-api-key',
  'x-amz-security-token',
  'x-api-key',
  'x-api-token',
  'x-apikey',
  'x-auth-key',
  'x-auth-token',
  'x-authorization',
  'x-consul-token',
  'x-figma-token',
  'x-functions-key',
  'x-gitlab-token',
  'x-goog-api-key',
  'x-goog-iam-authorization-token',
  'x-honeycomb-team',
  'x-jfrog-art-api',
  'x-ms-authorization-auxiliary',
  'x-nomad-token',
  'x-nuget-apikey',
  'x-octopus-apikey',
  'x-postmark-server-token',
  'x-rapidapi-key',
  'x-session-token',
  'x-shopify-access-token',
  'x-subscription-token',
  'x-token',
  'x-vault-token',
  'xi-api-key',
])

const queryParameters: ReadonlySet<string> = new Set([
  'access-key',
  'access-token',
  'accesskey',
  'accesstoken',
  'api-key',
  'api-token',
  'apikey',
  'apitoken',
  'auth',
  'auth-token',
  'authtoken',
  'awsaccesskeyid',
  'client-assertion',
  'client-secret',
  'id-token',
  'job-token',
  'jwt',
  'key',
  'oauth-token',
  'passwd',
  'password',
  'private-token',
  'refresh-token',
  'secret',
  'sig',
  'signature',
  'subscription-key',
  'token',
  'x-amz-credential',
  'x-amz-security-token',
  'x-amz-signature',
  'x-goog-credential',
  'x-goog-signature',
])

/**
 * A field or parameter name as servers fold it: in lower case, with `_` like `-`, since gateways that hand fields on as
 * environment variables (CGI, WSGI) make one name of both.
 */
export const foldedName = (name: string): string => name.toLowerCase().replaceAll('_', '-')

/** Is this header field, in any spelling, one in which an API takes a credential? */
export function isCredentialHeader(name: string): boolean {
  return headerFields.has(foldedName(name))
}

/** Does the query of a target (`path?query`) carry a value in a parameter in which an API takes a credential? */
export function hasCredentialParameter(target: string): boolean {
  const mark = target.indexOf('?')
  if (mark < 0) return false
  const query = target.slice(mark + 1)
  // Some servers end a parameter at `;` as well, the others take it for a part of the value.
  const pairs = query.includes(';') ? [...query.split('&'), ...query.split(/[&;]/)] : query.split('&')
  return pairs.some((pair) => {
    const equals = pair.indexOf('=')
    if (equals < 0 || equals === pair.length - 1) return false
    const name = parameterName(pair.slice(0, equals))
    return queryParameters.has(name) || headerFields.has(name)
  })
}

/** A parameter's name as the most lenient server reads it: PHP cuts it at NUL and takes space, dot and `[` for `_`. */
function parameterName(text: string): string {
  const [name = ''] = foldedName(percentDecode(text.replaceAll('+', ' '))).split('\0')
  return name
    .trim()
    .replace(/\[[^\]]*\]$/, '')
    .replaceAll(/[ .[]/g, '-')
}

/** Every `%XX` as the byte it stands for (Latin-1); bad escapes stay as they are. For looking only, never for sending. */
export function percentDecode(text: string): string {
  if (!text.includes('%')) return text
  return text.replace(/%([0-9A-Fa-f]{2})/g, (_, hex: string) => String.fromCharCode(parseInt(hex, 16)))
}
