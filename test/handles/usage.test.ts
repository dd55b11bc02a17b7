import { describe, expect, it } from 'vitest'
import type { HandleRecord } from '../../src/core/model.ts'
import type { Access, Grant, Slot } from '../../src/handles/model.ts'
import { indexHandles } from '../../src/handles/occurrences.ts'
import { entropyFor, makePlaceholder, placeholderCore } from '../../src/handles/placeholder.ts'
import { shapePresets } from '../../src/handles/shapes.ts'
import { checkUsage } from '../../src/handles/usage.ts'
import type { UsageInput } from '../../src/handles/usage.ts'
import type { Allow } from '../../src/policy/model.ts'
import vectors from '../vectors/placeholders.json' with { type: 'json' }

const now = 1_000_000

interface Row {
  readonly name: string
  readonly host?: string
  readonly port?: number
  readonly scheme?: string
  readonly method?: string
  readonly target?: string
  readonly headers?: string[][]
  readonly mayUseHandles?: boolean
  readonly ownCredentials?: string
  readonly result: {
    readonly kind: string
    readonly reason?: string
    readonly truth?: string
    readonly handle?: string
    readonly swaps?: readonly { readonly handle: string; readonly header: number }[]
  }
}

function access(name: string, host: string, slot: Slot, more: Partial<Access> = {}): Access {
  const limits = host === 'api.good.test' ? { methods: ['GET', 'POST'], paths: ['/v1/**'] } : {}
  return {
    name,
    credential: name,
    destinations: [{ access: name, host, port: 443, addresses: [], ...limits }],
    slot,
    shape: shapePresets.github,
    env: undefined,
    foreign: 'refuse',
    ...more,
  }
}

let seed = 0
function handle(id: string, of: string, more: Partial<HandleRecord> = {}): HandleRecord {
  seed += 31
  const shape = of === 'echo' ? shapePresets.generic : shapePresets.github
  const placeholder = makePlaceholder(
    shape,
    Uint8Array.from({ length: entropyFor(shape) }, (_, index) => (index * 7 + seed) % 251),
  )
  return {
    id,
    placeholder,
    sandboxId: 's1',
    sandbox: 'S1',
    access: of,
    createdAt: 0,
    revokedAt: undefined,
    expiresAt: undefined,
    ...more,
  }
}

const header = (name: string, scheme?: string): Slot => ({ kind: 'header', name, scheme })
const accesses = {
  api: access('api', 'api.good.test', header('authorization', 'Bearer')),
  git: access('git', 'git.good.test', { kind: 'basic', field: 'password' }),
  echo: access('echo', 'echo.good.test', header('x-api-key'), { shape: shapePresets.generic }),
  second: access('second', 'echo.good.test', header('x-second')),
  open: access('open', 'open.good.test', header('authorization', 'Bearer'), { foreign: 'allow' }),
}
const records = {
  H1: handle('H1', 'api'),
  H1b: handle('H1b', 'git'),
  H1e: handle('H1e', 'echo'),
  H1s: handle('H1s', 'second'),
  H1o: handle('H1o', 'open'),
  H2: handle('H2', 'api', { sandboxId: 's2', sandbox: 'S2' }),
  R: handle('R', 'api', { revokedAt: now - 1 }),
  X: handle('X', 'api', { expiresAt: now }),
  D: handle('D', 'gone'),
}
const grants: Grant[] = [
  { access: accesses.api, handle: records.H1 },
  { access: accesses.git, handle: records.H1b },
  { access: accesses.echo, handle: records.H1e },
  { access: accesses.second, handle: records.H1s },
  { access: accesses.open, handle: records.H1o },
  { access: accesses.api, handle: records.X },
]
const handles = new Map(Object.values(records).map((record) => [record.placeholder, record]))

/** Fills a row's text: `<H1>` is a placeholder, `<basic:…>` and the others transform what they enclose. */
function fill(text: string): string {
  const named = text.replace(/<(\w+)>/g, (whole, id: string) => {
    return Object.values(records).find((record) => record.id === id)?.placeholder ?? whole
  })
  return named.replace(/<([a-z0-9-]+):(.*)>/, (_, how: string, inner: string) => transform(how, inner))
}

