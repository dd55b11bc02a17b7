type Environment = Readonly<Record<string, string | undefined>>

/** Flags of Node that weaken TLS or HTTP parsing, or write keys to a file; with or without `=VALUE`. */
const forbiddenFlags: Readonly<Record<string, string>> = {
  '--tls-keylog': 'writes the keys of every TLS connection to a file',
  '--insecure-http-parser': 'accepts HTTP messages that smuggle requests',
  '--tls-min-v1.0': 'allows broken versions of TLS',
  '--tls-min-v1.1': 'allows broken versions of TLS',
  '--tls-max-v1.2': 'forbids TLS 1.3',
  '--tls-cipher-list': 'replaces the list of ciphers',
  '--openssl-legacy-provider': 'loads broken algorithms',
  '--openssl-config': 'changes the settings of OpenSSL',
  '--openssl-shared-config': 'changes the settings of OpenSSL',
  '--trace-tls': 'prints TLS traffic to stderr',
}

/** Sections of NODE_DEBUG that print header fields or keys, and with them credentials. */
const leakySections = ['http', 'https', 'http2', 'tls', 'fetch', 'undici', 'websocket']

/** Sections may have `*` for anything. */
const sectionMatches = (pattern: string, section: string): boolean =>
  new RegExp(`^${pattern.replaceAll(/[^a-z0-9_*]/g, '').replaceAll('*', '.*')}$`).test(section)

/** Flags may be spelled with `_` for `-`. */
const flagName = (word: string): string => (word.split('=', 1)[0] ?? '').replaceAll('_', '-')

const wordsOf = (text: string | undefined): string[] =>
  (text ?? '')
    .replaceAll('"', '')
    .split(/\s+/)
    .filter((word) => word !== '')

function flagProblems(words: readonly string[], place: string): string[] {
  return words.flatMap((word) => {
    const name = flagName(word)
    const why = Object.hasOwn(forbiddenFlags, name) ? forbiddenFlags[name] : undefined
    return why === undefined ? [] : [`${place} has ${name}, which ${why}: remove it`]
  })
}

function debugProblems(env: Environment): string[] {
  const sections = (env['NODE_DEBUG'] ?? '').toLowerCase().split(/[\s,]+/)
  const leaky = sections.filter((pattern) =>
    leakySections.some((section) => sectionMatches(pattern, section)),
  )
  return leaky.length === 0
    ? []
    : [`NODE_DEBUG has ${leaky.join(', ')}, which prints header fields and keys: unset it`]
}

/**
 * What in the environment or the command line of this process would switch off a protection, a sentence each; the broker
 * does not start while there is one. `execArgv` is `process.execArgv`.
 */
export function environmentProblems(env: Environment, execArgv: readonly string[] = []): string[] {
  const problems: string[] = []
  if (env['NODE_TLS_REJECT_UNAUTHORIZED'] === '0') {
    problems.push('NODE_TLS_REJECT_UNAUTHORIZED=0 switches off the verification of certificates: unset it')
  }
  if (env['SSLKEYLOGFILE'])
    problems.push('SSLKEYLOGFILE asks for the keys of TLS connections in a file: unset it')
  return [
    ...problems,
    ...debugProblems(env),
    ...flagProblems(wordsOf(env['NODE_OPTIONS']), 'NODE_OPTIONS'),
    ...flagProblems(execArgv, 'the command line of node'),
  ]
}

const proxyVariables = ['HTTP_PROXY', 'HTTPS_PROXY', 'ALL_PROXY', 'NO_PROXY']

/** What in the environment has no effect on the broker, or another one than people expect; shown at start. */
export function environmentNotes(env: Environment): string[] {
  const notes: string[] = []
  if (env['NODE_EXTRA_CA_CERTS'])
    notes.push('NODE_EXTRA_CA_CERTS is ignored: list the file in `trust.ca` instead.')
  for (const name of ['SSL_CERT_FILE', 'SSL_CERT_DIR']) {
    if (env[name])
      notes.push(`${name} is where the system's trusted certificates are read from (\`trust.system\`).`)
  }
  const proxies = proxyVariables.flatMap((name) => [name, name.toLowerCase()]).filter((name) => env[name])
  if (proxies.length > 0) notes.push(`${proxies.join(', ')}: ignored, upstreams are dialled directly.`)
  if (env['OPENSSL_CONF']) notes.push('OPENSSL_CONF may change how OpenSSL behaves in this process.')
  return notes
}
