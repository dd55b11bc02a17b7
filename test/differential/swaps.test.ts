import { describe, expect, it } from 'vitest'
import type { HandleRecord } from '../../src/core/model.ts'
import type { Grant, Slot } from '../../src/handles/model.ts'
import { findPlaceholders } from '../../src/handles/placeholder.ts'
import { entropyFor, makePlaceholder } from '../../src/handles/placeholder.ts'
import { shapePresets } from '../../src/handles/shapes.ts'
import { swapValue } from '../../src/handles/slot.ts'
import { checkUsage, type UsageInput } from '../../src/handles/usage.ts'
import { decide } from '../../src/policy/decide.ts'
import type { Allow, PolicyInput } from '../../src/policy/model.ts'
import { compilePolicy } from '../../src/policy/rules.ts'
import { proofCount, runSeed } from '../helpers/proof-count.ts'
import { seeded, type Seeded } from '../helpers/seeded.ts'
import { anyDestinations, anyPolicy, anyRequest } from './random-policy.ts'
import { maySwap, placesWithPlaceholder, sendsItsOwn } from './second-reading-swaps.ts'

const seed = runSeed()
const count = proofCount(40_000, 1_000_000)
const requestsPerSandbox = 20

const slots: readonly Slot[] = [
  { kind: 'header', name: 'authorization', scheme: 'Bearer' },
  { kind: 'header', name: 'Authorization', scheme: 'token' },
  { kind: 'header', name: 'X-Api-Key', scheme: undefined },
  { kind: 'basic', field: 'user' },
  { kind: 'basic', field: 'password' },
]

function handleFor(random: Seeded, access: string, number: number): HandleRecord {
  const shape = shapePresets.github
  return {
    id: `handle-${number}`,
    placeholder: makePlaceholder(shape, random.bytes(entropyFor(shape))),
    sandboxId: random.pick(['own', 'own', 'own', 'own', 'other']),
    sandbox: 'any',
    access,
    createdAt: 0,
    revokedAt: random.below(5) === 0 ? 50 : undefined,
    expiresAt: random.below(3) === 0 ? 100 + random.below(2) : undefined,
  }
}

interface Sandbox {
  readonly policy: PolicyInput
  readonly grants: readonly Grant[]
  readonly handles: ReadonlyMap<string, HandleRecord>
}

/** A sandbox whose accesses, as in the configuration, are a part of its policy. */
function anySandbox(random: Seeded): Sandbox {
  const grants = Array.from({ length: 1 + random.below(2) }, (_, n): Grant => {
    const name = `access-${n}`
    const destinations = anyDestinations(random, name)
    const foreign = random.pick(['refuse', 'refuse', 'allow'] as const)
    const shape = shapePresets.github
    const access = {
      name,
      credential: name,
      destinations,
      slot: random.pick(slots),
      shape,
      env: undefined,
      foreign,
    }
    return { access, handle: handleFor(random, name, n) }
  })
  const strangers = [handleFor(random, 'access-0', 8), handleFor(random, 'gone', 9)]
  const handles = [...grants.map(({ handle }) => handle), ...strangers]
  const { allow, deny } = anyPolicy(random)
  return {
    policy: { allow, deny: deny.slice(1), access: grants.flatMap(({ access }) => access.destinations) },
    // A grant whose handle is another sandbox's never stands in a snapshot.
    grants: grants.filter(({ handle }) => handle.sandboxId === 'own' || random.below(4) === 0),
    handles: new Map(handles.map((record) => [record.placeholder, record])),
  }
}

const escaped = (text: string): string => {
  const at = text.length - 9
  return `${text.slice(0, at)}%${text.charCodeAt(at).toString(16)}${text.slice(at + 1)}`
}

/** The placeholder as the slot wants it, or nearly. */
function inSlot(slot: Slot, placeholder: string, random: Seeded): string {
  const text = random.pick([
    ...Array.from({ length: 12 }, () => placeholder),
    ...[
      `${placeholder}x`,
      ` ${placeholder}`,
      `${placeholder} ${placeholder}`,
      escaped(placeholder),
      placeholder.toLowerCase(),
    ],
  ])
  if (slot.kind === 'header') {
    if (slot.scheme === undefined) return text
    const { scheme } = slot
    return `${random.pick([scheme, scheme, scheme.toLowerCase(), 'Basic', `${scheme} `])} ${text}`
  }
  const other = random.pick(['x-access-token', '', 'a:b', placeholder])
  const pair = random.pick([slot.field, slot.field, slot.field, 'user', 'password'])
  const both = pair === 'user' ? `${text}:${other}` : `${other}:${text}`
  const encoded = Buffer.from(both, 'latin1').toString('base64')
  return `${random.pick(['Basic', 'basic', 'BASIC', 'Basic '])} ${random.pick([encoded, encoded, encoded.replaceAll('=', ''), `${encoded}!`])}`
}

