import { isIP } from 'node:net'
import type {
  AccessDestination,
  Destination,
  PolicyInput,
  PolicyRequest,
  Rule,
} from '../../src/policy/model.ts'
import type { Seeded } from '../helpers/seeded.ts'
import { cidr } from '../policy/policy-fixtures.ts'

/** Policies and requests that are near one another, so that most rules almost match. */

const names = ['a.test', 'b.a.test', 'c.b.a.test', 'xa.test', 'a.test.b.test', 'b.test', 'a', 'b.internal']
const special = [
  'localhost',
  'db.localhost',
  'metadata.google.internal',
  'x.metadata.google.internal',
  'metadata',
]
const literals = [
  ...['10.0.0.1', '10.0.0.2', '93.184.216.34', '169.254.169.254', '127.0.0.1', '168.63.129.16'],
  ...[
    '::ffff:a00:1',
    '::a00:1',
    '64:ff9b::a00:1',
    '64:ff9b::5db8:d822',
    '2002:a00:1::',
    'fd00::1',
    '2606:4700::1',
  ],
  ...['::1', 'fd00:ec2::254', '::ffff:a9fe:a9fe', '64:ff9b::a9fe:a9fe'],
]
const wildcards = [
  '*.a.test',
  '*.b.a.test',
  '*.test',
  '*.metadata.google.internal',
  '*.localhost',
  '*.internal',
]
const ranges = [
  '10.0.0.0/8',
  '10.0.0.1/32',
  '93.184.216.0/24',
  'fd00::/8',
  '64:ff9b::/96',
  '127.0.0.0/8',
  '::/1',
].map(cidr)
const pieces = [
  ...[
    '/v1',
    '/items',
    '/admin',
    '/',
    '//',
    '/z',
    '/%61dmin',
    '/%2561dmin',
    '/ADMIN',
    '/V1',
    '/x.js',
    '/a*b',
    '/a%2Ab',
  ],
  ...[
    '/..',
    '/.',
    '/%2e%2e',
    '/%252e',
    '%2F',
    '%2f',
    '%5C',
    '\\',
    '%00',
    '%',
    '%zz',
    '%25zz',
    ';x=1',
    ';',
    '/..;',
    '/~me',
  ],
  ...[
    '/%7Eme',
    '/a:b',
    '/a%3ab',
    '/a%3Ab',
    '/é',
    '%c3%a9',
    '%C3%89',
    '/item',
    '%20',
    '+',
    '*',
    '.',
    '..',
    '/...',
    '%c0%af',
    '%C1%9c',
    '%25252e',
    '%u002e',
    '%25252f',
    '%255c',
    '%2500',
    '%0a',
    '%2a',
  ],
]
const patterns = [
  ...[
    '/v1/**',
    '/v1/*',
    '/v1/items',
    '/**',
    '/admin/**',
    '/admin',
    '/*/items',
    '/v1/**/z',
    '/v1/item*',
    '/a%2Ab',
    '/~me',
  ],
  ...[
    '/%7Eme',
    '/v1/*/x.js',
    '/v1/**.js',
    '/*',
    '/',
    '/a:b',
    '/a%3Ab',
    '/a*b',
    '/v1/',
    '/ADMIN/*',
    '/**/admin',
    '/*/*/z',
  ],
  ...['/admin;x=1', '/v1//items', '/v1/*/', '/**/'],
]
const methods = ['GET', 'POST', 'DELETE', 'HEAD', 'get', 'Get']

const some = <T>(random: Seeded, from: readonly T[], most: number): T[] =>
  Array.from({ length: 1 + random.below(most) }, () => random.pick(from))
const maybe = <T>(random: Seeded, one: () => T, odds = 3): T | undefined =>
  random.below(odds) === 0 ? one() : undefined

const ports = [[443], [443], [443], [80], [8443], [443, 8443], [80, 443]]
const hostPattern = (random: Seeded): string =>
  random.pick([names, names, wildcards, literals, special, ['any']].map((list) => random.pick(list)))

function anyRule(random: Seeded, isDeny: boolean): Rule {
  const shared = {
    ports: isDeny && random.below(2) === 0 ? [] : random.pick(ports),
    scheme: random.pick(['https', 'https', 'http'] as const),
    methods: maybe(random, () => some(random, methods, 2)),
    paths: maybe(random, () => some(random, patterns, 2)),
    tls: random.pick(['terminate', 'splice'] as const),
    ownCredentials: random.pick(['pass', 'pass', 'refuse'] as const),
    expires: maybe(random, () => random.pick([50, 100, 101, 200]), 6),
  } as const
  if (random.below(5) === 0) return { ...shared, kind: 'address', address: random.pick(ranges) }
  const addresses = maybe(random, () => some(random, ranges, 2)) ?? []
  return { ...shared, kind: 'host', host: hostPattern(random), addresses }
}

