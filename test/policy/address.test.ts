import { BlockList, isIP } from 'node:net'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { ipv4Blocks, ipv6Blocks } from '../../src/policy/address-blocks.ts'
import {
  classify,
  contains,
  isMetadataName,
  judge,
  parseAddress,
  parseCidr,
} from '../../src/policy/address.ts'
import type { Cidr } from '../../src/policy/address.ts'
import { metadataAddresses } from '../../src/policy/metadata.ts'
import vectors from '../vectors/addresses.json' with { type: 'json' }

interface Row {
  name: string
  address: string
  class: string
  opened?: string[]
  reason?: string
}

const rows: Row[] = vectors

function range(text: string): Cidr {
  const result = parseCidr(text)
  if (!result.ok) throw new TypeError(result.problem)
  return result.cidr
}

describe('judging addresses', () => {
  it.each(rows)('$name', ({ address, class: found, opened = [], reason }) => {
    const expected =
      reason === undefined ? { allowed: true, class: found } : { allowed: false, reason, class: found }
    expect(judge(address, opened.map(range))).toEqual(expected)
  })

  it('refuses every metadata address, mapped and through NAT64 too, whatever is opened', () => {
    const everything = ['0.0.0.0/1', '128.0.0.0/1', '::/1', '8000::/1'].map(range)
    for (const text of metadataAddresses) {
      const forms = isIP(text) === 4 ? [text, `::ffff:${text}`, `64:ff9b::${text}`, `::${text}`] : [text]
      for (const form of forms) expect(judge(form, everything)).toMatchObject({ reason: 'metadata_denied' })
    }
  })
})

describe('the special-purpose registries', () => {
  // A second reading in whole numbers: of all rows that hold the address, the one with the longest prefix.
  const value = (text: string): bigint =>
    (parseAddress(text)?.words ?? []).reduce((sum, word) => (sum << 32n) | BigInt(word), 0n)
  const blocks = [...ipv4Blocks, ...ipv6Blocks].map(([cidr, found, rfc]) => {
    const [start = '', length = ''] = cidr.split('/')
    const size = 1n << BigInt((isIP(start) === 4 ? 32 : 128) - Number(length))
    return { cidr, family: isIP(start), found, rfc, first: value(start), size }
  })
  const isIpv4 = (at: bigint): boolean => at >> 32n === 0xffffn
  const text = (at: bigint): string => {
    if (!isIpv4(at))
      return at
        .toString(16)
        .padStart(32, '0')
        .replace(/(.{4})(?!$)/g, '$1:')
    return [24n, 16n, 8n, 0n].map((shift) => String((at >> shift) & 255n)).join('.')
  }
  const expectedClass = (at: bigint): string => {
    const holding = blocks
      .filter(({ family }) => family === (isIpv4(at) ? 4 : 6))
      .filter(({ first, size }) => at >= first && at < first + size)
    holding.sort((a, b) => (a.size < b.size ? -1 : 1))
    return holding[0]?.found ?? 'public'
  }

  it.each(blocks)('$cidr ($found) is right at its edges and just outside', ({ family, first, size }) => {
    const edges = [first - 1n, first, first + size - 1n, first + size]
    const inside = edges.filter((at) => at >= 0n && at < 1n << 128n && (family === 6 || isIpv4(at)))
    expect(inside.length).toBeGreaterThanOrEqual(2)
    for (const at of inside) {
      const address = parseAddress(text(at))
      // The inner address of these three is 0.0.0.0 or 255.255.255.255, which the table test of embeddings covers.
      const isEmbedding = ['nat64', 'nat64_local', 'ipv4_compatible'].includes(expectedClass(at))
      if (address === undefined) throw new TypeError(`no address: ${text(at)}`)
      if (isEmbedding) expect(judge(address, []).allowed).toBe(false)
      else expect(classify(address)).toBe(expectedClass(at))
    }
  })

  it('names an RFC for every row and no block twice', () => {
    for (const { rfc } of blocks) expect(rfc).toMatch(/^RFC [0-9]+$/)
    expect(new Set(blocks.map(({ cidr }) => cidr)).size).toBe(blocks.length)
  })
})

