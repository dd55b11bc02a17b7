import { randomInt } from 'node:crypto'
import { createAggregator, type RefusalAggregator } from '../audit/refusal-aggregate.ts'
import type { CredentialBroker } from '../broker/broker.ts'
import type { Clock } from '../core/clock.ts'
import type { Holder } from '../identity/holder.ts'
import { createThrottle, identifyThrottled } from '../identity/throttle.ts'
import { Budgets } from '../proxy/budgets.ts'
import { Deadlines } from '../proxy/deadlines.ts'
import { Guesses } from '../proxy/guesses.ts'
import { defaultLimits, type PlaneLimits } from '../proxy/limits.ts'
import { LiveSet } from '../proxy/live.ts'
import type { DataPlane, PlaneLog } from '../proxy/plane.ts'
import { UpstreamPool } from '../proxy/upstream-pool.ts'
import type { LeafSource } from '../tls/port.ts'
import { connectionLimits } from './descriptors.ts'
import type { Foundation } from './foundation.ts'
import { createPatternCache } from './patterns.ts'
import type { Reach } from './reach.ts'

/** The data plane with the switches that only the composition root uses. */
export interface RunningPlane {
  readonly plane: DataPlane
  readonly aggregator: RefusalAggregator
  setReady(isReady: boolean): void
  close(): void
}

/** What the data plane is built from. */
export interface PlaneParts {
  readonly clock: Clock
  readonly log: PlaneLog
  readonly foundation: Foundation
  readonly holder: Holder
  readonly broker: CredentialBroker
  readonly leaves: LeafSource
  /** Asked at each exchange, so that a reload is seen. */
  readonly reach: () => Reach
  readonly limits?: Partial<PlaneLimits> | undefined
  /** Pauses a sandbox durably. */
  readonly pause: (sandbox: string) => Promise<unknown>
}

/** Builds what exchanges work with. Not ready until told: nothing is served by default rules while starting. */
export function createPlane(parts: PlaneParts): RunningPlane {
  const { clock, foundation, holder, reach, broker } = parts
  const limits = { ...defaultLimits, ...connectionLimits(), ...parts.limits }
  const deadlines = new Deadlines(clock)
  const throttle = createThrottle(clock, randomInt(2 ** 32))
  const aggregator = createAggregator(foundation.events, clock)
  const pool = new UpstreamPool({
    clock,
    deadlines,
    max: limits.idleUpstreams,
    idleMs: limits.upstreamIdleMs,
  })
  const live = new LiveSet()
  let isReady = false
  const plane: DataPlane = {
    clock,
    limits,
    log: parts.log,
    snapshot: () => holder.current(),
    identify: (facts, snapshot, proxyAuthorization) =>
      identifyThrottled({ snapshot, facts, proxyAuthorization, now: clock.now(), throttle }),
    isSelf: (host, port) => reach().self.isSelf(host, port),
    get connector() {
      return reach().connector
    },
    get upstreamTls() {
      return reach().upstreamTls
    },
    leaves: parts.leaves,
    broker,
    patterns: createPatternCache(broker),
    audit: foundation.events,
    auditRefusal: (event, source) => aggregator.refused(event, source),
    budgets: new Budgets(clock),
    guesses: guessesOf(parts, aggregator, limits),
    live,
    deadlines,
    pool,
    newId: foundation.newId,
    isReady: () => isReady,
  }
  return {
    plane,
    aggregator,
    setReady(ready) {
      isReady = ready
    },
    close() {
      live.revokeAll()
      pool.close()
      deadlines.stop()
      aggregator.close()
    },
  }
}

function guessesOf(
  { clock, foundation, log, pause }: PlaneParts,
  aggregator: RefusalAggregator,
  limits: PlaneLimits,
): Guesses {
  return new Guesses({
    most: limits.guessedParts,
    alert: (event, source) =>
      void aggregator.refused({ ...event, id: foundation.newId(), ts: clock.now(), kind: 'alert' }, source),
    pause,
    failed: (err) =>
      log.error({ err }, 'a sandbox that guesses could not be paused; it is refused until a restart'),
  })
}
