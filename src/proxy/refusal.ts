import { catalogue, Refusal } from '../core/errors.ts'
import { authorityOf } from '../policy/destination.ts'
import type { Destination } from '../policy/model.ts'
import { writeHead } from './head.ts'

/** What the answer to a refused request says beside its reason. */
export interface RefusalContext {
  readonly id: string
  readonly destination: Destination | undefined
  /** Answering HEAD: no content. */
  readonly isHead: boolean
  readonly keepAlive: boolean
}

/**
 * The whole answer to a refused request: the reason stands in the status line too, since that is all most clients show
 * of a refused CONNECT. Nothing of the request is repeated but the canonical destination. RFC 9457, RFC 9209.
 */
export function refusalMessage(refusal: Refusal, context: RefusalContext): string {
  // Which of the two it was is nobody's business but the operator's: a wrong password and none get the same answer.
  const reason = refusal.reason === 'auth_invalid' ? 'auth_missing' : refusal.reason
  const entry = catalogue[reason]
  const destination = context.destination === undefined ? undefined : authorityOf(context.destination)
  const content = JSON.stringify({
    type: `urn:octroi:${reason}`,
    title: entry.title,
    status: refusal.status,
    reason,
    id: context.id,
    destination,
    retry: entry.retry,
    hint: refusal.hint,
  })
  const phrase = ['octroi', reason, destination, `id=${context.id}`].filter((part) => part !== undefined)
  return (
    writeHead(`HTTP/1.1 ${refusal.status} ${phrase.join(' ')}`, [
      ...(refusal.status === 407
        ? [['Proxy-Authenticate', 'Basic realm="octroi", charset="UTF-8"'] as const]
        : []),
      ...(refusal.status === 405 ? [['Allow', 'GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS'] as const] : []),
      ...(refusal.status === 429 || refusal.status === 503 ? [['Retry-After', '30'] as const] : []),
      ['Content-Type', 'application/problem+json'],
      ['Content-Length', String(Buffer.byteLength(content))],
      ['Proxy-Status', `octroi; error=${entry.proxyError}; details="${reason}"`],
      ['Cache-Control', 'no-store'],
      ['Connection', context.keepAlive ? 'keep-alive' : 'close'],
    ]) + (context.isHead ? '' : content)
  )
}

/** Any failure as a refusal: what was not foreseen is an internal error, and nothing of it reaches the client. */
export function asRefusal(error: unknown): Refusal {
  return error instanceof Refusal ? error : new Refusal('internal', { cause: error })
}
