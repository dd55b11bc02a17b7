import type { LoggedEvent } from '../audit/query.ts'
import type { DenyReason } from '../core/errors.ts'
import { catalogue } from '../core/errors.ts'
import { recordedPolicy } from '../identity/policy-record.ts'
import { explain } from '../policy/decide.ts'
import type { Explanation } from '../policy/decide.ts'
import { authorityOf, parseAuthority } from '../policy/destination.ts'
import type { Destination, PolicyRequest, TraceLine } from '../policy/model.ts'
import { compilePolicy } from '../policy/rules.ts'
import type { CheckLine } from './trace-lines.ts'
import { subjectLine, traceLines } from './trace-lines.ts'

/** A past decision, made again under the policy then in force; its JSON is what `--json` prints. */
export interface PastDecision {
  readonly sandbox: string
  readonly destination: string
  readonly policy: string
  readonly steps: readonly CheckLine[]
  readonly trace: readonly TraceLine[]
  /** What the rules alone say; differs from the event where a later check refused. */
  readonly rules: {
    readonly verdict: 'allow' | 'deny'
    readonly reason: string
    readonly rule: string | undefined
  }
  /** Said when the rules say something else today than the event: the log leaves out parts of some paths. */
  readonly note: string | undefined
}

/** The decision again, or why it cannot be made; `undefined` for an event that no policy decided. */
export type Retraced =
  | { readonly ok: true; readonly decision: PastDecision }
  | { readonly ok: false; readonly problem: string }
  | undefined

/** Compiles the rules of an event's policy anew and asks them what the event's request asked. */
export function retrace(event: LoggedEvent, policyText: string | undefined): Retraced {
  const { policy, sandbox } = event
  const request = requestOf(event)
  if (policy === undefined || sandbox === undefined || request === undefined) return undefined
  if (policyText === undefined) return failed(policy, 'its rules are not kept here')
  const found = recordedPolicy(policyText, { ...event, sandbox })
  if (!found.ok) return failed(policy, found.problem)
  const explained = explain(compilePolicy(found.input), request)
  const { verdict, reason, rule } = explained.decision
  return {
    ok: true,
    decision: {
      ...{ sandbox, policy, destination: authorityOf(request.destination) },
      steps: stepsOf(event, explained),
      trace: explained.trace,
      rules: { verdict, reason, rule },
      note: noteOf(event, explained),
    },
  }
}

const failed = (policy: string, problem: string): Retraced => ({
  ok: false,
  problem: `the decision cannot be traced again under policy ${policy}: ${problem}`,
})

/** The lines that `octroi why` prints after the event itself. */
export function decisionLines(event: LoggedEvent, decision: PastDecision): string[] {
  const by = event.rule === undefined ? '' : ` by ${event.rule}`
  return [
    subjectLine({ ...event, ...decision }),
    ...traceLines(decision.steps, decision.trace),
    `${event.verdict ?? decision.rules.verdict}: ${event.reason ?? decision.rules.reason}${by}`,
    ...(decision.note === undefined ? [] : [decision.note]),
  ]
}

function requestOf({ host, port, method, scheme, path = '/', ts }: LoggedEvent): PolicyRequest | undefined {
  if (host === undefined || port === undefined) return undefined
  const parsed = parseAuthority(`${host.includes(':') ? `[${host}]` : host}:${port}`)
  if (!parsed.ok) return undefined
  const destination: Destination = parsed.destination
  if (method === undefined || method === 'CONNECT') return { kind: 'connect', destination, now: ts }
  if (scheme !== 'http' && scheme !== 'https') return undefined
  return { kind: 'http', destination, scheme, method, path, now: ts }
}

