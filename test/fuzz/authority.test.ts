import { isIP } from 'node:net'
import { authorityOf, parseAuthority, parseHost, hostFieldOf } from '../../src/policy/destination.ts'
import { decide } from '../../src/policy/decide.ts'
import { coversHost, parseHostPattern } from '../../src/policy/host-pattern.ts'
import { compilePolicy } from '../../src/policy/rules.ts'
import { readAuthority } from '../differential/second-reading.ts'
import { get, input } from '../policy/policy-fixtures.ts'
import { fuzz, holds, same } from './fuzz.ts'

/** Authorities of CONNECT and Host fields, and hosts of rules, as one text. */
fuzz({
  name: 'authority',
  inCi: 15_000,
  full: 1_000_000,
  maxBytes: 400,
  dictionary: [
    ...[
      '.',
      '..',
      ':',
      ':443',
      ':0',
      ':65536',
      '[',
      ']',
      '[::1]',
      '::',
      '%25eth0',
      '@',
      '*',
      '*.',
      '**',
      '/',
      '\\',
      '#',
    ],
    ...[
      'any',
      'xn--',
      'xn--bcher-kva',
      '0x',
      '0x7f',
      '0177',
      '127.1',
      '2130706433',
      '::ffff:127.0.0.1',
      '\xe3\x80\x82',
    ],
    ...[
      '\xc2\xad',
      '\xef\xbd\x82',
      '\xe2\x93\x90',
      '\0',
      '\t',
      ' ',
      'co.uk',
      'localhost',
      '10.0.0.0/8',
      'https://',
      '?',
      '_',
      '-',
    ],
  ],
  check(bytes) {
    const text = bytes.toString('latin1')
    const outcome = checkAuthority(text)
    checkPattern(bytes.toString('utf8'))
    return outcome
  },
})

function checkAuthority(text: string): string {
  const parsed = parseAuthority(text, 443)
  const again = readAuthority(text, 443)
  if (!parsed.ok) {
    same(again, undefined, 'a second reading takes what was refused')
    return `refused:${parsed.problem}`
  }
  const { destination } = parsed
  const { host, port, ip } = destination
  same([host, port, ip], [again?.host, again?.port, again?.ip], 'second reading')
  same(isIP(host), ip, 'family')
  holds(/^[a-z0-9._-]{1,253}$|^[0-9a-f:]{2,39}$/.test(host) && !host.endsWith('.'), `not canonical: ${host}`)
  holds(Number.isInteger(port) && port > 0 && port < 65_536, `port ${port}`)
  same(parseAuthority(authorityOf(destination)), parsed, 'round trip')
  same(parseAuthority(hostFieldOf(destination, 'https'), 443), parsed, 'round trip of the Host field')
  // What URL parsers refuse (bad A-labels) is left to the resolver; what they take, they must take for the same host.
  const url = URL.parse(`https://${text}/`)
  if (url !== null) {
    same(url.hostname.replace(/^\[|\]$|\.$/g, ''), host, 'host of the URL')
    same(Number(url.port || 443), port, 'port of the URL')
  }
  return `taken:${ip}`
}

function checkPattern(text: string): void {
  const parsed = parseHostPattern(text)
  if (!parsed.ok) {
    const { suggestion } = parsed
    // `*.example.` and a suffix only shows where a name would go.
    if (suggestion === undefined || /^(\{|\*\.example\.)/.test(suggestion)) return
    holds(parseHostPattern(suggestion).ok, `the suggestion ${suggestion} is no good either`)
    return
  }
  const { pattern } = parsed
  same(parseHostPattern(pattern), parsed, 'round trip of the pattern')
  const policy = compilePolicy(input({ allow: [{ host: pattern }] }))
  if (pattern === 'any') return
  const apex = pattern.replace(/^\*\./, '')
  const below = pattern.startsWith('*.') ? `x.${apex}`.slice(-253) : apex
  holds(pattern.startsWith('*.') || isIP(apex) !== 0 || parseHost(apex).ok, `${pattern} is no host`)
  for (const host of [apex, below, `x${apex}`, `${apex}.x`]) {
    if (isIP(host) === 0 && !parseHost(host).ok) continue
    const decision = decide(policy, get(host))
    const isMetadata = decision.verdict === 'deny' && decision.reason === 'metadata_denied'
    const isCovered = coversHost(pattern, host)
    holds(isMetadata || (decision.verdict === 'allow') === isCovered, `decide: ${pattern} and ${host}`)
    same(
      isCovered,
      host === apex ? apex === pattern : host === below && pattern !== apex,
      `${pattern} covers ${host}`,
    )
  }
}
