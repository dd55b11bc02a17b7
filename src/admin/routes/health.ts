import type { FastifyInstance } from 'fastify'
import type { AdminDeps } from '../deps.ts'

/** `/healthz`, `/livez`: the process answers. `/readyz`: every part works now. Open, and tell a version to nobody. */
export function healthRoutes(app: FastifyInstance, deps: AdminDeps): void {
  const open = { config: { open: true } }
  app.get('/healthz', open, () => ({ alive: true }))
  app.get('/livez', open, () => ({ alive: true }))
  app.get('/readyz', open, async (_request, reply) => {
    const notReady = await deps.notReady()
    if (notReady.length === 0) return { ready: true }
    return reply.code(503).send({ ready: false, not_ready: notReady })
  })
}