describe('parseAddress', () => {
  it.each([
    ['127.1'],
    ['0177.0.0.1'],
    ['2130706433'],
    ['1.2.3.4.'],
    ['[::1]'],
    ['::1%lo'],
    ['1:2:3:4:5:6:7'],
    ['1::2::3'],
    [''],
    [' 1.2.3.4'],
  ])('takes only plain text, not %s', (input) => {
    expect(parseAddress(input)).toBeUndefined()
  })

  it.each([
    ['2001:DB8:0:0:1:0:0:1', '2001:db8::1:0:0:1'],
    ['0:0:0:0:0:0:0:0', '::'],
    ['1:0:0:2:0:0:0:3', '1:0:0:2::3'],
    ['1:2:3:4:5:6:7:0', '1:2:3:4:5:6:7:0'],
    ['::ffff:1.2.3.4', '::ffff:102:304'],
    ['::1.2.3.4', '::102:304'],
  ])('writes %s as %s (RFC 5952)', (input, canonical) => {
    expect(parseAddress(input)?.text).toBe(canonical)
  })

  it('reads its own text as the same 128 bits', () => {
    const part = fc.oneof(fc.constant(0), fc.nat(0xffff))
    fc.assert(
      fc.property(fc.array(part, { minLength: 8, maxLength: 8 }), (parts) => {
        const address = parseAddress(parts.map((number) => number.toString(16)).join(':'))
        expect(parseAddress(address?.text ?? '')).toEqual(address)
        expect(address?.words).toEqual(
          [0, 2, 4, 6].map((at) => (parts[at] ?? 0) * 65_536 + (parts[at + 1] ?? 0)),
        )
      }),
      { numRuns: 1_000 },
    )
  })
})

describe('ranges', () => {
  it.each([
    ['10.0.0.1/8', 'bits set after the prefix', '10.0.0.0/8'],
    ['fd12::1/32', 'bits set after the prefix', 'fd12::/32'],
    ['10.0.0.0/33', 'longer than 32', undefined],
    ['fd00::/129', 'longer than 128', undefined],
    ['0.0.0.0/0', 'every address', undefined],
    ['::/0', 'every address', undefined],
    ['10.0.0.5', 'one address', '10.0.0.5/32'],
    ['fd00::5', 'one address', 'fd00::5/128'],
    ['::ffff:10.0.0.0/104', 'mapped', '10.0.0.0/8'],
    ['::ffff:10.0.0.5/104', 'mapped', '10.0.0.0/8'],
    ['::ffff:10.0.0.5', 'one address', '10.0.0.5/32'],
    ['10.0.0.9-10.0.0.1', 'not a range', undefined],
    ['10.0.0.0/08', 'not a range', undefined],
    ['10.0.0.0/-8', 'not a range', undefined],
    ['010.0.0.0/8', 'IP address in plain form', undefined],
    ['10.0/16', 'IP address in plain form', undefined],
    ['', 'not a range', undefined],
  ])('refuses %s', (text, problem, suggestion) => {
    const result = parseCidr(text)
    expect(result).toMatchObject({ ok: false, problem: expect.stringContaining(problem) as string })
    if (!result.ok) expect(result.suggestion).toBe(suggestion)
  })

  it('writes a range in canonical text', () => {
    expect(range('FD12:0:0::/32').text).toBe('fd12::/32')
    expect(range('10.20.0.0/16').text).toBe('10.20.0.0/16')
  })

  it('holds what the block list of Node holds', () => {
    const number = fc
      .tuple(fc.nat(255), fc.nat(255), fc.nat(255), fc.nat(255))
      .map((parts) => parts.join('.'))
    fc.assert(
      fc.property(number, number, fc.integer({ min: 1, max: 32 }), (base, other, length) => {
        const list = new BlockList()
        list.addSubnet(base, length, 'ipv4')
        const written = parseCidr(`${base}/${length}`)
        const cidr = range(written.ok ? written.cidr.text : (written.suggestion ?? ''))
        for (const text of [base, other]) {
          const address = parseAddress(text)
          if (address !== undefined) expect(contains(cidr, address)).toBe(list.check(text, 'ipv4'))
        }
      }),
      { numRuns: 1_000 },
    )
  })
})

describe('metadata names', () => {
  it.each([
    ['metadata.google.internal', true],
    ['metadata.goog', true],
    ['metadata', true],
    ['instance-data', true],
    ['instance-data.ec2.internal', true],
    ['instance-data.us-west-2.compute.internal', true],
    ['metadata.project.internal', true],
    ['x.metadata.google.internal', true],
    ['metadata.tencentyun.com', true],
    ['rancher-metadata', true],
    ['api.metadata.cloud.ibm.com', true],
    ['metadata.good.test', false],
    ['mymetadata.goog', false],
    ['x.metadata', false],
    ['google.internal', false],
    ['good.test', false],
  ])('%s: %s', (host, expected) => {
    expect(isMetadataName(host)).toBe(expected)
  })
})
