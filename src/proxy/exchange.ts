import { Refusal } from '../core/errors.ts'
import { coversRequest } from '../handles/coverage.ts'
import type { Field } from '../http1/fields.ts'
import type { RequestHead } from '../http1/head.ts'
import type { Snapshot } from '../identity/model.ts'
import { hostFieldOf } from '../policy/destination.ts'
import { decide } from '../policy/decide.ts'
import { admitRequest, type Cleared } from './admit.ts'
import { answer } from './answer.ts'
import { bodyOf, type Body } from './body.ts'
import { ClientGone, type ClientConnection } from './connection.ts'
import { NoResponse, forward, type Incoming } from './forward.ts'
import { Informant } from './informant.ts'
import { isStillReached } from './live.ts'
import { loggablePath } from './log-path.ts'
import { startRecord, type Record } from './record.ts'
import { refuse } from './refuse.ts'
import { destinationNamed, problemRefusal, readRequest, type ClientRequest } from './request.ts'
import { readableRequest, treatResponse, treatmentOf, type Treatment } from './response.ts'
import { finish } from './finish.ts'
import { swapFields } from './swap.ts'
import { connectUpstream, type Leg } from './upstream-leg.ts'
import { noteSender, whoAsks } from './who.ts'

/** What happens to one request, from its head to its event; the stages stand in the order in which they run. */
interface Story {
  readonly client: ClientConnection
  readonly snapshot: Snapshot
  readonly record: Record
  /** Ends the exchange from outside: the client left, the sandbox was revoked, time ran out. */
  readonly abort: AbortController
  leg: Leg | undefined
  /** The request's body, once somebody reads it. */
  body: Body | undefined
}

/**
 * One request and its response. Resolves to `true` when the connection may carry another request; whatever fails, the
 * client gets a refusal if it can still be told, and the log gets its event.
 */
export async function exchange(client: ClientConnection, head: RequestHead): Promise<boolean> {
  const { plane } = client
  const snapshot = plane.snapshot()
  const record = startRecord({
    id: plane.newId(),
    ts: plane.clock.now(),
    started: plane.clock.monotonic(),
    snapshot,
    source: client.source,
    run: client.facts.run,
  })
  const story: Story = {
    client,
    snapshot,
    record,
    abort: new AbortController(),
    leg: undefined,
    body: undefined,
  }
  const releases: (() => void)[] = []
  if (client.tunnel !== undefined) client.tunnel.requests++
  try {
    const request = understand(story, head)
    const who = whoAsks(client, head, { snapshot, record })
    record.path = loggablePath(plane.patterns(who.sandbox.tenant), request.path)
    refuseUnready(story)
    const cleared = admitRequest({ plane, snapshot, who, record }, request, (release) =>
      releases.push(release),
    )
    releases.push(watch(story, cleared))
    const treatment = treatmentOf(plane, snapshot, { sandbox: who.sandbox, request })
    const incoming = await askUpstream(story, cleared, treatment)
    const outcome = await treatResponse(incoming, treatment, plane)
    releases.push(() => outcome.body.close?.())
    const { isRequestSent } = incoming
    const mayKeep = await answer(client, outcome, { request, isRequestSent, treatment, record, story })
    return keep(story, { request, incoming, mayKeep })
  } catch (error) {
    return await refuse(client, error, { record, head, body: story.body, leg: story.leg })
  } finally {
    for (const release of releases) release()
    client.onGone(undefined)
    finish(plane, record)
  }
}

function understand({ client, snapshot, record }: Story, head: RequestHead): ClientRequest {
  record.method = head.method
  if (client.tunnel !== undefined) {
    record.destination = client.tunnel.destination
    record.scheme = client.tunnel.scheme
    if (client.tunnel.scheme === 'https')
      record.tls = { mode: 'terminate', ...version(client.tunnel.tlsVersion) }
  }
  try {
    const request = readRequest(head, client.tunnel)
    record.destination = request.destination
    record.scheme = request.scheme
    if (client.tunnel?.isMisdirected === true) throw new Refusal('authority_mismatch')
    return request
  } catch (error) {
    record.destination ??= destinationNamed(head)
    noteSender(client, head, { snapshot, record })
    throw error
  }
}

const version = (tls: string | undefined): { version?: string } => (tls === undefined ? {} : { version: tls })

function refuseUnready({ client }: Story): void {
  if (!client.plane.isReady()) throw new Refusal('not_ready')
  if (client.plane.audit.state === 'full') throw new Refusal('audit_unavailable')
}

