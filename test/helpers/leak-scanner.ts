/**
 * Looks for secrets in bytes the slow and obvious way: undo every transform, then search. It shares no code with the
 * redactor, so that both would have to be wrong in the same way for a leak to pass.
 */

/** What must not be found. */
export interface Canary {
  readonly value: string
  /** The parts of it that count when found in part; the whole value unless it has a public part. */
  readonly core?: readonly string[]
  /** Shortest part that counts, characters. */
  readonly run?: number
}

export interface Leak {
  readonly transform: string
  readonly found: string
}

type Transform = readonly [name: string, apply: (text: string) => string]

const latin1 = (bytes: Buffer): string => bytes.toString('latin1')

const percent = (text: string): string =>
  text.replaceAll(/%([\da-f]{2})/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)))

const short: Readonly<Record<string, string>> = { n: '\n', r: '\r', t: '\t', b: '\b', f: '\f' }

const json = (text: string): string =>
  text.replaceAll(
    /\\(?:u([\da-f]{4})|x([\da-f]{2})|([^ux]))/gi,
    (_, long?: string, byte?: string, letter?: string) => {
      if (letter !== undefined) return short[letter] ?? letter
      return latin1(Buffer.from(String.fromCharCode(Number.parseInt(long ?? byte ?? '', 16)), 'utf8'))
    },
  )

const html = (text: string): string =>
  text
    .replaceAll(/&#x([\da-f]+);/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16) & 0xff))
    .replaceAll(/&#(\d+);/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 10) & 0xff))
    .replaceAll('&lt;', '<')
    .replaceAll('&gt;', '>')
    .replaceAll('&quot;', '"')
    .replaceAll('&amp;', '&')

const oneLine = (text: string): string => text.replaceAll(/[\r\n]/g, '')

const outer: readonly Transform[] = [
  ['as it is', (text) => text],
  ['percent', percent],
  ['percent twice', (text) => percent(percent(text))],
  ['form', (text) => percent(text.replaceAll('+', ' '))],
  ['JSON', json],
  ['JSON twice', (text) => json(json(text))],
  ['HTML', html],
  ['lines joined', oneLine],
  ['JSON lines joined', (text) => oneLine(json(text))],
  ['UTF-16LE', (text) => latin1(Buffer.from(Buffer.from(text, 'latin1').toString('utf16le'), 'latin1'))],
  ['UTF-16BE', (text) => Buffer.from(text.slice(1), 'latin1').toString('utf16le')],
]

function base64(text: string, offset: number): string {
  const runs =
    text
      .replaceAll('-', '+')
      .replaceAll('_', '/')
      .match(/[A-Za-z0-9+/]{8,}/g) ?? []
  return runs.map((run) => latin1(Buffer.from(run.slice(offset), 'base64'))).join('\n')
}

function hex(text: string, offset: number): string {
  const runs = text.match(/[\da-f]{8,}/gi) ?? []
  return runs.map((run) => latin1(Buffer.from(run.slice(offset), 'hex'))).join('\n')
}

const inner: readonly Transform[] = [
  ['', (text) => text],
  ...[0, 1, 2, 3].map((offset): Transform => [`base64 from ${offset}`, (text) => base64(text, offset)]),
  ...[0, 1].map((offset): Transform => [`hex from ${offset}`, (text) => hex(text, offset)]),
]

/** Number of ways in which text is read. */
export const transformCount = outer.length * inner.length

/** Every way in which a canary, or enough of it, can still be read out of the bytes. */
export function findLeaks(bytes: Uint8Array, canary: Canary): Leak[] {
  const text = Buffer.from(bytes).toString('latin1')
  const whole = bytesAsText(canary.value)
  const parts = partsOf(canary)
  const encoded = encodedPartsOf(canary)
  const leaks: Leak[] = []
  for (const [outerName, undoOuter] of outer) {
    const once = undoOuter(text)
    for (const [innerName, undoInner] of inner) {
      const plain = undoInner(once)
      const found = plain.includes(whole)
        ? whole
        : windows(plain, canary.run ?? 12).find((part) => parts.has(part))
      if (found !== undefined) leaks.push({ transform: `${outerName} ${innerName}`.trim(), found })
    }
    const found = windows(oneLine(once), 12).find((part) => encoded.has(part))
    if (found !== undefined) leaks.push({ transform: `${outerName} encoded`, found })
  }
  return leaks
}

function windows(text: string, size: number): string[] {
  if (text.length < size) return []
  return Array.from({ length: text.length - size + 1 }, (_, start) => text.slice(start, start + size))
}

const bytesAsText = (text: string): string => latin1(Buffer.from(text, 'utf8'))

const partsOf = ({ value, core = [value], run = 12 }: Canary): Set<string> =>
  new Set(core.flatMap((part) => windows(bytesAsText(part), run)))

/** Twelve characters of base64 of the core tell nine bytes of it. */
function encodedPartsOf({ value, core = [value], run = 12 }: Canary): Set<string> {
  const encoded = core.flatMap((part) => {
    if (part.length < run) return []
    return [0, 1, 2].flatMap((lead) => {
      const padded = Buffer.concat([Buffer.alloc(lead), Buffer.from(part, 'utf8')])
      const first = Math.ceil((8 * lead) / 6)
      const last = Math.floor((8 * padded.length) / 6)
      return windows(padded.toString('base64').slice(first, last), 12)
    })
  })
  return new Set(encoded)
}
