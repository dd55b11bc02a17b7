import type { FastifyInstance } from 'fastify'
import type { AdminDeps } from '../deps.ts'
import { noBody, readBody, runField } from '../wire.ts'

/** What only commands on this machine ask, over the owner-only socket. */
export function ownerRoutes(app: FastifyInstance, deps: AdminDeps): void {
  // The answer goes on for as long as the run does: however the run ends, its connection ends with it.
  app.post('/v1/attach', (request, reply) => {
    readBody(noBody, request.body)
    const attached = deps.attach()
    if (attached === undefined) {
      void reply.code(503).send({ error: 'stopping', message: 'the broker is about to end' })
      return
    }
    reply.hijack()
    request.raw.socket.setTimeout(0)
    reply.raw.once('close', attached.detach)
    const fields = {
      'content-type': 'application/json',
      'cache-control': 'no-store',
      [runField]: attached.run,
    }
    reply.raw.writeHead(200, fields)
    reply.raw.flushHeaders()
  })

  app.post('/v1/handover', (request) => {
    readBody(noBody, request.body)
    return { outcome: deps.handOver() }
  })
}
