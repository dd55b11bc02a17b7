import type { HandleRecord } from '../../src/core/model.ts'
import type { Grant, Slot } from '../../src/handles/model.ts'
import { indexHandles, locate } from '../../src/handles/occurrences.ts'
import { findPlaceholders, placeholderCore, placeholderMarker } from '../../src/handles/placeholder.ts'
import { entropyFor, makePlaceholder } from '../../src/handles/placeholder.ts'
import { parseShape } from '../../src/handles/shapes.ts'
import { decodeBasic, readBasicLeniently, swapValue } from '../../src/handles/slot.ts'
import { checkUsage, type UsageInput } from '../../src/handles/usage.ts'
import type { Allow } from '../../src/policy/model.ts'
import { maySwap, placesWithPlaceholder, sendsItsOwn } from '../differential/second-reading-swaps.ts'
import type { Seeded } from '../helpers/seeded.ts'
import { fuzz, holds, same } from './fuzz.ts'

const slots: readonly Slot[] = [
  { kind: 'header', name: 'authorization', scheme: 'Bearer' },
  { kind: 'header', name: 'x-api-key', scheme: undefined },
  { kind: 'basic', field: 'password' },
]

/** The three placeholders of the corpus, one for each slot. */
const placeholders = [
  'ghp_octroiBearerBearerBearerBearerBearer',
  'octroiApiKeyApiKeyApiKeyApiKeyApiKeyApiK',
  'octroiBasicBasicBasicBasicBasicBasicBasi',
] as const

const grants: readonly Grant[] = placeholders.map((placeholder, n): Grant => {
  const name = `access-${n}`
  const handle: HandleRecord = {
    id: `handle-${n}`,
    placeholder,
    sandboxId: 'own',
    sandbox: 'own',
    access: name,
    createdAt: 0,
    revokedAt: undefined,
    expiresAt: undefined,
  }
  const slot = slots[n] ?? { kind: 'basic', field: 'user' }
  const destinations = [{ access: name, host: 'api.good.test', port: 443, paths: ['/v1/**'], addresses: [] }]
  const shape = { prefix: '', length: 40 }
  return {
    handle,
    access: { name, credential: name, destinations, slot, shape, env: undefined, foreign: 'refuse' },
  }
})
const handles = new Map(grants.map(({ handle }) => [handle.placeholder, handle]))

const decision: Allow = {
  verdict: 'allow',
  reason: 'access',
  rule: 'access:access-0',
  access: 'access-0',
  tls: 'terminate',
  schemes: ['https'],
  addresses: [],
  ownCredentials: 'pass',
}

/** A head: the target on the first line, `Name: value` on the others. */
function inputOf(text: string): UsageInput {
  const [target = '', ...lines] = text.split('\n')
  const headers = lines.map((line): [string, string] => {
    const colon = line.indexOf(':')
    return colon < 0 ? [line, ''] : [line.slice(0, colon), line.slice(colon + 1).trim()]
  })
  return {
    grants,
    handles,
    sandboxId: 'own',
    mayUseHandles: true,
    destination: { host: 'api.good.test', port: 443, ip: 0 },
    scheme: 'https',
    decision,
    method: 'GET',
    target: target.startsWith('/') ? target : `/${target}`,
    headers,
    now: 100,
  }
}

