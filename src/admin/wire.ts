import { z } from 'zod'
import { revokeKinds } from '../identity/lifecycle-model.ts'

// Bodies that the API takes are strict, so that a misspelt field is an error and not silence.

/** Body of `POST /v1/sandboxes`. */
export const createBody = z.strictObject({
  template: z.string().max(128),
  name: z.string().max(128).optional(),
  agent: z.string().max(256).optional(),
  run: z.string().max(256).optional(),
  ttl_ms: z.int().optional(),
})
/** Body of `…/rotate-token`; none means the usual overlap. */
export const rotateBody = z.strictObject({ overlap_ms: z.int().optional() }).optional()
/** Body of `POST /v1/revoke`. */
export const revokeBody = z.strictObject({
  kind: z.enum(revokeKinds),
  target: z.string().min(1).max(1024),
  undo: z.boolean().optional(),
})
/** Body of `…/grants`. */
export const grantBody = z.strictObject({ access: z.string().max(128) })
const runId = z.string().regex(/^[0-9A-Z]{26}$/)
/** Body of `…/runs`. */
export const runBody = z.strictObject({ exit: z.int().min(0).max(255), run: runId.optional() })
/** Body of `…/socket`; none means a socket that no run has for itself. */
export const socketBody = z.strictObject({ run: runId.optional() }).optional()
/** Field of the answer to `POST /v1/attach` that names the run. */
export const runField = 'octroi-run'
/** For routes that take nothing: no body, or `{}`. */
export const noBody = z.strictObject({}).optional()

// Answers, as the command line reads them: fields of a newer broker are passed over.

const handleReport = z.object({
  id: z.string(),
  access: z.string(),
  state: z.enum(['live', 'revoked', 'expired']),
  created_at: z.string(),
  expires_at: z.string().optional(),
})
/** One sandbox. */
export const sandboxReport = z.object({
  name: z.string(),
  id: z.string(),
  state: z.enum(['active', 'paused', 'expired']),
  origin: z.enum(['config', 'runtime']),
  tenant: z.string(),
  template: z.string().optional(),
  agent: z.string().optional(),
  run: z.string().optional(),
  created_at: z.string(),
  expires_at: z.string().optional(),
  paused_at: z.string().optional(),
  tokens: z.int(),
  handles: z.array(handleReport),
})
/** Answer of `GET /v1/sandboxes`. */
export const sandboxList = z.object({ sandboxes: z.array(sandboxReport) })
/** Answer of create, with the token. */
export const created = z.object({ sandbox: sandboxReport, token: z.string() })
/** Answer of rotate-token, with the token. */
export const rotated = z.object({ sandbox: sandboxReport, token: z.string(), old_valid_until: z.string() })
/** Answer of `POST /v1/revoke`. */
export const revoked = z.object({
  kind: z.enum(revokeKinds),
  target: z.string(),
  handles: z.int(),
  tokens: z.int(),
  upstream: z.string(),
})
/** Answer of `DELETE /v1/sandboxes/NAME`. */
export const destroyed = z.object({ destroyed: z.string() })
/** Answer of `…/socket`. */
export const socketOpened = z.object({ path: z.string() })
/** Answer of `POST /v1/reload`. */
export const reloaded = z.object({ policy: z.string() })
/** Answer of what has nothing to tell. */
export const acknowledged = z.object({ ok: z.literal(true) })
/** Answer of `GET /v1/status`. */
export const brokerStatus = z.object({
  policy: z.string(),
  sandboxes: z.int(),
  listeners: z.array(z.object({ name: z.string(), address: z.string() })),
  audit: z.enum(['ok', 'degraded', 'full']),
  started_at: z.string(),
  pid: z.int(),
  private: z.boolean(),
  runs: z.int(),
  ready: z.boolean(),
  not_ready: z.array(z.string()),
})
/** Answer of `POST /v1/handover`. */
export const handedOver = z.object({ outcome: z.enum(['stopping', 'in_use', 'permanent']) })
/** Body of every answer that is not a success; `id` only for failures of our own. */
export const failure = z.object({ error: z.string(), message: z.string(), id: z.string().optional() })

/** What went wrong. */
export type Failure = z.infer<typeof failure>

/** A body that does not fit; the message names fields and what they take, never what was sent. */
export class BodyError extends TypeError {
  override readonly name = 'BodyError'
}

/** Parses a request body; `BodyError` when it does not fit. */
export function readBody<T>(schema: z.ZodType<T>, body: unknown): T {
  const result = schema.safeParse(body ?? undefined)
  if (result.success) return result.data
  throw new BodyError(result.error.issues.map(issueText).join('; '))
}

function issueText(issue: z.core.$ZodIssue): string {
  const where = issue.path.length === 0 ? 'body' : issue.path.join('.')
  // The default text repeats the unknown key, which may be a secret in the wrong place.
  return `${where}: ${issue.code === 'unrecognized_keys' ? 'has an unknown field' : issue.message}`
}
