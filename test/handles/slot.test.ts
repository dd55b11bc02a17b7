import { describe, expect, it } from 'vitest'
import type { Slot } from '../../src/handles/model.ts'
import {
  credentialFits,
  decodeBasic,
  holdsExactly,
  maxCredentialBytes,
  sameSlot,
  swapValue,
} from '../../src/handles/slot.ts'

const bearer: Slot = { kind: 'header', name: 'Authorization', scheme: 'Bearer' }
const bare: Slot = { kind: 'header', name: 'x-api-key', scheme: undefined }
const user: Slot = { kind: 'basic', field: 'user' }
const password: Slot = { kind: 'basic', field: 'password' }
const basic = (text: string, encoding: BufferEncoding = 'utf8') =>
  `Basic ${Buffer.from(text, encoding).toString('base64')}`
const h = 'octroi0123456789ABCDEFGHIJKL'

describe('swapValue', () => {
  it('writes the scheme as the slot spells it', () => {
    expect(swapValue(bearer, `bearer ${h}`, 'K1')).toBe('Bearer K1')
    expect(swapValue(bare, h, 'K1')).toBe('K1')
  })

  it('swaps inside Basic credentials and leaves the other field byte for byte', () => {
    expect(swapValue(password, basic(`x-access-token:${h}`), 'K:1')).toBe(basic('x-access-token:K:1'))
    expect(swapValue(user, basic(`${h}:`), 'K1')).toBe(basic('K1:'))
    expect(swapValue(user, basic(`${h}:\xe9\xff`, 'latin1'), 'K1')).toBe(basic('K1:\xe9\xff', 'latin1'))
    expect(swapValue(password, basic(`u:${h}`), 'schlüssel')).toBe(basic('u:schlüssel'))
  })

  it('fills both fields of one header by two calls', () => {
    const first = swapValue(user, basic(`${h}U:${h}P`), 'me')
    expect(swapValue(password, first, 'K1')).toBe(basic('me:K1'))
  })

  it('refuses a value that is not Basic credentials', () => {
    expect(() => swapValue(password, 'Basic !!', 'K1')).toThrow(TypeError)
  })
})

describe('holdsExactly', () => {
  it.each([
    ['the scheme, one space and the placeholder', bearer, `Bearer ${h}`, true],
    ['the scheme in another case', bearer, `bEARER ${h}`, true],
    ['two spaces', bearer, `Bearer  ${h}`, false],
    ['a tab for the space', bearer, `Bearer\t${h}`, false],
    ['another scheme', bearer, `token ${h}`, false],
    ['the placeholder without the scheme', bearer, h, false],
    ['something before the placeholder', bearer, `Bearer x${h}`, false],
    ['something after the placeholder', bearer, `Bearer ${h}x`, false],
    ['the placeholder alone', bare, h, true],
    ['a scheme where the slot has none', bare, `Bearer ${h}`, false],
    ['a password', password, basic(`u:${h}`), true],
    ['a user name', user, basic(`${h}:`), true],
    ['the placeholder in the other field', password, basic(`${h}:`), false],
    ['the placeholder in both fields', password, basic(`${h}:${h}`), false],
    ['base64 without its padding', password, basic(`me:${h}`).replace(/=+$/, ''), false],
    ['base64 with bits to spare', password, basic(`me:${h}`).replace(/.=*$/, '~'), false],
    ['the placeholder itself as base64', password, `Basic ${h}`, false],
  ] as const)('judges %s', (_, slot, value, expected) => {
    expect(holdsExactly(slot, value, h)).toBe(expected)
  })
})

describe('decodeBasic', () => {
  it('splits at the first colon and decodes strictly', () => {
    expect(decodeBasic(basic('a:b:c'))).toEqual({ user: 'a', password: 'b:c' })
    expect(decodeBasic('basic YTpi')).toEqual({ user: 'a', password: 'b' })
  })

  it.each([
    'Basic',
    'Basic ',
    'Basic YTpi=',
    'Basic YTpj IA',
    'Basic YTp-',
    'Basic YTo=x',
    'Basic YTp=',
    'Basic YWI=',
    'Bearer YTpi',
  ])('reads nothing in %s', (value) => {
    expect(decodeBasic(value)).toBeUndefined()
  })
})

describe('credentialFits', () => {
  it.each([
    ['a printable key', bearer, 'sk-abc.DEF/123+=', true],
    ['an inner space', bare, 'a b', true],
    ['nothing', bearer, '', false],
    ['a line feed', bearer, 'a\nb', false],
    ['a final line feed', bearer, 'ab\n', false],
    ['a carriage return', bare, 'a\r\nx: y', false],
    ['a NUL', bare, 'a\0b', false],
    ['a leading space', bearer, ' ab', false],
    ['a final space', bearer, 'ab ', false],
    ['a character outside ASCII', bearer, 'schlüssel', false],
    ['a character outside ASCII in Basic', password, 'schlüssel', true],
    ['a colon in a password', password, 'a:b', true],
    ['a colon in a user name', user, 'a:b', false],
    ['a line feed in Basic', password, 'a\nb', false],
    ['a C1 control character in Basic', password, 'a\x85b', false],
    ['a lone surrogate in Basic', password, 'a\ud800', false],
    ['64 KiB', bearer, 'a'.repeat(64 * 1024), false],
    ['the largest size', bearer, 'a'.repeat(maxCredentialBytes), true],
  ] as const)('judges %s', (_, slot, value, expected) => {
    expect(credentialFits(slot, value)).toBe(expected)
  })
})

describe('sameSlot', () => {
  it('compares the header, the scheme and the field of Basic, without regard to case', () => {
    expect(sameSlot(bearer, { kind: 'header', name: 'authorization', scheme: 'BEARER' })).toBe(true)
    expect(sameSlot(password, { kind: 'basic', field: 'password' })).toBe(true)
    expect(sameSlot(bearer, { kind: 'header', name: 'authorization', scheme: undefined })).toBe(false)
    expect(sameSlot(bearer, password)).toBe(false)
    expect(sameSlot(user, password)).toBe(false)
    expect(sameSlot(bare, bearer)).toBe(false)
  })
})
