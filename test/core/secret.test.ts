import { PassThrough } from 'node:stream'
import { format, inspect } from 'node:util'
import { pino } from 'pino'
import { describe, expect, it } from 'vitest'
import { Secret } from '../../src/core/secret.ts'

const plain = 'correct-horse-battery-staple-4711'
const marker = '[REDACTED]'
const secret = new Secret(plain)

/** One pino line, as written. */
function logged(write: (log: ReturnType<typeof pino>) => void): string {
  const stream = new PassThrough()
  write(pino({}, stream))
  return String(stream.read())
}

const waysToPrint: [string, () => string][] = [
  ['a template string', () => `${String(secret)}`],
  ['an implicit template string', () => `${secret as unknown as string}`],
  ['concatenation', () => '' + (secret as unknown as string)],
  ['String()', () => String(secret)],
  ['toString()', () => secret.toString()],
  ['toLocaleString()', () => Object.prototype.toLocaleString.call(secret)],
  ['array join', () => [secret, secret].join(',')],
  ['JSON.stringify', () => JSON.stringify(secret)],
  ['JSON.stringify of a field', () => JSON.stringify({ deep: { value: [secret] } })],
  ['util.inspect', () => inspect(secret)],
  [
    'util.inspect of a field, hidden ones shown',
    () => inspect({ deep: { value: secret } }, { showHidden: true, depth: 9 }),
  ],
  [
    'util.inspect with its custom forms off',
    () => inspect(secret, { customInspect: false, showHidden: true }),
  ],
  ['util.format %s', () => format('%s', secret)],
  ['util.format %o and %O', () => format('%o %O', secret, secret)],
  ['util.format %j', () => format('%j', secret)],
  ['util.format without a directive', () => format('value', secret)],
  ['a pino field', () => logged((log) => log.info({ value: secret }, 'message'))],
  ['a nested pino field', () => logged((log) => log.info({ request: { value: secret } }, 'message'))],
  ['a pino format argument', () => logged((log) => log.info('value %s', secret))],
  ['a pino %j argument', () => logged((log) => log.info('value %j', secret))],
  ['a pino %o argument', () => logged((log) => log.info('value %o', secret))],
  ['a pino child binding', () => logged((log) => log.child({ value: secret }).info('message'))],
  ['an error message', () => new TypeError(`bad ${String(secret)}`).stack ?? ''],
  ['an error cause', () => inspect(new TypeError('bad', { cause: secret }))],
  [
    'a pino error with a field',
    () => logged((log) => log.error(Object.assign(new TypeError('bad'), { secret }))),
  ],
  ['a pino error with a cause', () => logged((log) => log.error(new TypeError('bad', { cause: secret })))],
]

describe('Secret', () => {
  it.each(waysToPrint)('does not show its value in %s', (_, print) => {
    expect(print()).not.toContain(plain)
  })

  const shown = waysToPrint.filter(([name]) => !/custom forms off|a pino error with a cause/.test(name))
  it.each(shown)('shows the marker in %s', (_, print) => {
    expect(print()).toContain(marker)
  })

  it('has no enumerable, own or symbol property that holds the value', () => {
    expect(Reflect.ownKeys(secret)).toEqual([])
    expect(Object.entries(secret)).toEqual([])
    expect(JSON.stringify({ ...secret })).toBe('{}')
  })

  it('loses its value in a structured clone rather than carrying it across', () => {
    expect(inspect(structuredClone(secret), { showHidden: true })).not.toContain(plain)
  })

  it('gives the value to a caller of reveal()', () => {
    expect(secret.reveal()).toBe(plain)
  })
})
