import type { z } from 'zod'
import { below, nearest, problemAt } from './problem.ts'
import type { Path, Place, Problem } from './problem.ts'
import { keysOf, nounOf, optionsOf, schemaAt } from './schema-shape.ts'
import { unbuilt } from './unbuilt.ts'

type Issue = z.core.$ZodIssue

/** A value that did not fit its schema, and its place. */
export interface Misfit {
  readonly place: Place
  readonly value: unknown
  readonly schema: z.ZodType
}

/** Problems of a value, with places and nearest spellings, from the issues that its schema found. */
export function schemaProblems(misfit: Misfit, issues: readonly Issue[]): Problem[] {
  const problems = issues.flatMap((issue) => explain(misfit, issue))
  // An issuer that is not built has keys of its own: one line about it is enough.
  const notBuilt = problems.filter((problem) => problem.path.endsWith('.issuer') && isNotBuilt(problem))
  return notBuilt.length > 0 ? notBuilt : problems
}

const isNotBuilt = (problem: Problem): boolean => problem.message.includes('is not built')

/** What a name may look like, as part of a sentence. */
export const nameRule = 'letters, digits, `.`, `_` and `-`, beginning with a letter or digit, at most 63'

function explain(misfit: Misfit, issue: Issue): Problem[] {
  const steps: Path = issue.path.map((step) => (typeof step === 'number' ? step : String(step)))
  const place = below(misfit.place, ...steps)
  const schema = schemaAt(misfit.schema, steps)
  const given = valueAt(misfit.value, steps)
  if (issue.code === 'unrecognized_keys') {
    const known = keysOf(schema, given)
    return issue.keys.map((key) => unknownKey(below(place, key), valueAt(given, [key]), known))
  }
  if (issue.code === 'invalid_union')
    return explainUnion({ place, value: given, schema: schema ?? misfit.schema }, issue)
  if (issue.code === 'invalid_key') return [problemAt(place, `a name has ${nameRule}`, { part: 'key' })]
  const notBuilt = typeof given === 'string' ? unbuilt(place.path, given) : undefined
  if (notBuilt !== undefined) return [problemAt(place, notBuilt)]
  const { message, suggestion } = describe(issue, given, { path: place.path, schema })
  return [problemAt(place, message, { suggestion, part: given === undefined ? 'key' : 'value' })]
}

function unknownKey(place: Place, value: unknown, known: readonly string[]): Problem {
  const key = String(place.path.at(-1))
  const notBuilt = unbuilt(place.path) ?? (typeof value === 'string' ? unbuilt(place.path, value) : undefined)
  if (notBuilt !== undefined) return problemAt(place, notBuilt, { part: 'key' })
  const suggestion = nearest(key, known)
  const list = suggestion === undefined ? `; known: ${known.join(', ')}` : ''
  return problemAt(place, `unknown key \`${key}\`${list}`, { suggestion, part: 'key' })
}

type Union = Extract<Issue, { code: 'invalid_union' }>

/** Takes the alternative that was most likely meant: the one that knows most of the keys, then with fewest issues. */
function explainUnion({ place, value, schema }: Misfit, issue: Union): Problem[] {
  const alternatives = optionsOf(schema)
  const [best] = issue.errors
    .map((issues, index) => ({
      issues,
      schema: alternatives[index] ?? schema,
      unfit: unfitness(issues, value),
    }))
    .toSorted((a, b) => a.unfit - b.unfit || a.issues.length - b.issues.length)
  if (best !== undefined && value !== undefined && best.unfit < wrongKind) {
    return withoutEchoes(
      best.issues.flatMap((inner) => explain({ place, value, schema: best.schema }, inner)),
    )
  }
  const meant = alternatives.map(nounOf).join(' or ')
  const message = value === undefined ? `is missing: ${meant}` : `expected ${meant}, not ${nounFor(value)}`
  return [problemAt(place, message)]
}

const wrongKind = 1000

function unfitness(issues: readonly Issue[], given: unknown): number {
  let unfit = 0
  for (const issue of issues) {
    if (issue.path.length === 0 && issue.code === 'invalid_type') unfit += wrongKind
    if (issue.path.length === 0 && issue.code === 'invalid_value' && typeof given === 'object')
      unfit += wrongKind
    if (issue.path.length === 0 && issue.code === 'unrecognized_keys') unfit += 2 * issue.keys.length
    // A missing key that names the kind weighs more than one more key that is not known.
    if (issue.path.length === 1 && valueAt(given, issue.path.map(String)) === undefined) unfit += 1
  }
  return unfit
}

