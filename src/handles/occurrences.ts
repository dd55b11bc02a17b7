import type { HandleRecord } from '../core/model.ts'
import { percentDecode } from './credential-fields.ts'
import { findPlaceholders, placeholderCore, placeholderMarker } from './placeholder.ts'
import { readBasicLeniently } from './slot.ts'

/** Every handle ever issued, by the core of its placeholder. */
export interface HandleIndex {
  readonly byCore: ReadonlyMap<string, HandleRecord>
  /** By the core in lower case: header and host names lose their case on the way. */
  readonly byLowerCore: ReadonlyMap<string, HandleRecord>
}

/** A placeholder seen in a request head. */
export interface Occurrence {
  /** `undefined` when it was never issued. */
  readonly handle: HandleRecord | undefined
  /** Index of the header whose value holds it; `undefined` anywhere else, where no slot can be. */
  readonly header: number | undefined
}

/** The parts of a request head in which placeholders are looked for. */
export interface HeadText {
  readonly host: string
  /** `path?query` as sent. */
  readonly target: string
  readonly headers: readonly (readonly [name: string, value: string])[]
}

const built = new WeakMap<ReadonlyMap<string, HandleRecord>, HandleIndex>()

/** Index of a snapshot's handles; built once for each map, which must not change afterwards. */
export function indexHandles(handles: ReadonlyMap<string, HandleRecord>): HandleIndex {
  const known = built.get(handles)
  if (known !== undefined) return known
  const byCore = new Map<string, HandleRecord>()
  const byLowerCore = new Map<string, HandleRecord>()
  for (const [placeholder, record] of handles) {
    const core = placeholderCore(placeholder)
    if (core === undefined) continue
    byCore.set(core, record)
    byLowerCore.set(core.toLowerCase(), record)
  }
  const index = { byCore, byLowerCore }
  built.set(handles, index)
  return index
}

/** Every placeholder in the head: in the host, the target, header names and values, each also decoded. */
export function locate(head: HeadText, index: HandleIndex): Occurrence[] {
  const found: Occurrence[] = []
  for (const core of coresOfName(head.host)) {
    found.push({ handle: index.byLowerCore.get(core), header: undefined })
  }
  for (const core of coresOfText(head.target)) {
    found.push({ handle: index.byCore.get(core), header: undefined })
  }
  head.headers.forEach(([name, value], header) => {
    for (const core of coresOfName(name))
      found.push({ handle: index.byLowerCore.get(core), header: undefined })
    for (const core of coresOfValue(value)) found.push({ handle: index.byCore.get(core), header })
  })
  return found
}

function coresOfName(name: string): string[] {
  const lower = name.toLowerCase()
  return lower.includes(placeholderMarker) ? findPlaceholders(lower).map((found) => found.text) : []
}

function coresOfValue(value: string): string[] {
  const basic = readBasicLeniently(value)
  return basic === undefined ? coresOfText(value) : [...coresOfText(value), ...coresOfText(basic)]
}

// Decoded twice, since upstreams and the frameworks on them decode once each.
function coresOfText(text: string): string[] {
  const once = percentDecode(text)
  if (once === text) return coresOf(text)
  const twice = percentDecode(once)
  return [...coresOf(text), ...coresOf(once), ...(twice === once ? [] : coresOf(twice))]
}

function coresOf(text: string): string[] {
  return findPlaceholders(text).map((found) => found.text)
}
