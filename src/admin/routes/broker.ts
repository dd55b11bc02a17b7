import type { FastifyInstance } from 'fastify'
import { OperatorError } from '../../core/errors.ts'
import type { AdminDeps } from '../deps.ts'
import { noBody, readBody } from '../wire.ts'

/** The broker itself: its state, and news for it. */
export function brokerRoutes(app: FastifyInstance, deps: AdminDeps): void {
  app.get('/v1/status', async () => {
    const notReady = await deps.notReady()
    return { ...deps.status(), ready: notReady.length === 0, not_ready: notReady }
  })

  app.post('/v1/reload', async (request, reply) => {
    readBody(noBody, request.body)
    try {
      return await deps.reload()
    } catch (error) {
      // The operator's own mistake, with file, line and column; the old policy is still in force.
      if (!(error instanceof OperatorError)) throw error
      return reply.code(422).send({ error: 'not_reloaded', message: error.message })
    }
  })

  app.post('/v1/secrets/changed', async (request) => {
    readBody(noBody, request.body)
    await deps.secretsChanged()
    return { ok: true }
  })
}
