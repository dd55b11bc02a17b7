import { Refusal } from '../core/errors.ts'
import type { RequestHead } from '../http1/head.ts'
import type { Snapshot } from '../identity/model.ts'
import type { Approved } from '../net/port.ts'
import { decide } from '../policy/decide.ts'
import type { Allow, Destination } from '../policy/model.ts'
import { admitDestination } from './admit.ts'
import { ClientGone, type ClientConnection } from './connection.ts'
import { finish } from './finish.ts'
import { intercept } from './intercept.ts'
import { isStillReached } from './live.ts'
import { startRecord, type Record } from './record.ts'
import { refuse } from './refuse.ts'
import { destinationNamed, readConnect } from './request.ts'
import { splice } from './splice.ts'
import { noteSender, whoAsks, type Who } from './who.ts'

/** A tunnel that may be opened: everything was judged but what comes through it. */
export interface OpenTunnel {
  readonly client: ClientConnection
  readonly who: Who
  readonly destination: Destination
  readonly decision: Allow
  /** Addresses judged for this tunnel. */
  readonly approved: Approved
  readonly record: Record
  /** Aborts with a `Refusal('revoked')` when a new policy denies the tunnel. */
  readonly signal: AbortSignal
}

/** Serves the requests inside a tunnel; passed in, since the loop over requests opens tunnels. */
export type Serve = (client: ClientConnection) => Promise<void>

/**
 * One CONNECT. A refusal comes instead of the 200 and keeps the connection where it can, so that a client that waits for
 * the 407 can answer it. Resolves to `taken` when the tunnel used the connection up.
 */
export async function tunnel(
  client: ClientConnection,
  head: RequestHead,
  serve: Serve,
): Promise<boolean | 'taken'> {
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
  record.method = 'CONNECT'
  const releases: (() => void)[] = []
  let followed = 0
  try {
    const open = await judge({ client, head, snapshot, record }, releases)
    if (open.decision.tls === 'splice') await splice(open)
    else followed = await intercept(open, serve)
    return 'taken'
  } catch (error) {
    if (record.status === 200) {
      fail(client, error, record)
      return 'taken'
    }
    return await refuse(client, error, { record, head, body: undefined, leg: undefined })
  } finally {
    for (const release of releases) release()
    // A terminated tunnel speaks through its requests; its own event is for one that carried none.
    if (followed === 0) finish(plane, record)
  }
}

/** After the 200 nothing can be answered any more: the connection ends, the event says why. */
function fail(client: ClientConnection, error: unknown, record: Record): void {
  if (error instanceof Refusal) {
    record.denied ??= error.reason
    record.note ??= error.detail
  } else record.end ??= 'client_gone'
  client.socket.destroy()
}

interface Asked {
  readonly client: ClientConnection
  readonly head: RequestHead
  readonly snapshot: Snapshot
  readonly record: Record
}

async function judge(
  { client, head, snapshot, record }: Asked,
  releases: (() => void)[],
): Promise<OpenTunnel> {
  const { plane } = client
  const destination = readNamed({ client, head, snapshot, record })
  record.destination = destination
  const who = whoAsks(client, head, { snapshot, record })
  if (!plane.isReady()) throw new Refusal('not_ready')
  // A tunnel outlives its first request: none is opened while what comes through it could not be written down.
  if (plane.audit.state !== 'ok') throw new Refusal('audit_unavailable')
  const ask = { kind: 'connect', destination, now: plane.clock.now() } as const
  const decision = admitDestination({ plane, snapshot, who, record }, destination, ask)
  releases.push(plane.budgets.openTunnel(who.sandbox))
  const signal = watch({ client, who, destination, decision, record }, releases)
  const approved = await plane.connector.approve(destination, decision.addresses, signal)
  return { client, who, destination, decision, approved, record, signal }
}

function readNamed({ client, head, snapshot, record }: Asked): Destination {
  try {
    return readConnect(head)
  } catch (error) {
    record.destination = destinationNamed(head)
    noteSender(client, head, { snapshot, record })
    throw error
  }
}

/** Judges the tunnel again under every new snapshot; what is now denied ends at once. */
function watch(
  about: Pick<OpenTunnel, 'client' | 'who' | 'destination' | 'decision' | 'record'>,
  releases: (() => void)[],
): AbortSignal {
  const { client, who, destination, decision, record } = about
  const { plane } = client
  const abort = new AbortController()
  const live = {
    isBusy: decision.tls === 'splice',
    isStillAllowed(snapshot: Snapshot): boolean {
      const sandbox = snapshot.sandboxes.get(who.sandbox.name)
      if (sandbox === undefined || sandbox.id !== who.sandbox.id || sandbox.paused) return false
      const again = decide(sandbox.policy, { kind: 'connect', destination, now: plane.clock.now() })
      if (again.verdict === 'deny' || again.tls !== decision.tls) return false
      // A terminated tunnel has dialled nothing; its exchanges are judged themselves.
      return decision.tls === 'terminate' || isStillReached(decision, again, record.address)
    },
    revoke(): void {
      record.end = 'revoked'
      record.denied = 'revoked'
      abort.abort(new Refusal('revoked'))
      client.socket.destroy()
    },
  }
  plane.live.add(live)
  releases.push(() => plane.live.delete(live))
  client.onGone(() => abort.abort(new ClientGone('the client left')))
  releases.push(() => client.onGone(undefined))
  return abort.signal
}