/** Which check refuses with a reason; the others come after everything that can be told from an event. */
const checkOf: Partial<Record<DenyReason, string>> = {
  auth_missing: 'identity',
  auth_invalid: 'identity',
  identity_mismatch: 'identity',
  malformed: 'framing',
  method_unsupported: 'framing',
  too_large: 'framing',
  sandbox_paused: 'paused',
  revoked: 'paused',
  authority_mismatch: 'authority',
  rate_limited: 'budgets',
  budget_exhausted: 'budgets',
  handle_unknown: 'handle',
  handle_wrong_destination: 'handle',
  handle_placement: 'handle',
  handle_scope: 'handle',
  foreign_credential: 'handle',
  dns_failed: 'dns',
  dns_timeout: 'dns',
  ip_denied: 'guard',
  approval_required: 'approval',
  approval_denied: 'approval',
  audit_unavailable: 'audit',
  issuer_unavailable: 'issuer',
  credential_invalid: 'issuer',
  upstream_unreachable: 'upstream',
  upstream_tls: 'upstream',
  upstream_failed: 'upstream',
  upstream_timeout: 'upstream',
  unreadable_encoding: 'response',
  bomb: 'response',
  credential_in_response: 'response',
}

/** Checks before the rules are asked. */
const early = ['framing', 'identity', 'paused', 'metadata', 'self']

/** What is known of the checks: those the event tells of, up to the one that refused. */
function stepsOf(event: LoggedEvent, { decision }: Explanation): CheckLine[] {
  const pass = (check: string, text: string): CheckLine => ({ check, passed: true, text })
  const refused = event.verdict === 'deny' ? refusedBy(event, decision.verdict) : undefined
  const identity = pass('identity', `proved to be ${event.sandbox ?? 'nobody'}`)
  if (refused !== undefined && early.includes(refused.check))
    return refused.check === 'identity' || refused.check === 'framing' ? [refused] : [identity, refused]
  const rules: CheckLine =
    decision.verdict === 'allow'
      ? pass('policy', `allowed by ${decision.rule}`)
      : {
          check: 'policy',
          passed: false,
          text: `${decision.reason}: ${decision.rule === undefined ? 'no rule allows this' : `decided by ${decision.rule}`}`,
        }
  const steps = [identity, rules]
  if (event.handle !== undefined)
    steps.push(pass('handle', `handle ${event.handle} of the access ${event.access ?? ''}`))
  if (event.address !== undefined) steps.push(pass('guard', `${event.address} may be dialled`))
  const isSaid = refused === undefined || refused.check === 'policy'
  return isSaid ? steps : [...steps.filter(({ check }) => check !== refused.check), refused]
}

function refusedBy({ reason, address }: LoggedEvent, rules: 'allow' | 'deny'): CheckLine {
  const entry = Object.entries(catalogue).find(([name]) => name === reason)
  const title = entry === undefined ? '' : `: ${entry[1].title}`
  // The same reason for a name that is refused unasked and for an address that it resolved to.
  const literal = rules === 'deny' ? 'metadata' : 'guard'
  const self = address === undefined ? 'self' : 'guard'
  const special = { metadata_denied: literal, self }
  const check = Object.hasOwn(special, reason ?? '')
    ? special[reason as keyof typeof special] // `as`: it is one of the two
    : (checkOf[reason as DenyReason] ?? 'policy') // `as`: any other text finds nothing
  return { check, passed: false, text: `${reason ?? 'refused'}${title}` }
}

function noteOf(event: LoggedEvent, { decision }: Explanation): string | undefined {
  const isRules = event.verdict === 'allow' || checkIsRules(event.reason)
  const isSame = decision.verdict === event.verdict && decision.rule === event.rule
  if (!isRules || isSame) return undefined
  const by = decision.rule === undefined ? '' : ` by ${decision.rule}`
  return `asked again with what the log keeps of the request, the rules say: ${decision.verdict}: ${decision.reason}${by}`
}

const checkIsRules = (reason: string | undefined): boolean =>
  ['host_denied', 'port_denied', 'method_denied', 'path_denied', 'rule_expired'].includes(reason ?? '')