function headersFor(random: Seeded, { grants, handles }: Sandbox): [string, string][] {
  const headers: [string, string][] = [['Host', 'a.test']]
  const issued = [...handles.keys()]
  const grant = grants.length > 0 ? random.pick(grants) : undefined
  if (grant !== undefined && random.below(5) > 0) {
    const { slot } = grant.access
    const name = slot.kind === 'basic' ? 'Authorization' : slot.name
    const placeholder = random.below(10) === 0 ? random.pick(issued) : grant.handle.placeholder
    headers.push([
      random.pick([name, name, name.toUpperCase(), 'X-Other']),
      inSlot(slot, placeholder, random),
    ])
  }
  const more: (() => [string, string])[] = [
    () => ['Authorization', 'Bearer of-my-own'],
    () => ['Cookie', `a=${random.pick(issued)}`],
    () => ['Cookie', 'a=b'],
    () => ['X-Api-Key', random.pick(['mine', random.pick(issued)])],
    () => ['User-Agent', random.pick(['octroi/1.0', 'x', random.pick(issued)])],
    () => ['X-Never', `octroi${'A'.repeat(24)}`],
    () => [random.pick(issued).toLowerCase(), '1'],
    () => ['X-Proof', Buffer.from(`a:${random.pick(issued)}`).toString('base64')],
    () => ['Accept', '*/*'],
  ]
  while (random.below(3) === 0) headers.splice(random.below(headers.length + 1), 0, random.pick(more)())
  return headers
}

function targetFor(random: Seeded, path: string, { handles }: Sandbox): string {
  const held = random.pick([...handles.keys()])
  const query = random.pick([
    '',
    '',
    '',
    '',
    '',
    '?a=b',
    '?',
    '?key=mine',
    '?access_token=',
    `?a=${held}`,
    `?a=${escaped(held)}`,
  ])
  return path + query
}

describe(`placeholders judged twice, OCTROI_SEED=${seed}`, () => {
  it(
    `swaps nothing outside a binding of both readings, over ${count} requests`,
    { timeout: 3_600_000 },
    () => {
      const random = seeded(seed)
      const tally = { swap: 0, none: 0, deny: 0 }
      for (let number = 0; number < count;) {
        const sandbox = anySandbox(random)
        const compiled = compilePolicy(sandbox.policy)
        for (let each = 0; each < requestsPerSandbox;) {
          // Half of the requests go where an access goes.
          const asked = anyRequest(random, sandbox.policy)
          const there = random.pick(sandbox.policy.access)
          const isName = !there.host.startsWith('*') && !/^[\d.]+$|:/.test(there.host)
          const destination =
            random.below(3) > 0 && isName
              ? { host: there.host, port: there.port, ip: 0 as const }
              : asked.destination
          const request = { ...asked, kind: 'http' as const, destination }
          const path = asked.kind === 'http' ? asked.path : '/v1/items'
          const method = asked.kind === 'http' ? asked.method : 'GET'
          const scheme = asked.kind === 'http' && random.below(4) === 0 ? asked.scheme : 'https'
          const decision = decide(compiled, { ...request, path, method, scheme })
          each++
          number++
          if (decision.verdict === 'deny') continue
          const input = inputOf(random, sandbox, {
            decision,
            destination,
            method,
            scheme,
            target: targetFor(random, path, sandbox),
          })
          tally[judgedTwice(input, number)]++
        }
      }
      for (const [name, times] of Object.entries(tally))
        expect([name, times > count / 200]).toEqual([name, true])
    },
  )
})

function inputOf(
  random: Seeded,
  sandbox: Sandbox,
  asked: Pick<UsageInput, 'destination' | 'method' | 'scheme' | 'target'> & { decision: Allow },
): UsageInput {
  return {
    ...asked,
    grants: sandbox.grants,
    handles: sandbox.handles,
    sandboxId: 'own',
    mayUseHandles: random.below(20) > 0,
    headers: headersFor(random, sandbox),
    now: 100,
  }
}

/** Judges one request by both readings; fails where a swap or a pass has no reason. */
function judgedTwice(input: UsageInput, number: number): 'swap' | 'none' | 'deny' {
  const result = checkUsage(input)
  const shown = (): string =>
    JSON.stringify({ number, result, input: { ...input, handles: [...input.handles.values()] } })
  if (result.kind === 'deny') return 'deny'
  const swaps = result.kind === 'swap' ? result.swaps : []
  for (const { grant, header } of swaps) {
    if (!maySwap(input, grant, header)) expect.fail(`a swap outside its binding: ${shown()}`)
  }
  const lines = swaps.map(({ header }) => header)
  const unswapped = placesWithPlaceholder(input).filter(
    (place) => place === 'elsewhere' || !lines.includes(place),
  )
  if (unswapped.length > 0) expect.fail(`a placeholder is sent on: ${shown()}`)
  if (sendsItsOwn(input, lines)) expect.fail(`a foreign credential is sent on: ${shown()}`)
  for (const { header, slot } of swaps) {
    const value = swapValue(slot, input.headers[header]?.[1] ?? '', 'the-credential')
    const basic = Buffer.from(value.slice(6), 'base64').toString('latin1')
    if (findPlaceholders(value + basic).length > 0) expect.fail(`a placeholder is left: ${shown()}`)
  }
  return result.kind
}
