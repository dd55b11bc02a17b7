import { Refusal } from '../../src/core/errors.ts'
import { parseRequestHead, requestLimits } from '../../src/http1/head.ts'
import { hostFieldOf, parseAbsoluteTarget } from '../../src/policy/destination.ts'
import { compilePath, isAmbiguousPath, matchesPath, parsePathPattern } from '../../src/policy/path-pattern.ts'
import { readConnect, readRequest, type ClientRequest, type Inside } from '../../src/proxy/request.ts'
import { isTwoFaced } from '../differential/second-reading.ts'
import { fuzz, holds, same } from './fuzz.ts'

const tunnel: Inside = { scheme: 'https', destination: { host: 'api.good.test', port: 443, ip: 0 } }
const everything = compilePath('/**')

/** Request targets of a forward proxy and of a tunnel, and the paths of rules. */
fuzz({
  name: 'request-target',
  inCi: 15_000,
  full: 1_000_000,
  maxBytes: 600,
  dictionary: [
    ...[
      'http://',
      'https://',
      'HTTP://',
      'ftp:',
      '//',
      '/',
      '\\',
      '?',
      '#',
      '@',
      ':',
      ':80',
      ':443',
      '*',
      '**',
      '/**',
      '/*',
    ],
    ...[
      '..',
      '/../',
      '/./',
      '%2e',
      '%2F',
      '%5c',
      '%00',
      '%25',
      '%zz',
      '%',
      ';',
      ';x',
      '%c0%af',
      '%u002e',
      '//',
      '.',
    ],
    ...[
      'api.good.test',
      '[::1]',
      '127.0.0.1',
      ' ',
      '\t',
      '\0',
      '\x7f',
      '\xff',
      '<>"{}|^`',
      '+',
      '=',
      '&',
      'a',
    ],
  ],
  check(bytes) {
    const target = bytes.toString('latin1')
    checkPathPattern(target)
    const outcomes = [undefined, tunnel].map((inside) => checkTarget(target, inside))
    checkConnect(target)
    return outcomes.find((outcome) => outcome.startsWith('taken')) ?? outcomes.join()
  },
})

function checkTarget(target: string, inside: Inside | undefined): string {
  const absolute = parseAbsoluteTarget(target)
  const host = absolute.ok ? hostFieldOf(absolute.destination, absolute.scheme) : 'api.good.test'
  const head = parseRequestHead(`GET ${target} HTTP/1.1\r\nHost: ${host}`, requestLimits)
  if ('problem' in head) return `refused:${head.problem}`
  let request: ClientRequest
  try {
    request = readRequest(head, inside)
  } catch (error) {
    if (error instanceof Refusal) return `refused:${error.reason} ${error.detail}`
    throw error
  }
  for (const fields of [
    [['Host', 'other.test']],
    [
      ['Host', host],
      ['Host', host],
    ],
    [],
  ] as const) {
    holds(
      isRefused(() => readRequest({ ...head, fields }, inside)),
      `taken with ${JSON.stringify(fields)}`,
    )
  }
  same(head.target, target, 'the target of the head')
  holds(
    target.endsWith(request.target) || request.target === `/${tailOf(target)}`,
    'bytes of the target changed',
  )
  holds(request.target.startsWith(request.path) && /^\/[^?#]*$/.test(request.path), `path ${request.path}`)
  if (inside !== undefined) same(request.destination, inside.destination, 'a target led out of its tunnel')
  checkAsUrl(target, request)
  same(isAmbiguousPath(request.path), isTwoFaced(request.path), `second reading of ${request.path}`)
  holds(matchesPath(everything, request.path), 'a path that /** does not match')
  return `taken:${request.scheme} ${isAmbiguousPath(request.path)}`
}

function isRefused(read: () => unknown): boolean {
  try {
    read()
    return false
  } catch (error) {
    return error instanceof Refusal
  }
}

/** What stands behind the authority where there is no path. */
const tailOf = (target: string): string => /^[a-z]+:\/\/[^/?]*(.*)$/i.exec(target)?.[1] ?? ''

/** What URL parsers take, they must take for the same destination and, if it is not ambiguous, for the same path. */
function checkAsUrl(target: string, request: ClientRequest): void {
  const url = URL.parse(target, 'https://api.good.test/')
  if (url === null || target.startsWith('//') || /^\/[\\/]/.test(target)) return
  same(url.hostname.replace(/^\[|\]$|\.$/g, ''), request.destination.host, 'host of the URL')
  same(url.protocol, `${request.scheme}:`, 'scheme of the URL')
  same([url.username, url.password, url.hash], ['', '', ''], 'parts that are never forwarded')
  if (isAmbiguousPath(request.path)) return
  const plain = (path: string): string => Buffer.from(unescaped(path), 'latin1').toString('hex')
  same(plain(url.pathname), plain(request.path), 'path of the URL')
}

const unescaped = (text: string): string =>
  text.replace(/%([0-9a-f]{2})/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)))

function checkConnect(target: string): void {
  const head = parseRequestHead(`CONNECT ${target} HTTP/1.1\r\nHost: ${target}`, requestLimits)
  if ('problem' in head) return
  try {
    const { host, port } = readConnect(head)
    holds(
      port > 0 && port < 65_536 && host !== '' && host === host.toLowerCase(),
      `CONNECT to ${host}:${port}`,
    )
  } catch (error) {
    if (!(error instanceof Refusal)) throw error
  }
}

function checkPathPattern(text: string): void {
  const parsed = parsePathPattern(text)
  if (parsed.ok) {
    // A pattern without wildcards matches itself, so that no rule is dead.
    if (!text.includes('*'))
      holds(matchesPath(compilePath(text), decoded(text)), `${text} does not match itself`)
    return
  }
  const { suggestion } = parsed
  if (suggestion !== undefined && !isAmbiguousPath(suggestion) && suggestion.length <= 1_024) {
    const again = parsePathPattern(suggestion)
    holds(again.ok || again.suggestion !== suggestion, `${suggestion} is suggested for itself`)
  }
}

/** Paths are compared with unreserved escapes undone and the others in upper case, as `decide` hands them over. */
const decoded = (text: string): string =>
  text.replace(/%[0-9a-f]{2}/gi, (escape) => {
    const character = unescaped(escape)
    return /[\w.~-]/.test(character) ? character : escape.toUpperCase()
  })
