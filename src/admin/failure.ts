import type { LifecycleFault } from '../identity/lifecycle-model.ts'
import { LifecycleError } from '../identity/lifecycle-model.ts'
import { BodyError } from './wire.ts'
import type { Failure } from './wire.ts'

/** Status and body of an answer that is not a success. */
export interface FailureAnswer {
  readonly status: number
  readonly body: Failure
}

const faultStatus: Readonly<Record<LifecycleFault, number>> = {
  invalid: 400,
  not_found: 404,
  conflict: 409,
  refused: 422,
  unaudited: 503,
}

/** Texts for the framework's own refusals: its messages may quote the body. */
const frameworkFailures: Readonly<Record<number, Failure>> = {
  400: { error: 'malformed', message: 'the request is not well formed; send JSON' },
  413: { error: 'too_large', message: 'the body is larger than 64 KiB' },
  415: { error: 'unsupported_media_type', message: 'send the body as application/json' },
}

/** The answer to an exception that is the caller's affair, or `undefined` for one that is ours. */
export function expectedFailure(error: unknown): FailureAnswer | undefined {
  if (error instanceof LifecycleError)
    return { status: faultStatus[error.fault], body: { error: error.fault, message: error.message } }
  if (error instanceof BodyError) return { status: 400, body: { error: 'invalid', message: error.message } }
  const status = frameworkStatus(error)
  const body = frameworkFailures[status] ?? frameworkFailures[400]
  if (body === undefined || status < 400 || status > 499) return undefined
  return { status: status in frameworkFailures ? status : 400, body }
}

function frameworkStatus(error: unknown): number {
  if (!(error instanceof Error && 'statusCode' in error)) return 500
  return typeof error.statusCode === 'number' ? error.statusCode : 500
}
