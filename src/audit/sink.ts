import { systemClock } from '../core/clock.ts'
import type { Clock } from '../core/clock.ts'
import { OperatorError, Refusal } from '../core/errors.ts'
import { createEventIds } from './event-id.ts'
import type { AuditEvent } from './event.ts'
import { defaultRetention } from './event-log.ts'
import type { EventLog, EventLogOptions } from './event-log.ts'
import { startWriterThread } from './writer-thread.ts'
import type { WriterThread } from './writer-thread.ts'

/** Events that may wait for the store; design constant, there is no setting. */
const maxWaiting = 10_000
const maxBatch = 1_000
/** How long an event that nobody waits for may wait for company, `ms`. */
const gatherMs = 20
/** From this many on it is written without waiting for more. */
const gatherEvents = 256
/** A batch of so many shows load: the next one gathers for `busyGatherMs` instead of one turn of the event loop. */
const busyBatch = 8
const busyGatherMs = 1
/** A store that has not answered for so long is down, `ms`. */
const answerWithinMs = 5_000
const retryEveryMs = 500
const closeWithinMs = 5_000
const walWarningEveryMs = 3_600_000

interface Entry {
  readonly text: string
  /** Set while somebody waits for it to be durable. */
  waiter: PromiseWithResolvers<void> | undefined
  readonly durable: AuditEvent | undefined
}

export type { EventLog, EventLogOptions } from './event-log.ts'

/** Opens `events.db` in the state folder, which must exist, with its writer thread. */
export async function openEventLog(options: EventLogOptions): Promise<EventLog> {
  const log = new ThreadedLog(options)
  await log.open()
  return log
}

class ThreadedLog implements EventLog {
  readonly #options: EventLogOptions
  readonly #clock: Clock
  readonly #newId: () => string
  #thread: WriterThread | undefined
  #queue: Entry[] = []
  #writing: readonly Entry[] = []
  #policies: { hash: string; text: string }[] = []
  #running: Promise<void> | undefined
  /** Set while the store is down. */
  #outage: { since: number; why: string } | undefined
  #refused = 0
  #cancelTimer: (() => void) | undefined
  #isSoon = false
  #lastBatch = 0
  #isClosed = false
  #walWarnedAt = -Infinity

  constructor(options: EventLogOptions) {
    this.#options = options
    this.#clock = options.clock ?? systemClock
    this.#newId = createEventIds(this.#clock)
  }

  async open(): Promise<void> {
    this.#thread = await this.#start()
  }