// `hosst: x` is an unknown key and a missing `host`: one mistake, one line.
function withoutEchoes(problems: readonly Problem[]): Problem[] {
  const meant = new Set(problems.map((problem) => problem.suggestion).filter((key) => key !== undefined))
  const notBuilt = problems.some(isNotBuilt)
  return problems.filter((problem) => {
    if (!problem.message.startsWith('is missing')) return true
    return !meant.has(problem.path.slice(problem.path.lastIndexOf('.') + 1)) && !notBuilt
  })
}

function describe(
  issue: Issue,
  given: unknown,
  { path, schema }: { path: Path; schema: z.ZodType | undefined },
): { message: string; suggestion?: string | undefined } {
  switch (issue.code) {
    case 'custom': {
      const suggestion: unknown = issue.params?.['suggestion']
      return { message: issue.message, suggestion: typeof suggestion === 'string' ? suggestion : undefined }
    }
    case 'invalid_type':
      if (given === undefined) return { message: `is missing` }
      return {
        message: `expected ${schema?.description ?? nouns[issue.expected] ?? issue.expected}, not ${nounFor(given)}`,
        suggestion: rewritten(issue.expected, given, String(path.at(-1))),
      }
    case 'invalid_value': {
      const values = issue.values.map(String)
      if (given === undefined)
        return { message: `is missing; write \`${String(path.at(-1))}: ${values.join('|')}\`` }
      const suggestion = typeof given === 'string' ? nearest(given, values) : undefined
      return { message: `expected ${values.length === 1 ? '' : 'one of '}${values.join(', ')}`, suggestion }
    }
    case 'too_small':
      return { message: tooSmall(issue) }
    case 'too_big':
      return {
        message: `must be at most ${String(issue.maximum)}${issue.origin === 'string' ? ' characters' : ''}`,
      }
    case 'invalid_format':
      return { message: formats[String(path.at(-1))] ?? `a name has ${nameRule}` }
    default:
      return { message: issue.message }
  }
}

/** Lists in which nobody keeps a secret, so that what was written may be shown. */
const plainLists = new Set(['access', 'addresses', 'methods', 'paths', 'ports'])

/** The same value in the kind that is wanted: one in brackets for a list, a number without its quotes. */
function rewritten(expected: string, given: unknown, key: string): string | undefined {
  const isOne = typeof given === 'string' || typeof given === 'number'
  if (expected === 'array' && isOne && plainLists.has(key)) return `[${given}]`
  const isNumber = expected === 'number' || expected === 'int'
  return isNumber && typeof given === 'string' && /^[1-9]\d{0,8}$/.test(given) ? given : undefined
}

const formats: Readonly<Record<string, string>> = {
  id: 'an id has letters, digits, `.`, `_` and `-`, at most 64',
  env: 'is not the name of an environment variable',
  client_certificate: 'is not a SHA-256 fingerprint in hex',
  scheme: 'is not an authentication scheme such as Bearer',
  owner: 'must be one line',
  note: 'must be one line',
  agent: 'must be one line',
  file: 'is not a file path',
  socket: 'is not a file path',
}

function tooSmall(issue: Extract<Issue, { code: 'too_small' }>): string {
  if (issue.origin === 'array') return 'an empty list matches nothing; leave the key out or fill it'
  return issue.origin === 'string' ? 'must not be empty' : `must be at least ${String(issue.minimum)}`
}

const nouns: Readonly<Record<string, string>> = {
  object: 'a mapping',
  record: 'a mapping',
  array: 'a list',
  string: 'text',
  number: 'a number',
  int: 'a whole number',
  boolean: 'true or false',
}

// The kind of value only, never the value: a secret pasted in the wrong place must not be printed.
function nounFor(value: unknown): string {
  if (value === null) return 'nothing'
  if (Array.isArray(value)) return 'a list'
  return nouns[typeof value] ?? typeof value
}

function valueAt(value: unknown, path: Path): unknown {
  let here: unknown = value
  for (const step of path) {
    if (typeof here !== 'object' || here === null || !Object.hasOwn(here, step)) return undefined
    here = Reflect.get(here, step)
  }
  return here
}