/** Placeholders anywhere in a head. */
fuzz({
  name: 'placeholder',
  inCi: 10_000,
  full: 1_000_000,
  maxBytes: 1_000,
  dictionary: [
    ...placeholders,
    ...placeholders.map((text) => text.toLowerCase()),
    ...placeholders.map((text) => Buffer.from(`user:${text}`).toString('base64')),
    ...[
      'octroi',
      'octroi0123456789ABCDEFGHIJKL',
      'ghp_',
      '%6f',
      '%256f',
      '%',
      '+',
      ' ',
      ':',
      '\n',
      '\nAuthorization: ',
      '\nauthorization: ',
    ],
    ...[
      'Bearer ',
      'bearer ',
      'Basic ',
      'basic  ',
      '\nX-Api-Key: ',
      '\nCookie: ',
      '?key=',
      '?access_token=',
      '&',
      '/v1/',
      '/v1/../',
      ',',
      '=',
      ';',
    ],
  ],
  check(bytes, random) {
    const text = bytes.toString('latin1')
    checkFound(text)
    checkMade(text, random)
    const input = inputOf(text)
    // The reader of heads lets nothing else through.
    if (!/^[\x21-\x7e]+$/.test(input.target)) return 'refused:unreadable'
    const result = checkUsage(input)
    if (result.kind === 'deny') return `refused:${result.reason} ${result.truth}`
    const swaps = result.kind === 'swap' ? result.swaps : []
    for (const { grant, header } of swaps) holds(maySwap(input, grant, header), 'a swap outside its binding')
    const lines = swaps.map(({ header }) => header)
    const left = placesWithPlaceholder(input).filter(
      (place) => place === 'elsewhere' || !lines.includes(place),
    )
    same(left, [], 'a placeholder is sent on')
    holds(!sendsItsOwn(input, lines), 'a foreign credential is sent on')
    for (const { header, slot } of swaps) {
      const value = swapValue(slot, input.headers[header]?.[1] ?? '', 'the-credential')
      const basic = decodeBasic(value)
      holds(
        findPlaceholders(`${value} ${basic?.user} ${basic?.password}`).length === 0,
        'a placeholder is left',
      )
      if (slot.kind === 'basic') same(basic?.[slot.field], 'the-credential', 'slot')
      else same(value, slot.scheme === undefined ? 'the-credential' : `${slot.scheme} the-credential`, 'slot')
    }
    return `taken:${result.kind} ${swaps.length}`
  },
})

/** What is found stands there, and is a whole run. */
function checkFound(text: string): void {
  let last = 0
  for (const { start, end, text: core } of findPlaceholders(text)) {
    same(text.slice(start, end), core, 'text')
    holds(start >= last && end > start && core.startsWith(placeholderMarker), 'order')
    holds(!/^[0-9A-Za-z]/.test(text.slice(end)), 'a run goes on')
    same(placeholderCore(core), core, 'core of a core')
    last = end
  }
  const basic = readBasicLeniently(text)
  const strict = decodeBasic(text)
  if (strict !== undefined)
    same(basic, `${strict.user}:${strict.password}`, 'Basic, read strictly and leniently')
}

/** A placeholder of any shape the configuration takes is found again in any surroundings, plain and encoded. */
function checkMade(text: string, random: Seeded): void {
  const prefix = text.replace(/[^\w-]/g, '').slice(0, random.below(12))
  const parsed = parseShape({ prefix, length: prefix.length + 28 + random.below(40) })
  if (!parsed.ok) {
    holds(prefix.toLowerCase().includes(placeholderMarker), `a shape is refused: ${parsed.problem}`)
    return
  }
  const made = makePlaceholder(parsed.shape, random.bytes(entropyFor(parsed.shape)))
  same(made.length, parsed.shape.length, 'length')
  const core = placeholderCore(made)
  same(core, made.slice(prefix.length), 'core')
  const record: HandleRecord = { ...(grants[0]?.handle as HandleRecord), id: 'made', placeholder: made }
  const index = indexHandles(new Map([[made, record]]))
  const at = prefix.length + random.below(made.length - prefix.length)
  const hex = made.charCodeAt(at).toString(16)
  const once = `${made.slice(0, at)}%${hex}${made.slice(at + 1)}`
  const twice = `${made.slice(0, at)}%25${hex}${made.slice(at + 1)}`
  const basic = `Basic ${Buffer.from(`a:${made}`).toString('base64')}`
  for (const value of [made, once, twice, basic, `x=${made};`]) {
    const found = locate({ host: 'a.test', target: '/', headers: [['X', value]] }, index)
    holds(
      found.some(({ handle }) => handle?.id === 'made'),
      `${value} is not found`,
    )
  }
  for (const head of [
    { host: `${made.toLowerCase()}.a.test`, target: '/', headers: [] },
    { host: 'a.test', target: `/?q=${once}`, headers: [] },
    { host: 'a.test', target: '/', headers: [[made.toUpperCase(), '']] as const },
  ]) {
    holds(
      locate(head, index).some(({ handle }) => handle?.id === 'made'),
      `not found in ${JSON.stringify(head)}`,
    )
  }
}
