import { describe, expect, it } from 'vitest'
import { parseDuration, parseExpiry, parseSize } from '../../src/config/units.ts'

describe('a duration', () => {
  it.each([
    ['250ms', 250],
    ['10m', 600_000],
    ['1h30m', 5_400_000],
    ['7d', 604_800_000],
    ['2w', 1_209_600_000],
  ])('%s is %d ms', (text, value) => {
    expect(parseDuration(text)).toEqual({ ok: true, value })
  })

  it.each([
    ['10 m', '10m'],
    ['10M', '10m'],
    ['10', undefined],
    ['-1m', undefined],
    ['1.5h', undefined],
    ['0s', undefined],
    ['', undefined],
    ['99999999999999999w', undefined],
  ])('%j is refused, suggesting %j', (text, suggestion) => {
    const parsed = parseDuration(text)
    expect(parsed.ok).toBe(false)
    expect(parsed).toMatchObject(suggestion === undefined ? {} : { suggestion })
  })
})

describe('a size', () => {
  it.each([
    ['1B', 1],
    ['50MB', 50_000_000],
    ['64KiB', 65_536],
    ['2GB', 2_000_000_000],
  ])('%s is %d bytes', (text, value) => {
    expect(parseSize(text)).toEqual({ ok: true, value })
  })

  it.each([
    ['50mb', '50MB'],
    ['50M', '50MB'],
    ['64 kib', '64KiB'],
    ['50', undefined],
    ['0MB', undefined],
    ['1e3MB', undefined],
  ])('%j is refused, suggesting %j', (text, suggestion) => {
    const parsed = parseSize(text)
    expect(parsed.ok).toBe(false)
    expect(parsed).toMatchObject(suggestion === undefined ? {} : { suggestion })
  })
})

describe('a date', () => {
  it.each([
    ['2027-03-01', Date.UTC(2027, 2, 1)],
    ['2028-02-29', Date.UTC(2028, 1, 29)],
    ['2027-03-01T12:30:00Z', Date.UTC(2027, 2, 1, 12, 30)],
    ['2027-03-01T12:30:00+02:00', Date.UTC(2027, 2, 1, 10, 30)],
    ['2027-03-01t12:30z', Date.UTC(2027, 2, 1, 12, 30)],
  ])('%s is read', (text, value) => {
    expect(parseExpiry(text)).toEqual({ ok: true, value })
  })

  it.each([
    '2027-02-29',
    '2027-02-30',
    '2027-13-01',
    '2027-00-10',
    '2027-04-31',
    '27-04-01',
    '2027-4-1',
    '01.04.2027',
    '2027-03-01T24:00:00Z',
    '2027-03-01T12:60:00Z',
    '2027-03-01T12:00:00',
    '2027-03-01T12:00:00+15:00',
    '2027-03-01T12:00:00 CET',
    'tomorrow',
  ])('%s is refused', (text) => {
    expect(parseExpiry(text).ok).toBe(false)
  })
})
