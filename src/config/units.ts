/** A value, or a sentence that says what would do. */
export type Parsed<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly problem: string; readonly suggestion?: string | undefined }

const durationUnits: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
  w: 604_800_000,
}

const sizeUnits: Readonly<Record<string, number>> = {
  B: 1,
  kB: 1e3,
  KB: 1e3,
  MB: 1e6,
  GB: 1e9,
  KiB: 1024,
  MiB: 1024 ** 2,
  GiB: 1024 ** 3,
}

/** `10m`, `1h30m`, `7d` as `ms`; never zero. */
export function parseDuration(text: string): Parsed<number> {
  const bad = (suggestion?: string): Parsed<number> => ({
    ok: false,
    problem: 'a duration is a number with a unit: ms, s, m, h, d or w, such as 10m or 1h30m',
    suggestion,
  })
  const compact = text.replaceAll(' ', '').toLowerCase()
  if (!/^(?:\d+(?:ms|[smhdw]))+$/.test(text)) {
    return bad(/^(?:\d+(?:ms|[smhdw]))+$/.test(compact) ? compact : undefined)
  }
  let total = 0
  for (const [, count, unit] of text.matchAll(/(\d+)(ms|[smhdw])/g)) {
    total += Number(count) * (durationUnits[unit ?? ''] ?? 0)
  }
  if (total === 0) return { ok: false, problem: 'a duration must be more than zero' }
  return Number.isSafeInteger(total) ? { ok: true, value: total } : bad()
}

/** `50MB`, `64KiB`, `1000B` as bytes; never zero. */
export function parseSize(text: string): Parsed<number> {
  const bad = (suggestion?: string): Parsed<number> => ({
    ok: false,
    problem: 'a size is a number with a unit: B, KB, MB, GB, KiB, MiB or GiB, such as 50MB',
    suggestion,
  })
  const match = /^(\d+)([A-Za-z]+)$/.exec(text)
  const factor = sizeUnits[match?.[2] ?? '']
  if (match === null || factor === undefined) return bad(sizeSuggestion(text))
  const bytes = Number(match[1]) * factor
  if (bytes === 0) return { ok: false, problem: 'a size must be more than zero' }
  return Number.isSafeInteger(bytes) ? { ok: true, value: bytes } : bad()
}

function sizeSuggestion(text: string): string | undefined {
  const match = /^(\d+) ?([A-Za-z]*)$/.exec(text)
  if (match === null) return undefined
  const wanted = (match[2] ?? '').toLowerCase()
  const unit = Object.keys(sizeUnits).find((known) => {
    const lower = known.toLowerCase()
    return lower === wanted || (wanted !== '' && lower === `${wanted}b`)
  })
  return unit === undefined ? undefined : `${match[1] ?? ''}${unit}`
}

/**
 * A date (`2027-03-01`, meaning 00:00 UTC of that day) or an RFC 3339 date-time with its offset, as `ms` since the
 * epoch. Days that no calendar has, and times without a zone, are refused.
 */
export function parseExpiry(text: string): Parsed<number> {
  const match =
    /^(\d{4})-(\d\d)-(\d\d)(?:[Tt](\d\d):(\d\d)(?::(\d\d)(?:\.\d{1,9})?)?([Zz]|[+-]\d\d:\d\d)?)?$/.exec(text)
  if (match === null) {
    return {
      ok: false,
      problem: 'a date is YYYY-MM-DD or an RFC 3339 date-time such as 2027-03-01T12:00:00Z',
    }
  }
  const [year, month, day, hour, minute, second] = match.slice(1, 7).map((part) => Number(part ?? 0))
  if (!isDay(year ?? 0, month ?? 0, day ?? 0))
    return { ok: false, problem: `there is no day ${text.slice(0, 10)}` }
  if (match[4] === undefined) return { ok: true, value: Date.parse(`${text}T00:00:00Z`) }
  if ((hour ?? 0) > 23 || (minute ?? 0) > 59 || (second ?? 0) > 59) {
    return { ok: false, problem: `there is no time ${text.slice(11)}` }
  }
  const zone = match[7]
  if (zone === undefined) {
    return { ok: false, problem: 'a date-time needs its zone', suggestion: `${text}Z` }
  }
  if (!/^[Zz]$/.test(zone) && (Number(zone.slice(1, 3)) > 14 || Number(zone.slice(4)) > 59)) {
    return { ok: false, problem: `there is no zone ${zone}` }
  }
  return { ok: true, value: Date.parse(text.toUpperCase()) }
}

function isDay(year: number, month: number, day: number): boolean {
  if (year < 1970 || month < 1 || month > 12 || day < 1) return false
  return day <= new Date(Date.UTC(year, month, 0)).getUTCDate()
}
