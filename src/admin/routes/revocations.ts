import type { FastifyInstance } from 'fastify'
import type { AdminDeps } from '../deps.ts'
import { readBody, revokeBody } from '../wire.ts'

/** Revocation; in force before the answer. */
export function revocationRoutes(app: FastifyInstance, deps: AdminDeps): void {
  app.post('/v1/revoke', (request) => deps.lifecycle.revoke(readBody(revokeBody, request.body)))
}