/** Destinations of an access; never `any`. */
export function anyDestinations(random: Seeded, access: string): AccessDestination[] {
  return Array.from({ length: 1 + random.below(2) }, () => ({
    access,
    host: random.pick([names, names, wildcards, literals].map((list) => random.pick(list))),
    port: random.pick([443, 443, 443, 8443]),
    methods: maybe(random, () => some(random, methods, 2)),
    paths: maybe(random, () => some(random, patterns, 2)),
    addresses: maybe(random, () => some(random, ranges, 2)) ?? [],
  }))
}

export function anyPolicy(random: Seeded): PolicyInput {
  const list = (most: number, isDeny: boolean): Rule[] =>
    Array.from({ length: random.below(most + 1) }, () => anyRule(random, isDeny))
  const ofOthers = random.pick(names)
  return {
    allow: list(6, false),
    deny: list(2, true),
    access: Array.from({ length: random.below(3) }, (_, n) => anyDestinations(random, `access-${n}`)).flat(),
    bound: maybe(random, () => ({ has: (host: string, port: number) => host === ofOthers && port === 443 })),
  }
}

function destinationOf(host: string, port: number): Destination {
  const family = isIP(host)
  return { host, port, ip: family === 4 || family === 6 ? family : 0 }
}

const anyDestination = (random: Seeded): Destination =>
  destinationOf(
    random.pick([names, names, names, literals, special].map((list) => random.pick(list))),
    random.pick([443, 443, 443, 80, 8443, 22]),
  )

const slips = [...'%%%2fFeE5cC0.;/*~abA1\\', '']

/** What a server may still take for the same path. */
const disguises: readonly ((path: string, at: number) => string)[] = [
  (path) => `${path};x=1`,
  (path) => path.replace(/(?<=.)\//, ';v=2/'),
  (path) => path.replace('/', '//'),
  (path) => path.toUpperCase(),
  (path, at) => path.slice(0, at) + escapeOf(path.charAt(at)) + path.slice(at + 1),
  (path, at) => path.slice(0, at) + escapeOf(path.charAt(at)).replace('%', '%25') + path.slice(at + 1),
]
const escapeOf = (character: string): string =>
  character === '' || character === '/'
    ? character
    : `%${character.charCodeAt(0).toString(16).padStart(2, '0')}`

/** A raw path, often one that almost fits a pattern. */
export function anyPath(random: Seeded, near: readonly string[] = patterns): string {
  const pattern = random.pick(near).replaceAll('*', random.pick(['q', '', 'q/z']))
  if (random.below(3) === 0) {
    const disguised = random.pick(disguises)(pattern, random.below(pattern.length))
    return random.below(3) === 0
      ? random.pick(disguises)(disguised, random.below(disguised.length))
      : disguised
  }
  const start = random.pick([pattern, pattern, '/v1', ''])
  let path = start + Array.from({ length: random.below(4) }, () => random.pick(pieces)).join('')
  for (let times = random.below(5) - 2; times > 0; times--) {
    const at = random.below(path.length + 1)
    path = path.slice(0, at) + random.pick(slips) + path.slice(at + random.below(2))
  }
  return path.startsWith('/') ? path : `/${path}`
}

/** A request, two times in three one to the host, and near the path, that a rule of the policy is about. */
export function anyRequest(random: Seeded, policy: PolicyInput): PolicyRequest {
  const rules = [...policy.allow, ...policy.deny, ...policy.access]
  const rule = rules.length > 0 && random.below(3) > 0 ? random.pick(rules) : undefined
  const isAbout = rule !== undefined && 'host' in rule && rule.host !== 'any'
  const host = isAbout ? rule.host.replace('*.', random.pick(['b.', 'x.', 'b.x.'])) : undefined
  const usual = anyDestination(random)
  const destination = host === undefined ? usual : destinationOf(host, usual.port)
  if (random.below(5) === 0) return { kind: 'connect', destination, now: 100 }
  const paths = rule !== undefined && 'paths' in rule ? rule.paths : undefined
  return {
    kind: 'http',
    destination,
    scheme: random.pick(['https', 'https', 'http']),
    method: random.pick(methods),
    path: anyPath(random, paths),
    now: 100,
  }
}

/** Where a name may turn out to be. */
export const anyAddress = (random: Seeded): string => random.pick(literals)
