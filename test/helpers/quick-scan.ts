/**
 * A fast look for secrets in everything a case has produced. `leak-scanner.ts` is thorough and slow, and is used where a
 * test is about redaction; this one runs after every case.
 */

const run = 12

const windows = (text: string): string[] =>
  Array.from({ length: Math.max(0, text.length - run + 1) }, (_, start) => text.slice(start, start + run))

/** Every text of which one is found where twelve characters of the secret are readable. */
export function needlesOf(secret: string): string[] {
  const bytes = Buffer.from(secret, 'utf8')
  const base64 = [0, 1, 2].flatMap((lead) => {
    const text = Buffer.concat([Buffer.alloc(lead), bytes])
      .toString('base64')
      .replaceAll('=', '')
    const inner = text.slice(lead === 0 ? 0 : lead + 1, -1)
    return [...windows(inner), ...windows(inner.replaceAll('+', '-').replaceAll('/', '_'))]
  })
  const perByte = (style: (hex: string) => string): string[] => {
    const size = style('00').length
    const text = [...bytes].map((byte) => style(byte.toString(16).padStart(2, '0'))).join('')
    return Array.from({ length: bytes.length - run + 1 }, (_, at) => text.slice(at * size, (at + run) * size))
  }
  return [
    ...windows(bytes.toString('latin1')),
    ...base64,
    ...perByte((hex) => hex),
    ...perByte((hex) => `%${hex}`),
    ...perByte((hex) => `\\u00${hex}`),
  ]
}

/** Which secret is readable in the text, with the form it was found in; `undefined` when none is. */
export function readableSecret(
  text: string,
  needles: ReadonlyMap<string, readonly string[]>,
): string | undefined {
  const lower = text.toLowerCase()
  for (const [name, forms] of needles) {
    const found = forms.find(
      (form) => text.includes(form) || (/^(?:[\da-f%]|\\u)+$/.test(form) && lower.includes(form)),
    )
    if (found !== undefined) return `${name}: ${found}`
  }
  return undefined
}
