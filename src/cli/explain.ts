import type { Config } from '../config/model.ts'
import { nearest } from '../config/problem.ts'
import type { HandleTruth } from '../core/errors.ts'
import { OperatorError } from '../core/errors.ts'
import type { HandleRecord, SandboxRecord, TokenRecord } from '../core/model.ts'
import type { SandboxView, Snapshot } from '../identity/model.ts'
import { compileSnapshot } from '../identity/snapshot.ts'
import { explain } from '../policy/decide.ts'
import { authorityOf, parseAbsoluteTarget, parseAuthority } from '../policy/destination.ts'
import type { TraceLine } from '../policy/model.ts'
import { firstDenial } from './explain-checks.ts'
import type { Asked, Question, Step } from './explain-checks.ts'

/** What the store holds; empty while no broker has run. */
export interface Records {
  readonly sandboxes: readonly SandboxRecord[]
  readonly tokens: readonly TokenRecord[]
  readonly handles: readonly HandleRecord[]
}

/** The trace of a decision; its JSON is what `--json` prints. */
export interface Answer {
  readonly sandbox: string
  readonly tenant: string
  readonly agent: string | undefined
  readonly template: string | undefined
  readonly destination: string
  readonly verdict: 'allow' | 'deny'
  readonly reason: string
  readonly rule: string | undefined
  readonly hint: string | undefined
  /** For operators: what the client's `handle_unknown` stands for. */
  readonly truth: HandleTruth | undefined
  readonly policy: string
  readonly steps: readonly Step[]
  readonly trace: readonly TraceLine[]
}

/** Goes through the checks of one request as the data plane would, without resolving or dialling anything. */
export function explainRequest(
  { config, records, now }: { config: Config; records: Records; now: number },
  question: Question,
): Answer {
  const snapshot = compileSnapshot({ config, ...withUnmade(config, records), now })
  const sandbox = sandboxOf(snapshot, config, question.sandbox)
  const asked = parseQuestion(question, now)
  const { decision, trace } = explain(sandbox.policy, asked.request)
  const denial = firstDenial({ config, snapshot, sandbox, question, asked, decision })
  const outcome = denial.denied ?? {
    reason: decision.verdict === 'allow' ? decision.reason : 'host_denied',
    rule: decision.rule,
    hint: undefined,
    truth: undefined,
  }
  return {
    sandbox: sandbox.name,
    tenant: sandbox.tenant,
    agent: sandbox.agent,
    template: sandbox.template,
    destination: authorityOf(asked.destination),
    verdict: denial.denied === undefined ? 'allow' : 'deny',
    ...outcome,
    policy: snapshot.hash,
    steps: denial.steps,
    trace,
  }
}

/** Sandboxes of the files that no broker has made a record for yet. */
function withUnmade(config: Config, records: Records): Records {
  const made = new Set(
    records.sandboxes.filter((record) => record.destroyedAt === undefined).map(({ name }) => name),
  )
  const unmade = [...config.sandboxes.values()].filter(({ name }) => !made.has(name))
  const absent = { run: undefined, expiresAt: undefined, pausedAt: undefined, destroyedAt: undefined }
  return {
    ...records,
    sandboxes: [
      ...records.sandboxes,
      ...unmade.map(({ name, tenant, template, agent }) => ({
        ...{ id: `unmade ${name}`, name, origin: 'config' as const, tenant, template, agent, createdAt: 0 },
        ...absent,
      })),
    ],
  }
}

function sandboxOf(snapshot: Snapshot, config: Config, name: string): SandboxView {
  const found = snapshot.sandboxes.get(name)
  if (found !== undefined) return found
  const names = [...snapshot.sandboxes.keys(), ...config.sandboxes.keys()]
  const meant = nearest(name, names)
  const hint = meant === undefined ? '' : `; did you mean ${meant}?`
  throw new OperatorError(`there is no sandbox of that name${hint}`, { exitCode: 2 })
}

function parseQuestion({ method, url }: Question, now: number): Asked {
  const upper = method.toUpperCase()
  if (upper === 'CONNECT') {
    const parsed = parseAuthority(url)
    if (!parsed.ok)
      throw new OperatorError(`CONNECT takes HOST:PORT: the host ${parsed.problem}`, { exitCode: 2 })
    const { destination } = parsed
    return { destination, request: { kind: 'connect', destination, now }, target: '/' }
  }
  const parsed = parseAbsoluteTarget(url)
  if (!parsed.ok) throw new OperatorError(`the URL ${parsed.problem}`, { exitCode: 2 })
  const { destination, scheme, pathAndQuery: target } = parsed
  const mark = target.indexOf('?')
  const path = mark < 0 ? target : target.slice(0, mark)
  return { destination, request: { kind: 'http', destination, scheme, method: upper, path, now }, target }
}
