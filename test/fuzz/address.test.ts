import { isIP } from 'node:net'
import {
  classify,
  contains,
  innerIpv4,
  judge,
  parseAddress,
  parseCidr,
  parseLooseIpv4,
} from '../../src/policy/address.ts'
import {
  isInside,
  readAddress,
  readGuard,
  readRange,
  writeAddress,
} from '../differential/second-reading-address.ts'
import { cidr } from '../policy/policy-fixtures.ts'
import { fuzz, holds, same } from './fuzz.ts'

const wide = ['0.0.0.0/1', '128.0.0.0/1', '::/1', '8000::/1'].map(cidr)

/** Texts of addresses and ranges: what a resolver answers, what a rule says. */
fuzz({
  name: 'address',
  inCi: 25_000,
  full: 1_000_000,
  maxBytes: 100,
  dictionary: [
    ...[
      '.',
      ':',
      '::',
      '/',
      '/0',
      '/8',
      '/32',
      '/33',
      '/128',
      '/129',
      '/08',
      '%eth0',
      '%',
      '[',
      ']',
      'x',
      '0x7f',
      '0177',
      ' ',
      '\n',
    ],
    ...[
      '127.0.0.1',
      '169.254.169.254',
      '10.0.0.0',
      '255',
      '256',
      '::ffff:',
      '64:ff9b::',
      '64:ff9b:1::',
      '2002:a9fe:a9fe:',
      '2001:0:',
    ],
    ...['fe80::', 'fd00:ec2::254', 'a9fe', 'FFFF', '00000', '1', '-', '+', 'e', '\u0661'],
  ],
  check(bytes) {
    const text = bytes.toString('utf8')
    const range = checkRange(text)
    parseLooseIpv4(text)
    const address = parseAddress(text)
    const value = readAddress(text)
    same(judge(text, []).allowed, readGuard(text, []) === 'pass', 'second reading of the guard')
    if (address === undefined) {
      same(value, undefined, 'a second reading takes what was refused')
      const judgement = judge(text, wide)
      holds(!judgement.allowed && judgement.class === 'unparsable', 'what is no address is let through')
      return range ?? 'refused'
    }
    same(isIP(address.text), address.family, 'family')
    same(address.text, writeAddress(value ?? 0n, address.family), 'canonical text')
    same(parseAddress(address.text), address, 'round trip')
    const kind = classify(address)
    const opened = judge(address, wide)
    if (judge(address, []).allowed) holds(opened.allowed, 'an opened range closes something')
    same(opened.allowed, kind !== 'metadata', 'metadata, and metadata alone, stays closed')
    for (const inner of innerIpv4(address)) {
      same(inner.family, 4, 'inner family')
      if (classify(inner) === 'metadata') same(kind, 'metadata', 'metadata inside')
    }
    return `taken:${kind}`
  },
})

/** A range in its one spelling holds its own addresses and no other. */
function checkRange(text: string): string | undefined {
  const parsed = parseCidr(text)
  if (!parsed.ok) {
    const { suggestion } = parsed
    if (suggestion !== undefined)
      holds(parseCidr(suggestion).ok, `the suggestion ${suggestion} is no good either`)
    return undefined
  }
  const { cidr: range } = parsed
  same(parseCidr(range.text), parsed, 'round trip of the range')
  const read = readRange(range.text)
  for (const probe of [
    '10.0.0.1',
    '127.0.0.1',
    '255.255.255.255',
    '::1',
    '64:ff9b::1',
    'fe80::1',
    range.text.replace(/\/.*/, ''),
  ]) {
    const address = parseAddress(probe)
    if (address !== undefined)
      same(contains(range, address), isInside(readAddress(probe) ?? 0n, read), `${range.text} holds ${probe}`)
  }
  return 'taken:range'
}
