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

/** Which check refuses with a reason, where it is not the rules that do. */
const reasonsOf: Readonly<Record<string, readonly DenyReason[]>> = {
  framing: ['malformed', 'method_unsupported', 'too_large'],
  identity: ['auth_missing', 'auth_invalid', 'identity_mismatch'],
  paused: ['sandbox_paused', 'revoked'],
  authority: ['authority_mismatch'],
  budgets: ['rate_limited', 'budget_exhausted'],
  handle: [
    ...(['handle_unknown', 'handle_wrong_destination', 'handle_placement', 'handle_scope'] as const),
    'foreign_credential',
  ],
  dns: ['dns_failed', 'dns_timeout'],
  guard: ['ip_denied'],
  approval: ['approval_required', 'approval_denied'],
  audit: ['audit_unavailable'],
  issuer: ['issuer_unavailable', 'credential_invalid'],
  upstream: ['upstream_unreachable', 'upstream_tls', 'upstream_failed', 'upstream_timeout'],
  response: ['unreadable_encoding', 'bomb', 'credential_in_response'],
  broker: ['not_ready', 'internal'],
}
const checkOf = new Map<string, string>(
  Object.entries(reasonsOf).flatMap(([check, reasons]) => reasons.map((reason) => [reason, check] as const)),
)

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

function refusedBy(event: LoggedEvent, rules: 'allow' | 'deny'): CheckLine {
  const { reason = 'refused' } = event
  const title = Object.entries(catalogue).find(([name]) => name === reason)?.[1].title
  const text = title === undefined ? reason : `${reason}: ${title}`
  return { check: refusingCheck(event, rules), passed: false, text }
}

/** Two reasons are given both for a name, unasked, and for an address that it resolved to. */
function refusingCheck({ reason = '', address }: LoggedEvent, rules: 'allow' | 'deny'): string {
  if (reason === 'metadata_denied') return rules === 'deny' ? 'metadata' : 'guard'
  if (reason === 'self') return address === undefined ? 'self' : 'guard'
  return checkOf.get(reason) ?? 'policy'
}

function noteOf(event: LoggedEvent, { decision }: Explanation): string | undefined {
  const isOfRules = event.verdict === 'allow' || refusingCheck(event, decision.verdict) === 'policy'
  const isSame = decision.verdict === event.verdict && decision.rule === event.rule
  if (!isOfRules || isSame) return undefined
  const by = decision.rule === undefined ? '' : ` by ${decision.rule}`
  return `asked again with what the log keeps of the request, the rules say: ${decision.verdict}: ${decision.reason}${by}`
}
