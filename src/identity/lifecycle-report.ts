import type { HandleRecord, SandboxRecord, TokenRecord } from '../core/model.ts'
import { label, namePattern } from '../config/leaf-schemas.ts'
import { nearest } from '../config/problem.ts'
import { LifecycleError } from './lifecycle-model.ts'
import type { HandleReport, LifecycleEvent, SandboxReport } from './lifecycle-model.ts'

/** Everything in the store that a report is drawn from, read at `now`. */
export interface ReportSources {
  readonly tokens: readonly TokenRecord[]
  readonly handles: readonly HandleRecord[]
  readonly now: number
}

/** A sandbox as commands and API show it. */
export function reportOf(record: SandboxRecord, { tokens, handles, now }: ReportSources): SandboxReport {
  return {
    name: record.name,
    id: record.id,
    state: isOver(record, now) ? 'expired' : record.pausedAt === undefined ? 'active' : 'paused',
    origin: record.origin,
    tenant: record.tenant,
    template: record.template,
    agent: record.agent,
    run: record.run,
    created_at: iso(record.createdAt),
    expires_at: record.expiresAt === undefined ? undefined : iso(record.expiresAt),
    paused_at: record.pausedAt === undefined ? undefined : iso(record.pausedAt),
    tokens: tokens.filter((token) => token.sandboxId === record.id && !isOver(token, now)).length,
    handles: handles
      .filter((handle) => handle.sandboxId === record.id)
      .map((handle) => handleReportOf(handle, now)),
  }
}

function handleReportOf(handle: HandleRecord, now: number): HandleReport {
  return {
    id: handle.id,
    access: handle.access,
    state: handle.revokedAt !== undefined ? 'revoked' : isOver(handle, now) ? 'expired' : 'live',
    created_at: iso(handle.createdAt),
    expires_at: handle.expiresAt === undefined ? undefined : iso(handle.expiresAt),
  }
}

/** The event of an operation on one sandbox. */
export function eventOf(
  record: SandboxRecord,
  action: LifecycleEvent['action'],
  note: string,
): LifecycleEvent {
  const { name: sandbox, tenant, template, agent, run } = record
  return { action, sandbox, tenant, template, agent, run, note }
}

/** Is its time up? Nothing without an end ever is. */
export function isOver(record: { readonly expiresAt: number | undefined }, now: number): boolean {
  return record.expiresAt !== undefined && record.expiresAt <= now
}

/** ISO 8601 in UTC, milliseconds included. */
export function iso(ms: number): string {
  return new Date(ms).toISOString()
}

/** Throws `invalid` for what cannot be a sandbox name: it is also the user name of proxy credentials and a file name. */
export function checkName(name: string): void {
  if (!namePattern.test(name))
    throw new LifecycleError(
      'invalid',
      'a sandbox name has 1 to 63 letters, digits, `.`, `_` and `-`, and begins with a letter or digit',
    )
}

/** Throws `invalid` for what the configuration would not take as an agent's label either. */
export function checkLabel(field: 'agent' | 'run', value: string | undefined): void {
  if (value !== undefined && !label.safeParse(value).success)
    throw new LifecycleError('invalid', `${field}: must be one line of 1 to 200 characters`)
}

/** Ends the sentence about a name there is not. The name is not repeated: a mistyped command may hold a secret. */
export function insteadOf(name: string, known: readonly string[]): string {
  const meant = nearest(name, known)
  if (meant !== undefined) return `; did you mean ${meant}?`
  if (known.length === 0) return '; there is none'
  return known.length > 20 ? '' : `; there are: ${known.toSorted().join(', ')}`
}