/** From here on the exchange ends when the client leaves or a new policy denies it; returns what stops watching. */
function watch(story: Story, cleared: Cleared): () => void {
  const { client, record, abort } = story
  const { plane } = client
  const live = {
    isBusy: true,
    isStillAllowed: (snapshot: Snapshot): boolean =>
      isStillAllowed(snapshot, cleared, { now: plane.clock.now(), address: record.address }) &&
      !cleared.swaps.some(({ grant }) => plane.broker.isRevoked(grant.access.credential)),
    revoke: (): void => {
      record.denied = 'revoked'
      record.end = 'revoked'
      abort.abort(new Refusal('revoked'))
    },
  }
  plane.live.add(live)
  client.onGone(() => abort.abort(new ClientGone('the client left')))
  abort.signal.addEventListener('abort', () => {
    const reason: unknown = abort.signal.reason
    story.leg?.upstream.fail(reason instanceof Error ? reason : new ClientGone('the client left'))
    // Before the answer began the client can still be told why; after it only the end of the connection tells.
    if (record.end === 'revoked' && record.status !== undefined) client.socket.destroy()
  })
  return () => plane.live.delete(live)
}

function isStillAllowed(
  snapshot: Snapshot,
  cleared: Cleared,
  { now, address }: { now: number; address: string | undefined },
): boolean {
  const sandbox = snapshot.sandboxes.get(cleared.sandbox.name)
  if (sandbox === undefined || sandbox.id !== cleared.sandbox.id || sandbox.paused) return false
  const { destination, scheme, head, path, target } = cleared.request
  const asked = { destination, scheme, method: head.method, now }
  const again = decide(sandbox.policy, { kind: 'http', ...asked, path })
  if (again.verdict === 'deny' || !isStillReached(cleared.decision, again, address)) return false
  return cleared.swaps.every(({ grant }) =>
    sandbox.grants.some(
      ({ access, handle }) =>
        handle.id === grant.handle.id &&
        handle.revokedAt === undefined &&
        coversRequest(access, { ...asked, target }),
    ),
  )
}

/** Address guard, dial, audit, credential, send: everything between the decision and the response's head. */
async function askUpstream(story: Story, cleared: Cleared, treatment: Treatment): Promise<Incoming> {
  const { client, record, abort } = story
  const { plane } = client
  const { signal } = abort
  const leg = await connectUpstream(plane, cleared, { record, signal, mayReuse: true })
  story.leg = leg
  // An abort before this line found no connection to end.
  signal.throwIfAborted()
  const fields = readableRequest(await swapFields(cleared, { plane, record, signal }), treatment)
  try {
    return await send(story, cleared, { leg, fields, treatment })
  } catch (error) {
    if (!(error instanceof NoResponse)) throw error
    if (!mayRepeat(leg, cleared.request) || signal.aborted) throw error.refusal
  }
  const fresh = await connectUpstream(plane, cleared, { record, signal, mayReuse: false })
  story.leg = fresh
  signal.throwIfAborted()
  try {
    return await send(story, cleared, { leg: fresh, fields, treatment })
  } catch (error) {
    throw error instanceof NoResponse ? error.refusal : error
  }
}

// RFC 9110 section 9.2.2: only what has no effect of its own, and only when the server had closed a kept connection.
function mayRepeat(leg: Leg, request: ClientRequest): boolean {
  return (
    leg.isReused &&
    request.framing.kind === 'none' &&
    ['GET', 'HEAD', 'OPTIONS'].includes(request.head.method)
  )
}

async function send(
  story: Story,
  cleared: Cleared,
  { leg, fields, treatment }: { leg: Leg; fields: readonly Field[]; treatment: Treatment },
): Promise<Incoming> {
  const { client, record } = story
  const { request, sandbox } = cleared
  story.body = bodyOf(client.reader, request.framing, {
    cut: () => new ClientGone('the request body was cut'),
    broken: problemRefusal,
  })
  const host = hostFieldOf(request.destination, request.scheme)
  return forward(
    leg.upstream,
    {
      method: request.head.method,
      target: request.target,
      fields: [
        ['Host', host],
        ...fields,
        ...(request.expectsContinue ? [['Expect', '100-continue'] as const] : []),
      ],
      framing: request.framing,
      body: story.body,
      isBodyReady: client.reader.size > 0,
    },
    {
      limits: client.plane.limits,
      now: () => client.plane.clock.monotonic(),
      events: new Informant(client, { request, treatment, record, bodyBytes: sandbox.limits.bodyBytes }),
    },
  )
}

/** After a whole answer: the upstream connection goes back to the pool, the client's may carry another request. */
function keep(
  story: Story,
  { request, incoming, mayKeep }: { request: ClientRequest; incoming: Incoming; mayKeep: boolean },
): boolean {
  const { client, leg, record } = story
  if (leg !== undefined) {
    if (incoming.mayReuse()) client.plane.pool.give(leg.key, leg.upstream)
    else client.plane.pool.discard(leg.upstream)
  }
  record.end ??= 'complete'
  return mayKeep && incoming.isRequestSent() && request.head.minor === 1 && !client.isGone
}
