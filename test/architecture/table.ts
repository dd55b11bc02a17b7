/**
 * The rules of the architecture as data. A folder of `src/` (or a file directly in it, without `.ts`) may import itself,
 * what this table lists, and nothing else.
 */
const everything = [
  ...[
    'core',
    'policy',
    'handles',
    'redact',
    'http1',
    'config',
    'identity',
    'store',
    'issuers',
    'broker',
    'audit',
  ],
  ...['tls', 'net', 'sandbox', 'proxy', 'admin', 'logger', 'app'],
]

/** Who may import whom. Acyclic, which a test proves. */
export const mayImport: Readonly<Record<string, readonly string[]>> = {
  core: [],
  policy: ['core'],
  redact: ['core'],
  http1: ['core'],
  store: ['core'],
  issuers: ['core'],
  audit: ['core'],
  tls: ['core'],
  logger: ['core'],
  net: ['core', 'policy'],
  handles: ['core', 'policy'],
  config: ['core', 'policy', 'handles'],
  broker: ['core', 'policy', 'handles', 'issuers', 'store'],
  identity: ['core', 'policy', 'handles', 'config', 'store'],
  sandbox: ['core', 'config'],
  proxy: ['core', 'policy', 'handles', 'redact', 'http1', 'identity', 'broker', 'audit', 'tls', 'net'],
  admin: ['core', 'policy', 'handles', 'config', 'identity', 'broker', 'store', 'audit'],
  app: everything.filter((name) => name !== 'app'),
  cli: everything.filter((name) => name !== 'proxy'),
  main: ['cli'],
}

/** Files of `src/` in which a package, or a built-in module with a home, may be imported. Others may be imported nowhere. */
export const packageHomes: Readonly<Record<string, RegExp>> = {
  zod: /^(config|admin)\//,
  yaml: /^config\//,
  jose: /^(store\/seal\.ts|issuers\/|admin\/auth\.ts)/,
  'lru-cache': /^(tls\/leaf-cache|broker\/lease-cache|net\/resolver)\.ts$/,
  pino: /^logger\.ts$/,
  fastify: /^admin\//,
  commander: /^cli\//,
  '@peculiar/x509': /^tls\//,
  'reflect-metadata': /^tls\//,
  'http-proxy': /^proxy\/upgrade\.ts$/,
  tldts: /^policy\//,
  'ipaddr.js': /^policy\/address\.ts$/,
  'node:sqlite': /^(store\/sqlite[^/]*\.ts|audit\/)/,
}

/** Files that take values and return values: no socket, file, clock, randomness or logger. */
export const pureFiles = /^(policy\/|handles\/|redact\/|http1\/|audit\/chain\.ts$|tls\/client-hello\.ts$)/

/** What pure files may take from built-in modules, by name. */
export const pureBuiltins: Readonly<
  Record<string, { readonly files: RegExp; readonly names: readonly string[] }>
> = {
  'node:net': { files: pureFiles, names: ['isIP', 'isIPv4', 'isIPv6'] },
  'node:crypto': { files: /^audit\/chain\.ts$/, names: ['createHash', 'hash'] },
}

/** Globals through which time, randomness and the world come in. */
export const impureGlobals = [
  ...['Date', 'process', 'console', 'performance', 'crypto', 'fetch', 'globalThis'],
  ...['setTimeout', 'setInterval', 'setImmediate', 'queueMicrotask'],
]

/** The files that may open a `Secret`. */
export const mayReveal = /^(proxy\/swap\.ts|redact\/forms\.ts|store\/seal\.ts|issuers\/[^/]+\.ts)$/

/**
 * Files from which no connection may be opened but through `net/connector.ts`, so that every dial is guarded. The
 * owner's socket asks a local socket whether someone still listens.
 */
export const mayNotDial =
  /^(core|policy|handles|redact|http1|identity|store|issuers|broker|audit|tls|proxy|admin)\/(?!owner-socket\.ts$)/

/** What opens a connection or resolves a name, by module. */
export const dialers: Readonly<Record<string, readonly string[]>> = {
  'node:net': ['connect', 'createConnection'],
  'node:http': ['request', 'get'],
  'node:https': ['request', 'get'],
  'node:http2': ['connect'],
  'node:dns': ['*'],
  'node:dns/promises': ['*'],
  'node:dgram': ['*'],
}

/** Words that say nothing; banned in file names, and as the last word of an exported name of a type. */
export const emptyWords = [
  ...[
    'util',
    'utils',
    'helper',
    'helpers',
    'common',
    'misc',
    'manager',
    'service',
    'handler',
    'info',
    'base',
  ],
]

export const maxFileLines = 300
export const maxFunctionLines = 60
