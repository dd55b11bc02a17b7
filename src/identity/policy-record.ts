import { effectivePolicy } from '../config/effective.ts'
import type { Config, LimitsConfig, PolicyBlock } from '../config/model.ts'
import type { AccessDestination, PolicyInput, Rule } from '../policy/model.ts'

/** The longest record that is kept, characters; a longer one says only that it was too long. */
const maxRecord = 8 * 1024 * 1024

interface RecordedBlock {
  readonly tenant: string
  readonly allow: readonly Rule[]
  readonly deny: readonly Rule[]
  readonly access: readonly string[]
}

interface Recorded {
  readonly v: 1
  /** Set when the rest was left out: how long it would have been, characters. */
  readonly omitted?: number
  readonly templates: Readonly<Record<string, RecordedBlock>>
  readonly sandboxes: Readonly<Record<string, RecordedBlock & { readonly template?: string | undefined }>>
  readonly access: Readonly<Record<string, readonly AccessDestination[]>>
}

/** Whose policy is looked for, as its events say. */
export interface RecordedFor {
  readonly sandbox: string
  readonly tenant?: string | undefined
  readonly template?: string | undefined
}

/** A policy as it was, or a sentence on why it cannot be had. */
export type PolicyFound =
  { readonly ok: true; readonly input: PolicyInput } | { readonly ok: false; readonly problem: string }

/**
 * What every policy of a configuration is compiled from, as JSON, each rule once: enough to decide again later as it was
 * decided under it. No credential is in it.
 */
export function policyRecord(config: Config): string {
  const recorded: Recorded = {
    v: 1,
    templates: Object.fromEntries([...config.templates].map(([name, block]) => [name, recordedBlock(block)])),
    sandboxes: Object.fromEntries(
      [...config.sandboxes].map(([name, block]) => [
        name,
        { ...recordedBlock(block), template: block.template },
      ]),
    ),
    access: Object.fromEntries([...config.access].map(([name, { destinations }]) => [name, destinations])),
  }
  const text = JSON.stringify(recorded)
  if (text.length <= maxRecord) return text
  const empty: Recorded = { v: 1, omitted: text.length, templates: {}, sandboxes: {}, access: {} }
  return JSON.stringify(empty)
}

function recordedBlock({
  tenant,
  allow,
  deny,
  access,
}: PolicyBlock & { readonly tenant: string }): RecordedBlock {
  return { tenant, allow, deny, access }
}

/** The policy of one sandbox from a record; a sandbox made at run time has its template's. */
export function recordedPolicy(text: string, { sandbox, tenant, template }: RecordedFor): PolicyFound {
  const recorded = parse(text)
  if (recorded === undefined)
    return { ok: false, problem: 'its rules were kept in a form that this octroi does not read' }
  if (recorded.omitted !== undefined) {
    const size = Math.round(recorded.omitted / 1024 / 1024)
    return { ok: false, problem: `its rules (${size} MB) were too many to be kept` }
  }
  const own = lookUp(recorded.sandboxes, sandbox)
  const above = templateOf(recorded, own === undefined ? { tenant, template } : own)
  if (own === undefined && above === undefined)
    return { ok: false, problem: `it has neither this sandbox nor the template that it was made from` }
  const { allow, deny, access } = effectivePolicy(withoutLimits(above), withoutLimits(own))
  return {
    ok: true,
    input: { allow, deny, access: access.flatMap((name) => lookUp(recorded.access, name) ?? []) },
  }
}

/** A template of another tenant is another template, as in the snapshot. */
function templateOf(
  { templates }: Recorded,
  { tenant, template }: { readonly tenant?: string | undefined; readonly template?: string | undefined },
): RecordedBlock | undefined {
  const found = template === undefined ? undefined : lookUp(templates, template)
  return found?.tenant === tenant ? found : undefined
}

const noLimits: LimitsConfig = {
  tunnels: undefined,
  requests: undefined,
  requestsPerMinute: undefined,
  bodyBytes: undefined,
  responseBytes: undefined,
}

const withoutLimits = (block: RecordedBlock | undefined): PolicyBlock | undefined =>
  block === undefined ? undefined : { ...block, limits: noLimits }

// `as`: a text that `policyRecord` made, or one of an older version, which has no `v`.
function parse(text: string): Recorded | undefined {
  const value = JSON.parse(text) as Partial<Recorded>
  return value.v === 1 ? (value as Recorded) : undefined
}

/** Names come from events, which may say `constructor`. */
function lookUp<T>(table: Readonly<Record<string, T>>, name: string): T | undefined {
  return Object.hasOwn(table, name) ? table[name] : undefined
}
