import { parentPort, workerData } from 'node:worker_threads'
import { systemClock } from '../core/clock.ts'
import type { AuditEvent } from './event.ts'
import { EventWriter } from './event-writer.ts'
import type { WorkerOptions, WorkerReply, WorkerRequest } from './sink-messages.ts'

/** How often old events are deleted and the WAL is looked at, `ms`. */
const upkeepEveryMs = 2_000
/** Quiet time after a commit before the WAL is moved into the database, `ms`. */
const checkpointAfterMs = 50
const walWarningBytes = 64 * 1024 * 1024

// `as`: the sink is the only one that starts this file.
const options = workerData as WorkerOptions

function send(reply: WorkerReply): void {
  parentPort?.postMessage(reply)
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

function perform(writer: EventWriter, request: WorkerRequest): number {
  switch (request.op) {
    case 'write':
      // `as`: the texts are `JSON.stringify` of the sink's events.
      writer.write(request.events.map((text) => JSON.parse(text) as AuditEvent))
      return 0
    case 'policy':
      writer.recordPolicy(request.hash, request.text, systemClock.now())
      return 0
    case 'orphans':
      return writer.closeOrphans(systemClock.now())
    case 'close':
      writer.close()
      return 0
  }
}

/** Failures of upkeep are left to the next round: it is the writes that tell whether the store is down. */
function attempt(work: () => void): void {
  try {
    work()
  } catch {
    return
  }
}

function upkeep(writer: EventWriter): void {
  // A few steps a round: a commit never waits for more than one of them.
  for (let step = 0; step < 10; step += 1) {
    if (writer.retain(options.retention, systemClock.now()) === 0) break
  }
  const bytes = writer.checkpoint()
  if (bytes > walWarningBytes) send({ op: 'wal', bytes })
}

function serve(writer: EventWriter): void {
  let pause: NodeJS.Timeout | undefined
  const round = setInterval(() => attempt(() => upkeep(writer)), upkeepEveryMs)
  parentPort?.on('message', (request: WorkerRequest) => {
    clearTimeout(pause)
    try {
      const value = perform(writer, request)
      send({ call: request.call, ok: true, value, seq: writer.head.seq })
    } catch (error) {
      send({ call: request.call, ok: false, message: messageOf(error) })
    }
    if (request.op === 'close') {
      clearInterval(round)
      parentPort?.close()
    } else {
      pause = setTimeout(() => attempt(() => writer.checkpoint()), checkpointAfterMs)
    }
  })
  send({ op: 'ready', seq: writer.head.seq })
}

try {
  serve(new EventWriter(options.folder, options.sync))
} catch (error) {
  send({ op: 'unopened', message: messageOf(error) })
}
