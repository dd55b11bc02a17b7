/** An environment variable of the sandbox that carries a placeholder. */
export interface PlaceholderVariable {
  readonly env: string
  readonly placeholder: string
}

/** Where a sandbox finds the broker and what it trusts; all paths as the sandbox sees them. */
export interface EnvironmentInput {
  /** `https` when the listener itself speaks TLS. */
  readonly proxyScheme: 'http' | 'https'
  /** Name or IP literal, without brackets. */
  readonly proxyHost: string
  readonly proxyPort: number
  /** Proxy credentials; `undefined` where a socket, a port or the source is the proof. */
  readonly login: { readonly user: string; readonly token: string } | undefined
  /** PEM bundle: the system's roots and the broker's CA. For variables that replace a trust store. */
  readonly bundlePath: string
  /** PEM of the broker's CA alone. For variables that add to a trust store. */
  readonly caPath: string
  /** JKS of the bundle; `undefined` leaves Java's trust alone. */
  readonly javaTrustStore: string | undefined
  /** Configuration file for apt; `undefined` leaves apt's trust alone. */
  readonly aptConf: string | undefined
  readonly placeholders: readonly PlaceholderVariable[]
  /** Value of `JAVA_TOOL_OPTIONS` to keep in front of ours. */
  readonly javaToolOptions?: string | undefined
}

/**
 * Names that must not go through the proxy: the sandbox's own loopback, nothing else. Private ranges and metadata
 * addresses have to reach the broker, to be refused with a reason and logged.
 */
export const noProxy = 'localhost,127.0.0.1,::1'

/** Variables that replace a client's trust store, so that they need the whole bundle. */
export const bundleVariables = [
  'SSL_CERT_FILE',
  'CURL_CA_BUNDLE',
  'REQUESTS_CA_BUNDLE',
  'PIP_CERT',
  'AWS_CA_BUNDLE',
  'GIT_SSL_CAINFO',
  'CARGO_HTTP_CAINFO',
  'DENO_CERT',
  'npm_config_cafile',
  'CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE',
  'NIX_SSL_CERT_FILE',
  'PERL_LWP_SSL_CA_FILE',
  'HTTPLIB2_CA_CERTS',
  'GRPC_DEFAULT_SSL_ROOTS_FILE_PATH',
] as const

const proxyVariables = ['HTTP_PROXY', 'HTTPS_PROXY', 'ALL_PROXY', 'GRPC_PROXY'] as const

/** Every variable a sandbox needs to reach the broker, trust it and present its placeholders. */
export function sandboxEnvironment(input: EnvironmentInput): Record<string, string> {
  const url = proxyUrl(input)
  const env: Record<string, string> = {}
  // Both cases: curl reads only http_proxy in lower case, Ruby takes it even for https, others want upper case. ALL_PROXY
  // is http:// too, since httpx loads a SOCKS library for any other scheme and fails without it.
  for (const name of proxyVariables) {
    env[name] = url
    env[name.toLowerCase()] = url
  }
  env['NO_PROXY'] = noProxy
  env['no_proxy'] = noProxy
  // Node reads the proxy variables only with this (22.21 and later, 24.5 and later).
  env['NODE_USE_ENV_PROXY'] = '1'
  env['NODE_EXTRA_CA_CERTS'] = input.caPath
  for (const name of bundleVariables) env[name] = input.bundlePath
  // Without this git asks once without credentials and gives up when the connection closes.
  env['GIT_CONFIG_PARAMETERS'] = "'http.proxyAuthMethod=basic'"
  if (input.aptConf !== undefined) env['APT_CONFIG'] = input.aptConf
  env['JAVA_TOOL_OPTIONS'] = javaOptions(input)
  Object.assign(env, gcloud(input))
  for (const { env: name, placeholder } of input.placeholders) env[name] = placeholder
  return env
}

/** The proxy as a URL, credentials percent-encoded, such as `http://coder-1:token@127.0.0.1:18080`. */
export function proxyUrl(
  input: Pick<EnvironmentInput, 'proxyScheme' | 'proxyHost' | 'proxyPort' | 'login'>,
): string {
  const { proxyScheme, proxyHost, proxyPort, login } = input
  const host = proxyHost.includes(':') ? `[${proxyHost}]` : proxyHost
  const userinfo =
    login === undefined ? '' : `${encodeURIComponent(login.user)}:${encodeURIComponent(login.token)}@`
  return `${proxyScheme}://${userinfo}${host}:${proxyPort}`
}

// Java reads no proxy variable and cannot send a proxy password: it needs a listener that proves identity otherwise.
function javaOptions(input: EnvironmentInput): string {
  const options = ['http', 'https'].flatMap((scheme) => [
    `-D${scheme}.proxyHost=${input.proxyHost}`,
    `-D${scheme}.proxyPort=${input.proxyPort}`,
  ])
  // The default also exempts the wildcards of 127.* and [::1]; this is the same list as NO_PROXY.
  options.push('-Dhttp.nonProxyHosts=localhost|127.0.0.1|[::1]')
  if (input.javaTrustStore !== undefined) {
    options.push(`-Djavax.net.ssl.trustStore=${input.javaTrustStore}`, '-Djavax.net.ssl.trustStoreType=JKS')
  }
  const kept = input.javaToolOptions ?? ''
  return kept === '' ? options.join(' ') : `${kept} ${options.join(' ')}`
}

function gcloud({ proxyHost, proxyPort, login }: EnvironmentInput): Record<string, string> {
  const address = {
    CLOUDSDK_PROXY_TYPE: 'http',
    CLOUDSDK_PROXY_ADDRESS: proxyHost,
    CLOUDSDK_PROXY_PORT: String(proxyPort),
  }
  if (login === undefined) return address
  return { ...address, CLOUDSDK_PROXY_USERNAME: login.user, CLOUDSDK_PROXY_PASSWORD: login.token }
}
