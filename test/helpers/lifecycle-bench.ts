import { createHash, randomBytes } from 'node:crypto'
import { createLifecycle } from '../../src/identity/lifecycle.ts'
import type { SweepingLifecycle } from '../../src/identity/lifecycle.ts'
import type { LifecycleConfig, LifecycleEvent } from '../../src/identity/lifecycle-model.ts'
import type { Access } from '../../src/handles/model.ts'
import type { Seal } from '../../src/store/port.ts'
import { manualClock } from './manual-clock.ts'
import type { ManualClock } from './manual-clock.ts'
import { memorySeal, memoryStore } from './memory-store.ts'
import type { MemoryStore } from './memory-store.ts'

/** A life cycle on an in-memory store, with two sandboxes' worth of configuration. */
export interface LifecycleBench {
  readonly lifecycle: SweepingLifecycle
  readonly store: MemoryStore
  readonly seal: Seal
  readonly clock: ManualClock
  readonly events: LifecycleEvent[]
  /** How many writes were durable at each call of `changed`. */
  readonly changes: number[]
  /** Set to make `audit` reject. */
  auditDown: boolean
  /** The configuration in force. */
  config: LifecycleConfig
  /** Puts a live handle for `access` into the store and returns its placeholder. */
  addHandle(sandbox: string, access: string): Promise<{ id: string; placeholder: string }>
  /** Puts the record of the sandbox that the configuration defines. */
  addConfigSandbox(): Promise<void>
  /** Does the sandbox's password open the door now? */
  accepts(sandbox: string, token: string): Promise<boolean>
}

const limits = {
  tunnels: undefined,
  requests: undefined,
  requestsPerMinute: undefined,
  bodyBytes: undefined,
  responseBytes: undefined,
}
const block = { allow: [], deny: [], access: ['openai', 'github'], limits }

function accessTo(name: string, credential: string): Access {
  return {
    name,
    credential,
    destinations: [],
    slot: { kind: 'header', name: 'authorization', scheme: 'Bearer' },
    shape: { prefix: 'ph-', length: 40 },
    env: undefined,
    foreign: 'refuse',
  }
}

/** Two templates, one sandbox in the files, two accesses. */
export const benchConfig: LifecycleConfig = {
  templates: new Map([
    ['coder', { name: 'coder', tenant: 'web', maxTtlMs: 4 * 3_600_000, ...block }],
    ['endless', { name: 'endless', tenant: 'default', maxTtlMs: undefined, ...block, access: [] }],
  ]),
  sandboxes: new Map([
    [
      'coder-1',
      {
        ...{ name: 'coder-1', template: 'coder', agent: 'agent-7', tenant: 'web' },
        ...{ identity: [[{ kind: 'token' } as const]], token: 'generated' as const },
        ...block,
      },
    ],
  ]),
  access: new Map([
    ['openai', accessTo('openai', 'openai-key')],
    ['github', accessTo('github', 'github-app')],
  ]),
  credentials: new Map([
    ['openai-key', { issuer: 'static' }],
    ['github-app', { issuer: 'github_app' }],
  ]),
}

/** Makes the bench; randomness is real, time is manual. */
export function lifecycleBench(): LifecycleBench {
  const store = memoryStore()
  const seal = memorySeal()
  const clock = manualClock()
  const events: LifecycleEvent[] = []
  const changes: number[] = []

  const bench: LifecycleBench = {
    lifecycle: createLifecycle({
      store,
      seal,
      clock,
      random: randomBytes,
      config: () => bench.config,
      changed: () => Promise.resolve(void changes.push(store.writes.length)),
      audit: (event) => {
        if (bench.auditDown) return Promise.reject(new TypeError('disk full'))
        events.push(event)
        return Promise.resolve()
      },
    }),
    store,
    seal,
    clock,
    events,
    changes,
    auditDown: false,
    config: benchConfig,
    async addHandle(sandbox, access) {
      const owner = (await store.sandboxes()).find((record) => record.name === sandbox)
      const id = randomBytes(8).toString('hex')
      const placeholder = `ph-${randomBytes(16).toString('hex')}`
      const [createdAt, sandboxId] = [clock.now(), owner?.id ?? 'gone']
      await store.putHandle({
        ...{ id, placeholder, sandboxId, sandbox, access, createdAt },
        ...{ revokedAt: undefined, expiresAt: undefined },
      })
      return { id, placeholder }
    },
    async addConfigSandbox() {
      const absent = { run: undefined, expiresAt: undefined, pausedAt: undefined, destroyedAt: undefined }
      const labels = { tenant: 'web', template: 'coder', agent: 'agent-7' }
      await store.putSandbox({
        ...{ id: randomBytes(16).toString('hex'), name: 'coder-1', origin: 'config', createdAt: clock.now() },
        ...labels,
        ...absent,
      })
    },
    async accepts(sandbox, token) {
      const owner = (await store.sandboxes()).find((record) => record.name === sandbox && !record.destroyedAt)
      const sha256 = createHash('sha256').update(token).digest('hex')
      return (await store.tokens()).some(
        (record) =>
          record.sandboxId === owner?.id &&
          record.sha256 === sha256 &&
          (record.expiresAt === undefined || record.expiresAt > clock.now()),
      )
    },
  }
  return bench
}
