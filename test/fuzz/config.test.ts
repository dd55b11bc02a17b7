import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll } from 'vitest'
import { parse, stringify } from 'yaml'
import { loadConfig, type LoadResult } from '../../src/config/load.ts'
import { formatProblem } from '../../src/config/problem.ts'
import { compilePolicy } from '../../src/policy/rules.ts'
import type { Seeded } from '../helpers/seeded.ts'
import { fuzz, holds } from './fuzz.ts'

const folder = mkdtempSync(join(tmpdir(), 'octroi-fuzz-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))
const file = join(folder, 'octroi.yaml')

type Schema = {
  readonly $ref?: string
  readonly $defs?: Readonly<Record<string, Schema>>
  readonly anyOf?: readonly Schema[]
  readonly properties?: Readonly<Record<string, Schema>>
  readonly additionalProperties?: Schema | boolean
  readonly items?: Schema
}

// `as`: the shape of the file that a test keeps equal to the loader's own schema.
const schema = JSON.parse(
  readFileSync(new URL('../../config/octroi.schema.json', import.meta.url), 'utf8'),
) as Schema

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** Does the published schema know every key below this value? Types of values are left to the loader. */
function knowsKeys(given: Schema, value: unknown): boolean {
  const name = given.$ref?.replace('#/$defs/', '')
  if (name !== undefined) return knowsKeys(schema.$defs?.[name] ?? {}, value)
  if (given.anyOf !== undefined) return given.anyOf.some((each) => knowsKeys(each, value))
  if (Array.isArray(value))
    return given.items !== undefined && value.every((item) => knowsKeys(given.items ?? {}, item))
  if (!isRecord(value)) return true
  return Object.entries(value).every(([key, part]) => {
    const known = given.properties?.[key] ?? given.additionalProperties
    return typeof known === 'object' && knowsKeys(known, part)
  })
}

function load(text: string | Buffer): LoadResult {
  writeFileSync(file, text, { mode: 0o600 })
  return loadConfig(file, { env: { HOME: 'set', K1: 'set' }, now: Date.UTC(2026, 0, 1) })
}

/** Configuration files. */
fuzz({
  name: 'config',
  inCi: 600,
  full: 100_000,
  maxBytes: 4_096,
  // Few changes leave a file good; what is good is changed by keys instead.
  leastTaken: 0,
  dictionary: [
    ...[
      ': ',
      '- ',
      '\n',
      '\n  ',
      '\n    ',
      '{',
      '}',
      '[',
      ']',
      '"',
      "'",
      '&a ',
      '*a',
      '<<: *a',
      '!!js/function ',
      '? ',
      '| ',
      '#',
      '\t',
    ],
    ...[
      '---\n',
      '...\n',
      'null',
      '~',
      'true',
      '1',
      '0x1',
      '1e3',
      '-1',
      '.inf',
      '"*"',
      'any',
      '__proto__: {}',
      'constructor: 1',
    ],
    ...[
      'allow: ',
      'deny: ',
      'host: ',
      'hosts: ',
      'allowed: ',
      'ports: [443]',
      'scheme: http',
      'paths: ["/**"]',
      'tls: splice',
    ],
    ...[
      'version: 1\n',
      'sandboxes:\n',
      'token: generated',
      '10m',
      '50MB',
      '0.0.0.0/0',
      '10.0.0.0/8',
      '\xef\xbf\xbd',
      '\xff',
      '\0',
      '\xe2\x80\xa8',
    ],
  ],
  check(bytes, random) {
    const loaded = load(bytes)
    const lines = bytes.toString('utf8').split(/\n/).length
    const problems = loaded.ok ? loaded.warnings : loaded.problems
    for (const problem of problems) {
      holds(
        problem.line >= 1 && problem.line <= lines + 1 && problem.column >= 1,
        `no such place: ${formatProblem(problem)}`,
      )
    }
    if (!loaded.ok) {
      holds(problems.length > 0, 'refused without a problem')
      return `refused:${problems[0]?.message.replace(/[^a-z ]/g, '').slice(0, 40)}`
    }
    const value: unknown = parse(bytes.toString('utf8'))
    holds(knowsKeys(schema, value), 'a key that the schema does not know is taken')
    for (const [, { allow, deny }] of loaded.config.sandboxes) compilePolicy({ allow, deny, access: [] })
    for (let times = 0; times < 5; times++) checkUnknownKey(value, random)
    return `taken:${loaded.config.sandboxes.size}`
  },
})

function mappingsIn(value: unknown): Record<string, unknown>[] {
  if (Array.isArray(value)) return value.flatMap(mappingsIn)
  return isRecord(value) ? [value, ...Object.values(value).flatMap(mappingsIn)] : []
}

/** A good file with one key more, anywhere, is no good. */
function checkUnknownKey(value: unknown, random: Seeded): void {
  const copy: unknown = structuredClone(value)
  const mapping = random.pick(mappingsIn(copy))
  const keys = Object.keys(mapping)
  const slip = keys.length > 0 ? `${random.pick(keys)}s` : 'zz'
  mapping[slip in mapping ? 'zz_unknown' : slip] = 1
  const text = stringify(copy)
  holds(!load(text).ok, `taken with a key too many:\n${text}`)
}