  get state(): 'ok' | 'degraded' | 'full' {
    if (this.#isFull()) return 'full'
    return this.#outage === undefined && !this.#isClosed ? 'ok' : 'degraded'
  }

  append(event: AuditEvent): boolean {
    if (this.#isClosed || this.#isFull()) {
      this.#refused += 1
      return false
    }
    this.#push(event)
    return true
  }

  appendEnd(event: AuditEvent): boolean {
    if (this.#isClosed) return false
    this.#push(event)
    return true
  }

  appendDurable(event: AuditEvent): Promise<void> {
    if (this.#isClosed || this.#outage !== undefined || this.#isFull()) {
      this.#refused += 1
      const detail =
        this.#outage?.why ?? (this.#isClosed ? 'the event log is closed' : 'too many events wait')
      return Promise.reject(new Refusal('audit_unavailable', { detail }))
    }
    const waiter = Promise.withResolvers<void>()
    this.#queue.push({ text: JSON.stringify(event), waiter, durable: event })
    this.#flushSoon()
    return waiter.promise
  }

  async closeOrphans(): Promise<number> {
    const { value } = await this.#living().ask({ op: 'orphans' })
    return value
  }

  recordPolicy(hash: string, text: string): void {
    this.#policies.push({ hash, text })
    this.#flushSoon()
  }

  async close(): Promise<void> {
    if (this.#isClosed) return
    this.#isClosed = true
    const late = Promise.withResolvers<void>()
    const cancel = this.#clock.after(closeWithinMs, late.resolve)
    await Promise.race([this.#drain(), late.promise])
    cancel()
    this.#cancelTimer?.()
    this.#abandon('the event log is closed')
    await this.#thread?.terminate()
  }

  async #drain(): Promise<void> {
    do await this.#flush()
    while (this.#outage === undefined && (this.#queue.length > 0 || this.#policies.length > 0))
    if (this.#thread?.isAlive === true) await this.#thread.ask({ op: 'close' }).catch(() => undefined)
  }

  #isFull(): boolean {
    return this.#queue.length + this.#writing.length >= maxWaiting
  }

  #push(event: AuditEvent): void {
    this.#queue.push({ text: JSON.stringify(event), waiter: undefined, durable: undefined })
    if (this.#queue.length >= gatherEvents) this.#flushSoon()
    else this.#flushIn(gatherMs)
  }

  /** After this turn of the event loop, so that everything it yields is one commit. */
  #flushSoon(): void {
    if (this.#isSoon || this.#outage !== undefined || this.#running !== undefined) return
    this.#isSoon = true
    const flush = (): void => {
      this.#isSoon = false
      if (this.#outage === undefined) void this.#flush()
    }
    // A commit costs the same for one event as for many: under load each waits a moment for company, alone none does.
    if (this.#lastBatch >= busyBatch && this.#queue.length < gatherEvents)
      this.#clock.after(busyGatherMs, flush)
    else setImmediate(flush)
  }

  #flushIn(ms: number): void {
    if (this.#running !== undefined) return
    this.#cancelTimer ??= this.#clock.after(ms, () => {
      this.#cancelTimer = undefined
      void this.#flush()
    })
  }

  /** Writes one batch; there is one at a time, and what comes meanwhile is the next. */
  #flush(): Promise<void> {
    this.#running ??= this.#writeBatch().finally(() => {
      this.#running = undefined
      this.#continue()
    })
    return this.#running
  }

  #continue(): void {
    if (this.#isClosed) return
    if (this.#outage !== undefined) this.#flushIn(retryEveryMs)
    else if (this.#policies.length > 0 || this.#queue.length >= gatherEvents) this.#flushSoon()
    else if (this.#queue.some((entry) => entry.waiter !== undefined)) this.#flushSoon()
    else if (this.#queue.length > 0) this.#flushIn(gatherMs)
  }

  async #writeBatch(): Promise<void> {
    this.#cancelTimer?.()
    this.#cancelTimer = undefined
    const batch = this.#queue.splice(0, maxBatch)
    this.#writing = batch
    this.#lastBatch = batch.length
    const cancel = this.#clock.after(answerWithinMs, () => this.#goDown('it does not answer'))
    try {
      await this.#commit(batch)
      this.#writing = []
      this.#committed(batch)
    } catch (error) {
      this.#goDown(error instanceof Error ? error.message : String(error))
      this.#writing = []
      // What somebody waited for was refused and must not be written later as if it had happened.
      this.#queue = [...batch.filter((entry) => entry.durable === undefined), ...this.#queue]
    } finally {
      cancel()
    }
  }

  async #commit(batch: readonly Entry[]): Promise<void> {
    if (this.#thread?.isAlive !== true) this.#thread = await this.#start()
    const thread = this.#thread
    for (let policy = this.#policies[0]; policy !== undefined; policy = this.#policies[0]) {
      await thread.ask({ op: 'policy', ...policy })
      this.#policies.shift()
    }
    const before = thread.seq
    try {
      await thread.ask({ op: 'write', events: batch.map((entry) => entry.text) })
    } catch (error) {
      if (thread.isAlive || batch.length === 0) throw error
      // The thread died; whether the batch is in the file only the file can tell.
      this.#thread = await this.#start()
      if (this.#thread.seq !== before + batch.length) throw error
    }
  }

  #committed(batch: readonly Entry[]): void {
    const lost = batch.filter(({ durable, waiter }) => durable?.kind === 'decision' && waiter === undefined)
    for (const entry of batch) {
      entry.waiter?.resolve()
      entry.waiter = undefined
    }
    const now = this.#clock.now()
    // Refused when the store was silent too long, then written after all: the decision had no consequence.
    for (const { durable } of lost) {
      if (durable !== undefined) this.#push({ ...durable, ts: now, kind: 'outcome', end: 'lost' })
    }
    if (this.#outage !== undefined || (this.#refused > 0 && this.#queue.length < maxWaiting / 2))
      this.#markGap(now)
  }

  /** The event that shows a reader where the log has a hole. */
  #markGap(now: number): void {
    const refused = `${this.#refused} ${this.#refused === 1 ? 'exchange was' : 'exchanges were'} refused`
    const seconds = ((this.#clock.monotonic() - (this.#outage?.since ?? 0)) / 1000).toFixed(1)
    const note =
      this.#outage === undefined
        ? `too many events waited for the store; ${refused}`
        : `events could not be written for ${seconds} s: ${this.#outage.why}; ${refused}`
    this.#outage = undefined
    this.#refused = 0
    this.#push({ id: this.#newId(), ts: now, kind: 'alert', reason: 'audit_gap', note })
    this.#options.onProblem?.(`the event log works again: ${note}`)
  }

  #goDown(why: string): void {
    if (this.#outage === undefined) {
      this.#outage = { since: this.#clock.monotonic(), why }
      this.#options.onProblem?.(
        `events cannot be written: ${why}; swaps and new tunnels are refused until they can`,
      )
    }
    this.#abandon(why)
  }

  /** Refuses everybody who waits. Those still in the queue are not written at all. */
  #abandon(why: string): void {
    const refuse = (entry: Entry): void => {
      if (entry.waiter === undefined) return
      this.#refused += 1
      entry.waiter.reject(new Refusal('audit_unavailable', { detail: why }))
      entry.waiter = undefined
    }
    this.#writing.forEach(refuse)
    this.#queue.forEach(refuse)
    this.#queue = this.#queue.filter((entry) => entry.durable === undefined)
  }

  #living(): WriterThread {
    if (this.#thread === undefined) throw new OperatorError('the event log is not open')
    return this.#thread
  }

  #start(): Promise<WriterThread> {
    const { folder, sync = 'full', retention = defaultRetention } = this.#options
    return startWriterThread({ folder, sync, retention }, (bytes) => this.#warnOfWal(bytes))
  }

  #warnOfWal(bytes: number): void {
    const now = this.#clock.monotonic()
    if (now - this.#walWarnedAt < walWarningEveryMs) return
    this.#walWarnedAt = now
    const note = `the write-ahead log of events is at ${Math.round(bytes / 1_048_576)} MB: a reader holds a transaction`
    this.#options.onProblem?.(note)
    this.append({ id: this.#newId(), ts: this.#clock.now(), kind: 'alert', reason: 'audit_wal', note })
  }
}
