import type { z } from 'zod'
import type { Document } from './document.ts'
import { namePattern } from './leaf-schemas.ts'
import { below, describePlace, problemAt } from './problem.ts'
import type { Place, Problem } from './problem.ts'
import { nameRule, schemaProblems } from './schema-problems.ts'
import { access, credential, sandbox, template } from './schema.ts'
import type { AccessWire, CredentialWire, SandboxWire, TemplateWire } from './schema.ts'

/** An entry of a section and where it is written. */
export interface Entry<T> {
  readonly wire: T
  readonly place: Place
}

/** An entry before the schema. */
export interface RawEntry {
  readonly value: unknown
  readonly place: Place
}

/** The named sections of all files, each name once. */
export interface Merged {
  readonly credentials: Map<string, Entry<CredentialWire>>
  readonly access: Map<string, Entry<AccessWire>>
  readonly templates: Map<string, Entry<TemplateWire>>
  readonly sandboxes: Map<string, Entry<SandboxWire>>
  /** Every entry as it is written, well-formed or not, so that one problem neither hides nor causes others. */
  readonly names: Record<SectionName, Map<string, RawEntry>>
}

/** Sections whose entries have names. */
export type SectionName = 'credentials' | 'access' | 'templates' | 'sandboxes'

/** Nothing read yet. */
export function emptyMerged(): Merged {
  return {
    credentials: new Map(),
    access: new Map(),
    templates: new Map(),
    sandboxes: new Map(),
    names: { credentials: new Map(), access: new Map(), templates: new Map(), sandboxes: new Map() },
  }
}

/** Adds a document's sections: entries that fit the schema, and the names of all; a name written twice is a problem. */
export function mergeSections(merged: Merged, document: Document): Problem[] {
  const { names } = merged
  return [
    ...mergeSection(document, 'credentials', { schema: credential, names, entries: merged.credentials }),
    ...mergeSection(document, 'access', { schema: access, names, entries: merged.access }),
    ...mergeSection(document, 'templates', { schema: template, names, entries: merged.templates }),
    ...mergeSection(document, 'sandboxes', { schema: sandbox, names, entries: merged.sandboxes }),
  ]
}

interface Section<T> {
  readonly schema: z.ZodType<T>
  readonly names: Merged['names']
  readonly entries: Map<string, Entry<T>>
}

function mergeSection<T>(document: Document, name: SectionName, section: Section<T>): Problem[] {
  const value = isRecord(document.value) ? document.value[name] : undefined
  const top: Place = { source: document, path: [name] }
  if (value === undefined || value === null) return []
  if (!isRecord(value)) return [problemAt(top, 'expected a mapping of names', { part: 'key' })]
  return Object.entries(value).flatMap(([key, written]) => {
    const place = below(top, key)
    const first = section.names[name].get(key)
    if (first !== undefined) {
      return [problemAt(place, `\`${key}\` is already at ${describePlace(first.place)}`, { part: 'key' })]
    }
    section.names[name].set(key, { value: written, place })
    const badName = namePattern.test(key) ? [] : [problemAt(place, `a name has ${nameRule}`, { part: 'key' })]
    const parsed = section.schema.safeParse(written)
    if (parsed.success) {
      section.entries.set(key, { wire: parsed.data, place })
      return badName
    }
    return [
      ...badName,
      ...schemaProblems({ place, value: written, schema: section.schema }, parsed.error.issues),
    ]
  })
}

/** A mapping of YAML. */
export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
