import { fastify } from 'fastify'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { Bearer } from './auth.ts'
import type { AdminDeps } from './deps.ts'
import { expectedFailure } from './failure.ts'
import type { FailureAnswer } from './failure.ts'
import { originFault } from './origin.ts'
import { brokerRoutes } from './routes/broker.ts'
import { healthRoutes } from './routes/health.ts'
import { ownerRoutes } from './routes/owner.ts'
import { revocationRoutes } from './routes/revocations.ts'
import { sandboxRoutes } from './routes/sandboxes.ts'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Answered without credentials. Only health is. */
    open?: boolean
  }
}

/**
 * What a listener asks of its clients. `socket`: nothing, since only the owner of the state folder can connect.
 * `tcp`: a `Host` from `hosts()`, no foreign origin, and the operator token.
 */
export type Door =
  | { readonly kind: 'socket' }
  | { readonly kind: 'tcp'; readonly hosts: () => ReadonlySet<string>; readonly bearer: Bearer }

const maxBodyBytes = 64 * 1024

/** The admin API behind one door. Every route, also one that does not exist, is behind the door's checks. */
export function createAdminApp(deps: AdminDeps, door: Door): FastifyInstance {
  const app = fastify({
    logger: false,
    bodyLimit: maxBodyBytes,
    requestTimeout: 10_000,
    connectionTimeout: 30_000,
    keepAliveTimeout: 5_000,
    forceCloseConnections: true,
    exposeHeadRoutes: true,
    http: { maxHeaderSize: 16 * 1024 },
    // A path that cannot be decoded is refused before any hook runs, so the door is asked here too.
    frameworkErrors: (_error, request, reply) => {
      const refusal = refuse(door, request) ?? { status: 400, body: notWellFormed }
      void answer(reply, refusal)
    },
  })
  // The default parser takes text/plain, which a cross-site form may send without a preflight.
  app.removeContentTypeParser('text/plain')
  app.addHook('onRequest', async (request, reply) => {
    void reply.headers(safetyHeaders)
    const refusal = refuse(door, request)
    if (refusal) return answer(reply, refusal)
    return undefined
  })
  app.setNotFoundHandler((_request, reply) => answer(reply, { status: 404, body: noRoute }))
  app.setErrorHandler((error, request, reply) => {
    const expected = expectedFailure(error)
    if (expected) return answer(reply, expected)
    const id = Buffer.from(deps.random(8)).toString('hex')
    deps.log.error(
      { err: error, id, method: request.method, route: request.routeOptions.url },
      'admin API failed',
    )
    return answer(reply, {
      status: 500,
      body: { error: 'internal', message: `failed; see the log for ${id}`, id },
    })
  })
  const owner = door.kind === 'socket' ? [ownerRoutes] : []
  for (const routes of [healthRoutes, sandboxRoutes, revocationRoutes, brokerRoutes, ...owner])
    void app.register((scope) => Promise.resolve(routes(scope, deps)))
  return app
}

const notWellFormed = { error: 'malformed', message: 'the request target is not well formed' }
const noRoute = { error: 'not_found', message: 'no such route' }
const unauthorized = {
  error: 'unauthorized',
  message: 'send the operator token (admin.token in the state folder) as `Authorization: Bearer`',
}

interface DoorRefusal extends FailureAnswer {
  readonly headers?: Readonly<Record<string, string>>
}

function refuse(door: Door, request: FastifyRequest): DoorRefusal | undefined {
  if (door.kind === 'socket') return undefined
  switch (originFault(request.raw, door.hosts())) {
    case 'host':
      return { status: 421, body: { error: 'misdirected', message: 'this Host is not served here' } }
    case 'origin':
      return { status: 403, body: { error: 'cross_site', message: 'requests of other sites are refused' } }
    case undefined:
      break
  }
  if (request.routeOptions.config.open === true) return undefined
  const { authorization } = request.raw.headers
  const judged = door.bearer(authorization, request.raw.socket.remoteAddress ?? '')
  if (judged === 'ok') return undefined
  if (judged === 'throttled')
    return {
      status: 429,
      body: { error: 'rate_limited', message: 'too many wrong tokens' },
      headers: { 'retry-after': '60' },
    }
  return { status: 401, body: unauthorized, headers: { 'www-authenticate': 'Bearer realm="octroi"' } }
}

function answer(reply: FastifyReply, refusal: DoorRefusal): FastifyReply {
  return reply
    .code(refusal.status)
    .headers({ ...safetyHeaders, ...refusal.headers })
    .send(refusal.body)
}

/** On every answer: nothing is cached, framed, sniffed or read by another site. */
const safetyHeaders = {
  'cache-control': 'no-store',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
} as const
