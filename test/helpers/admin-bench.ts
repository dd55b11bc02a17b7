import { randomBytes } from 'node:crypto'
import type { AdminDeps, Part } from '../../src/admin/deps.ts'
import { lifecycleBench } from './lifecycle-bench.ts'
import type { LifecycleBench } from './lifecycle-bench.ts'

/** Dependencies of the admin API over a life cycle bench; what the composition root would do is written down. */
export interface AdminBench {
  readonly deps: AdminDeps
  readonly bench: LifecycleBench
  /** What was asked of the broker, such as `reload`. */
  readonly asked: string[]
  /** Operator log lines as JSON. */
  readonly log: string[]
  notReady: Part[]
  /** When set, `reload`, `secretsChanged` and `openSandboxSocket` reject with it. */
  failWith: unknown
}

/** Id of every run that attaches. */
export const attachedRun = '01HRUN0000000000000000RUN1'

/** Makes the bench. */
export function adminBench(): AdminBench {
  const bench = lifecycleBench()
  const asked: string[] = []
  const log: string[] = []
  const answer = <T>(what: string, value: T): Promise<T> => {
    asked.push(what)
    return made.failWith === undefined ? Promise.resolve(value) : Promise.reject(made.failWith)
  }
  const made: AdminBench = {
    bench,
    asked,
    log,
    notReady: [],
    failWith: undefined,
    deps: {
      clock: bench.clock,
      random: randomBytes,
      log: {
        warn: (fields, message) => void log.push(JSON.stringify({ fields, message })),
        error: (fields, message) => void log.push(JSON.stringify({ fields, message })),
      },
      lifecycle: bench.lifecycle,
      status: () => ({
        policy: 'abc123',
        sandboxes: 1,
        listeners: [{ name: 'proxy', address: '127.0.0.1:18080' }],
        audit: 'ok',
        started_at: '2030-01-01T00:00:00.000Z',
        pid: 1,
        private: false,
        runs: 0,
      }),
      notReady: () => Promise.resolve(made.notReady),
      reload: () => answer('reload', { policy: 'def456' }),
      secretsChanged: () => answer('secretsChanged', undefined),
      attach: () => {
        asked.push('attach')
        if (made.failWith !== undefined) return undefined
        return { run: attachedRun, detach: () => void asked.push('detach') }
      },
      handOver: () => {
        asked.push('handOver')
        return 'permanent'
      },
      openSandboxSocket: (name, run) =>
        answer(
          `socket ${[name, run].filter((part) => part !== undefined).join(' ')}`,
          `/run/octroi/${name}.sock`,
        ),
    },
  }
  return made
}

/** One request of a matrix. `open`: answered without credentials. */
export interface RouteCase {
  readonly method: 'GET' | 'POST' | 'DELETE'
  readonly url: string
  readonly body?: object
  readonly open?: boolean
  readonly status: number
}

/** Every route of the API with a request that succeeds; `s1` must exist, `:HANDLE` is replaced by a live handle's id. */
export const routes: readonly RouteCase[] = [
  { method: 'GET', url: '/healthz', open: true, status: 200 },
  { method: 'GET', url: '/livez', open: true, status: 200 },
  { method: 'GET', url: '/readyz', open: true, status: 200 },
  { method: 'GET', url: '/v1/status', status: 200 },
  { method: 'POST', url: '/v1/reload', status: 200 },
  { method: 'POST', url: '/v1/secrets/changed', status: 200 },
  { method: 'GET', url: '/v1/sandboxes', status: 200 },
  { method: 'POST', url: '/v1/sandboxes', body: { template: 'coder', name: 's2' }, status: 201 },
  { method: 'GET', url: '/v1/sandboxes/s1', status: 200 },
  { method: 'POST', url: '/v1/sandboxes/s1/socket', status: 200 },
  { method: 'POST', url: '/v1/sandboxes/s1/pause', status: 200 },
  { method: 'POST', url: '/v1/sandboxes/s1/resume', status: 200 },
  { method: 'POST', url: '/v1/sandboxes/s1/rotate-token', body: { overlap_ms: 1000 }, status: 200 },
  { method: 'POST', url: '/v1/sandboxes/s1/grants', body: { access: 'openai' }, status: 200 },
  { method: 'POST', url: '/v1/sandboxes/s1/runs', body: { exit: 3 }, status: 200 },
  { method: 'POST', url: '/v1/revoke', body: { kind: 'handle', target: ':HANDLE' }, status: 200 },
  { method: 'DELETE', url: '/v1/sandboxes/s1', status: 200 },
]
