import type { Clock } from '../core/clock.ts'
import type { AuditEvent, AuditSink } from './event.ts'

/** Identical refusals in one window that are written one by one. */
const burst = 10
const windowMs = 1_000
/** How often the ones past the burst are written as one event, `ms`. */
const foldEveryMs = 10_000
/** Distinct refusals that are watched at once; the one seen longest ago makes room. */
const maxWatched = 10_000

/** Turns floods of identical refusals into single events with a `count`, and loses none. */
export interface RefusalAggregator {
  /**
   * Takes a refusal of a client at `source` (its address or socket). Returns the id of the event that counts it, for the
   * client's answer, or `undefined` when the sink has no room: the exchange then gets `audit_unavailable`.
   */
  refused(event: AuditEvent, source: string): string | undefined
  /** Writes what is folded and stops. Call it before the sink is closed. */
  close(): void
}

interface Watched {
  windowStart: number
  inWindow: number
  /** The first refusal of the ones not written yet; its `count` is theirs. */
  folded: AuditEvent | undefined
}

/** Watches what goes to `sink`; time is the clock's monotonic one. */
export function createAggregator(sink: AuditSink, clock: Clock): RefusalAggregator {
  return new Aggregator(sink, clock)
}

class Aggregator implements RefusalAggregator {
  readonly #sink: AuditSink
  readonly #clock: Clock
  readonly #watched = new Map<string, Watched>()
  #cancel: (() => void) | undefined
  #isClosed = false

  constructor(sink: AuditSink, clock: Clock) {
    this.#sink = sink
    this.#clock = clock
  }

  refused(event: AuditEvent, source: string): string | undefined {
    const now = this.#clock.monotonic()
    const entry = this.#watch(keyOf(event, source), now)
    if (entry === undefined) return undefined
    if (now - entry.windowStart >= windowMs && entry.folded === undefined) {
      entry.windowStart = now
      entry.inWindow = 0
    }
    if (!this.#isClosed) this.#cancel ??= this.#clock.after(foldEveryMs, () => this.#writeAll())
    if (entry.inWindow < burst) {
      if (!this.#sink.append(event)) return undefined
      entry.inWindow += 1
      return event.id
    }
    // A sink without room refuses these too, or a flood would hide behind a count that is never written.
    if (this.#sink.state === 'full') return undefined
    entry.folded = entry.folded === undefined ? event : fold(entry.folded, event)
    const { id } = entry.folded
    if (this.#isClosed) this.#write(entry)
    return id
  }

  close(): void {
    this.#isClosed = true
    this.#cancel?.()
    this.#writeAll()
  }

  #writeAll(): void {
    this.#cancel = undefined
    const now = this.#clock.monotonic()
    for (const [key, entry] of this.#watched) {
      if (this.#write(entry) && now - entry.windowStart >= foldEveryMs) this.#watched.delete(key)
    }
    if (this.#watched.size > 0 && !this.#isClosed) {
      this.#cancel = this.#clock.after(foldEveryMs, () => this.#writeAll())
    }
  }

  /** `false` when the sink has no room; the count then stays and is tried again. */
  #write(entry: Watched): boolean {
    if (entry.folded === undefined) return true
    if (!this.#sink.append(entry.folded)) return false
    entry.folded = undefined
    return true
  }

  /** The entry of a refusal, now the one seen last; `undefined` when no room can be made for it. */
  #watch(key: string, now: number): Watched | undefined {
    const found = this.#watched.get(key)
    if (found !== undefined) this.#watched.delete(key)
    else if (this.#watched.size >= maxWatched) {
      const [oldest] = this.#watched
      if (oldest !== undefined && !this.#write(oldest[1])) return undefined
      if (oldest !== undefined) this.#watched.delete(oldest[0])
    }
    const entry = found ?? { windowStart: now, inWindow: 0, folded: undefined }
    this.#watched.set(key, entry)
    return entry
  }
}

function keyOf(event: AuditEvent, source: string): string {
  const { kind, sandbox, host, port, reason, method } = event
  return JSON.stringify([kind, sandbox, source, host, port, reason, method])
}

const tenths = (ms: number | undefined): number | undefined =>
  ms === undefined ? undefined : Math.round(ms * 10) / 10

/** One event for both; what differs between them is left out, since it would be true of some only. */
function fold(folded: AuditEvent, next: AuditEvent): AuditEvent {
  const sum = (a?: number, b?: number) =>
    a === undefined && b === undefined ? undefined : (a ?? 0) + (b ?? 0)
  return {
    ...folded,
    path: folded.path === next.path ? folded.path : undefined,
    bytes_up: sum(folded.bytes_up, next.bytes_up),
    bytes_down: sum(folded.bytes_down, next.bytes_down),
    duration_ms: tenths(sum(folded.duration_ms, next.duration_ms)),
    count: (folded.count ?? 1) + (next.count ?? 1),
  }
}
