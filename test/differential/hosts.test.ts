import { describe, expect, it } from 'vitest'
import { parseAuthority, parseHost } from '../../src/policy/destination.ts'
import { proofCount, runSeed } from '../helpers/proof-count.ts'
import { seeded, type Seeded } from '../helpers/seeded.ts'
import { readAuthority, readHost } from './second-reading.ts'

const seed = runSeed()
const count = proofCount(60_000, 1_000_000)

const labels = [
  ...[
    'a',
    'api',
    'good',
    'test',
    'wild',
    'EVIL',
    'xn--bcher-kva',
    '_x',
    '-',
    'a-',
    '0',
    '1',
    '08',
    '0x',
    '0x7f',
  ],
  ...[
    '0xG',
    '127',
    '255',
    '256',
    '1e3',
    '4294967295',
    '4294967296',
    '0177',
    '00',
    'localhost',
    'internal',
    '',
  ],
  'a'.repeat(63),
  'b'.repeat(64),
]
const groups = [
  '0',
  '1',
  '',
  'ffff',
  'FFFF',
  '7f00',
  'a9fe',
  '00000',
  'g',
  '2001',
  'db8',
  '64',
  'ff9b',
  '127.0.0.1',
  '1.2.3',
]
const odd = [
  ...'\0\t\n\r .:[]@/\\%?#*,;"<>_-xX\u007f\u0080\u0085\u00a0\u00ad\u00ff',
  '%2e',
  '::',
  '..',
  '0x',
  '1',
]

function name(random: Seeded): string {
  return Array.from({ length: 1 + random.below(5) }, () => random.pick(labels)).join('.')
}

function bracketed(random: Seeded): string {
  const length = random.pick([8, 8, 7, 6, 3, 2, 9])
  const inner = Array.from({ length }, () => random.pick(groups)).join(random.pick([':', ':', ':', '::']))
  return random.pick(['[%]', '[%]', '[%]', '%', '[%', '[%]]', '[%%25eth0]']).replace('%', inner)
}

const number = (random: Seeded): string => {
  const value = random.pick([256, 65_536, 16_777_216, 4_294_967_296, 1e10])
  const n = random.below(value)
  return random.pick([
    String(n),
    `0x${n.toString(16)}`,
    `0X${n.toString(16).toUpperCase()}`,
    `0${n.toString(8)}`,
  ])
}

const numbers = (random: Seeded): string =>
  Array.from({ length: 1 + random.below(5) }, () => number(random)).join('.')

/** A host, often with a slip in it. */
export function anyHost(random: Seeded): string {
  let text = random.pick([name, name, numbers, bracketed])(random)
  if (random.below(4) === 0) text += '.'
  for (let slips = random.below(4) - 1; slips > 0; slips--) {
    const at = random.below(text.length + 1)
    text = text.slice(0, at) + random.pick(odd) + text.slice(at + random.below(2))
  }
  return random.below(8) === 0 ? text.toUpperCase() : text
}

const port = (random: Seeded): string =>
  random.pick([
    ':443',
    ':443',
    '',
    ':',
    ':0',
    ':80',
    ':65535',
    ':65536',
    ':00443',
    ':+443',
    ':4 43',
    ':443x',
    ':-1',
  ])

describe(`hosts read twice, OCTROI_SEED=${seed}`, () => {
  it(`is the same host for both readings, or none, over ${count} texts`, () => {
    const random = seeded(seed)
    let taken = 0
    for (let number = 0; number < count; number++) {
      const text = anyHost(random)
      const ours = parseHost(text)
      const read = readHost(text)
      const found = ours.ok ? { host: ours.host, ip: ours.ip } : undefined
      if (ours.ok) taken++
      if (found?.host !== read?.host || found?.ip !== read?.ip) {
        expect({ number, text, found }).toEqual({ number, text, found: read })
      }
      const whole = text + port(random)
      const fallback = random.below(2) === 0 ? undefined : 80
      const authority = parseAuthority(whole, fallback)
      const other = readAuthority(whole, fallback)
      const destination = authority.ok ? authority.destination : undefined
      if (destination?.host !== other?.host || destination?.port !== other?.port) {
        expect({ number, whole, destination }).toEqual({ number, whole, destination: other })
      }
    }
    expect(taken).toBeGreaterThan(count / 10)
    expect(taken).toBeLessThan((count * 9) / 10)
  })

  it('is read by what resolvers and URLs read, wherever they read it at all', () => {
    const random = seeded(seed + 1)
    let compared = 0
    for (let number = 0; number < count / 10; number++) {
      const text = anyHost(random)
      const ours = parseHost(text)
      const url = ours.ok ? URL.parse(`http://${text}/`) : null
      if (!ours.ok || url === null) continue
      compared++
      const hostname = url.hostname.replace(/^\[|\]$|\.$/g, '')
      if (hostname !== ours.host)
        expect({ number, text, host: ours.host }).toEqual({ number, text, host: hostname })
    }
    expect(compared).toBeGreaterThan(count / 200)
  })
})
