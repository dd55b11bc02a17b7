import { extname, join } from 'node:path'
import { Worker } from 'node:worker_threads'
import { OperatorError } from '../core/errors.ts'
import type { WorkerOptions, WorkerReply, WorkerRequest } from './sink-messages.ts'

type Question = WorkerRequest extends infer R ? (R extends WorkerRequest ? Omit<R, 'call'> : never) : never
type Answer = { readonly value: number; readonly seq: number }

/** The thread that owns the event database. */
export interface WriterThread {
  /** The chain's head as of the last answer. */
  readonly seq: number
  /** `false` once the thread has ended; every question is then rejected. */
  readonly isAlive: boolean
  ask(question: Question): Promise<Answer>
  terminate(): Promise<void>
}

/** Starts the thread; rejects with `OperatorError` when the database cannot be opened. */
export async function startWriterThread(
  options: WorkerOptions,
  onWalGrowth: (bytes: number) => void,
): Promise<WriterThread> {
  // The same extension as this file: TypeScript in a checkout, JavaScript when installed.
  const file = join(import.meta.dirname, `sink-worker${extname(import.meta.filename)}`)
  // Without this it inherits options such as `--input-type`, with which a thread does not start.
  const worker = new Worker(file, { workerData: options, name: 'octroi events', execArgv: [] })
  const waiting = new Map<number, { resolve(answer: Answer): void; reject(error: Error): void }>()
  let seq = 0
  let calls = 0
  let isAlive = true
  const opened = Promise.withResolvers<void>()

  worker.on('message', (reply: WorkerReply) => {
    if ('call' in reply) {
      const waiter = waiting.get(reply.call)
      waiting.delete(reply.call)
      if (reply.ok) {
        seq = reply.seq
        waiter?.resolve(reply)
      } else waiter?.reject(new OperatorError(reply.message))
    } else if (reply.op === 'ready') {
      seq = reply.seq
      opened.resolve()
    } else if (reply.op === 'unopened') opened.reject(new OperatorError(reply.message))
    else onWalGrowth(reply.bytes)
  })
  const end = (cause: unknown): void => {
    isAlive = false
    const why = cause instanceof Error ? `: ${cause.message}` : ''
    const error = new OperatorError(`the thread that writes events has ended${why}`, { cause })
    opened.reject(error)
    for (const waiter of waiting.values()) waiter.reject(error)
    waiting.clear()
  }
  worker.on('error', end)
  worker.on('exit', end)

  await opened.promise
  return {
    get seq() {
      return seq
    },
    get isAlive() {
      return isAlive
    },
    ask(question) {
      if (!isAlive) return Promise.reject(new OperatorError('the thread that writes events has ended'))
      calls += 1
      const { promise, resolve, reject } = Promise.withResolvers<Answer>()
      waiting.set(calls, { resolve, reject })
      worker.postMessage({ ...question, call: calls } satisfies WorkerRequest)
      return promise
    },
    async terminate() {
      await worker.terminate()
    },
  }
}
