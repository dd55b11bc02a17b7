import type { FastifyInstance } from 'fastify'
import type { AdminDeps } from '../deps.ts'
import { createBody, grantBody, noBody, readBody, rotateBody, runBody, socketBody } from '../wire.ts'

interface Named {
  Params: { name: string }
}

/** The life cycle of sandboxes. Only the answers of create and rotate-token hold a token. */
export function sandboxRoutes(app: FastifyInstance, deps: AdminDeps): void {
  const { lifecycle } = deps

  app.get('/v1/sandboxes', async () => ({ sandboxes: await lifecycle.list() }))

  app.post('/v1/sandboxes', async (request, reply) => {
    const { ttl_ms: ttlMs, ...body } = readBody(createBody, request.body)
    const made = await lifecycle.create({ ...body, ttlMs })
    return reply.code(201).send(made)
  })

  app.get<Named>('/v1/sandboxes/:name', (request) => lifecycle.show(request.params.name))

  app.delete<Named>('/v1/sandboxes/:name', async (request) => {
    readBody(noBody, request.body)
    await lifecycle.destroy(request.params.name)
    return { destroyed: request.params.name }
  })

  app.post<Named>('/v1/sandboxes/:name/pause', (request) => {
    readBody(noBody, request.body)
    return lifecycle.pause(request.params.name)
  })

  app.post<Named>('/v1/sandboxes/:name/resume', (request) => {
    readBody(noBody, request.body)
    return lifecycle.resume(request.params.name)
  })

  app.post<Named>('/v1/sandboxes/:name/rotate-token', (request) => {
    const body = readBody(rotateBody, request.body)
    return lifecycle.rotateToken(request.params.name, body?.overlap_ms)
  })

  app.post<Named>('/v1/sandboxes/:name/grants', (request) => {
    const { access } = readBody(grantBody, request.body)
    return lifecycle.grant({ sandbox: request.params.name, access })
  })

  app.post<Named>('/v1/sandboxes/:name/runs', async (request) => {
    const { exit, run } = readBody(runBody, request.body)
    await lifecycle.runEnded({ sandbox: request.params.name, exit, run })
    return { ok: true }
  })

  app.post<Named>('/v1/sandboxes/:name/socket', async (request) => {
    const body = readBody(socketBody, request.body)
    const { name } = await lifecycle.show(request.params.name)
    return { path: await deps.openSandboxSocket(name, body?.run) }
  })
}