function transform(how: string, text: string): string {
  const everyByte = (value: string) => value.replace(/./g, (c) => `%${c.charCodeAt(0).toString(16)}`)
  const base64 = Buffer.from(text).toString('base64')
  switch (how) {
    case 'basic':
      return `Basic ${base64}`
    case 'basic-unpadded':
      return `Basic ${base64.replace(/=*$/, '')}`
    case 'pct':
      return everyByte(text)
    case 'pct2':
      return everyByte(everyByte(text))
    case 'lower':
      return text.toLowerCase()
    case 'core':
      return placeholderCore(text) ?? ''
    case 'lowercore':
      return (placeholderCore(text) ?? '').toLowerCase()
    case 'cut':
      return text.slice(0, -1)
    case 'flip':
      return text.replace(/[a-z](?=[^a-z]*$)/, (c) => c.toUpperCase())
    default:
      throw new TypeError(`no transformation ${how}`)
  }
}

function inputOf(row: Row): UsageInput {
  const decision: Allow = {
    verdict: 'allow',
    reason: 'rule',
    rule: 'r',
    access: undefined,
    tls: 'terminate',
    schemes: ['https', 'http'],
    addresses: [],
    ownCredentials: row.ownCredentials === 'refuse' ? 'refuse' : 'pass',
  }
  return {
    grants,
    handles,
    sandboxId: 's1',
    mayUseHandles: row.mayUseHandles ?? true,
    destination: { host: fill(row.host ?? 'api.good.test'), port: row.port ?? 443, ip: 0 },
    scheme: row.scheme === 'http' ? 'http' : 'https',
    decision,
    method: row.method ?? 'GET',
    target: fill(row.target ?? '/v1/x'),
    headers: (row.headers ?? []).map(([name, value]) => [fill(name ?? ''), fill(value ?? '')] as const),
    now,
  }
}

describe('checkUsage', () => {
  it.each(vectors.usage as readonly Row[])('$name', (row) => {
    const result = checkUsage(inputOf(row))
    if (result.kind === 'swap') {
      const swaps = result.swaps.map((swap) => ({ handle: swap.grant.handle.id, header: swap.header }))
      expect({ kind: 'swap', swaps }).toEqual(row.result)
      for (const swap of result.swaps) expect(swap.slot).toBe(swap.grant.access.slot)
      return
    }
    if (result.kind === 'none') {
      expect(row.result).toEqual({ kind: 'none' })
      return
    }
    expect(result.reason).toBe(row.result.reason)
    expect(result.truth).toBe(row.result.truth)
    expect(result.handle?.id).toBe(row.result.handle)
  })

  it('names the access of a foreign credential for the event', () => {
    const result = checkUsage(inputOf({ name: '', headers: [['cookie', 'a=b']], result: { kind: 'deny' } }))
    expect(result).toEqual({ kind: 'deny', reason: 'foreign_credential', access: 'api' })
  })

  it('judges an expiry to the millisecond', () => {
    const row = { name: '', headers: [['authorization', 'Bearer <X>']], result: { kind: '' } }
    expect(checkUsage({ ...inputOf(row), now: now - 1 })).toMatchObject({ kind: 'swap' })
    expect(checkUsage({ ...inputOf(row), now })).toMatchObject({ kind: 'deny', truth: 'handle_expired' })
  })
})

describe('indexHandles', () => {
  it('finds a handle by its core, in its own and in lower case, and is built once for a map', () => {
    const index = indexHandles(handles)
    const core = placeholderCore(records.H1.placeholder) ?? ''
    expect(index.byCore.get(core)).toBe(records.H1)
    expect(index.byLowerCore.get(core.toLowerCase())).toBe(records.H1)
    expect(indexHandles(handles)).toBe(index)
    expect(indexHandles(new Map(handles))).not.toBe(index)
  })
})
