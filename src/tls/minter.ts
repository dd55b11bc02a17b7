import { generateKeyPairSync } from 'node:crypto'
import { extname } from 'node:path'
import { Worker } from 'node:worker_threads'
import type { Clock } from '../core/clock.ts'
import { Refusal } from '../core/errors.ts'
import type { Authority } from './authority.ts'
import type { Minted, MinterData, MintOrder } from './minter-worker.ts'

/** Longest life of a leaf, `ms`. */
export const leafLifetimeMs = 7 * 86_400_000

/** A server certificate for one host with its key. */
export interface Leaf {
  readonly certificatePem: string
  /** PKCS #8 PEM of the key that all leaves of this process share; it lives in memory only. */
  readonly keyPem: string
  /** `ms` since the epoch. */
  readonly notAfter: number
}

/** Makes leaves in a thread of its own, so that signing never delays traffic. */
export interface Minter {
  /** `host` is a canonical name or IP literal. A `Refusal` (`internal`) when the CA is past its end or the thread fails. */
  mint(authority: Authority, host: string): Promise<Leaf>
  /** Ends the thread; what is pending fails. */
  close(): Promise<void>
}

interface Pending {
  resolve(minted: Minted): void
  reject(error: Refusal): void
}

interface Thread {
  readonly worker: Worker
  readonly pending: Map<number, Pending>
}

// The worker is TypeScript in a checkout and JavaScript in the published package, like this file.
const workerUrl = new URL(`./minter-worker${extname(import.meta.url)}`, import.meta.url)

function startThread(data: MinterData, onEnd: (thread: Thread) => void): Thread {
  // Nothing of the broker's environment, which may hold credentials, is of use in there.
  const worker = new Worker(workerUrl, { workerData: data, env: {}, name: 'octroi-minter' })
  const thread: Thread = { worker, pending: new Map() }
  const fail = (cause: unknown): void => {
    onEnd(thread)
    for (const { reject } of thread.pending.values()) {
      reject(new Refusal('internal', { detail: 'the thread that makes certificates ended', cause }))
    }
    thread.pending.clear()
  }
  worker.unref()
  worker.on('error', fail)
  worker.on('exit', fail)
  worker.on('message', (minted: Minted) => {
    thread.pending.get(minted.id)?.resolve(minted)
    thread.pending.delete(minted.id)
    if (thread.pending.size === 0) worker.unref()
  })
  return thread
}

/** Starts the thread at once, so that the first request finds it warm; a thread that died is started anew on demand. */
export function createMinter(options: { readonly clock: Clock }): Minter {
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const keyPem = privateKey.export({ type: 'pkcs8', format: 'pem' }).toString()
  let isClosed = false
  let nextId = 0
  const start = (): Thread =>
    startThread({ publicKey }, (ended) => {
      if (thread === ended) thread = undefined
    })
  let thread: Thread | undefined = start()

  function order(message: Omit<MintOrder, 'id'>): Promise<Minted> {
    if (isClosed)
      return Promise.reject(new Refusal('not_ready', { detail: 'the certificate minter is closed' }))
    thread ??= start()
    const { worker, pending } = thread
    const id = nextId++
    return new Promise((resolve, reject) => {
      pending.set(id, { resolve, reject })
      worker.ref()
      worker.postMessage({ ...message, id } satisfies MintOrder)
    })
  }

  return {
    async mint(authority, host) {
      const now = options.clock.now()
      if (now >= authority.notAfter) {
        throw new Refusal('internal', {
          detail: `the CA of the broker expired at ${new Date(authority.notAfter).toISOString()}: run \`octroi ca rotate\``,
          hint: 'The certificate authority of the broker has expired; tell the operator.',
        })
      }
      const { certificatePem, privateKey: signingKey } = authority
      const minted = await order({
        certificatePem,
        privateKey: signingKey,
        host,
        now,
        lifetimeMs: leafLifetimeMs,
      })
      if ('failure' in minted)
        throw new Refusal('internal', { detail: `no certificate for ${host}: ${minted.failure}` })
      return { certificatePem: minted.pem, keyPem, notAfter: minted.notAfter }
    },
    async close() {
      isClosed = true
      await thread?.worker.terminate()
    },
  }
}
