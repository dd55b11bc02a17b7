import { parseDuration } from '../config/units.ts'
import { OperatorError } from '../core/errors.ts'
import type { Lifecycle } from '../identity/lifecycle-model.ts'
import type { RemoteBroker } from './remote.ts'

/** A life cycle on the store itself, held until it is closed. */
export interface OfflineLifecycle {
  readonly lifecycle: Lifecycle
  close(): Promise<void>
}

/** What `sandbox` and `revoke` need. */
export interface LifecycleAccess {
  /** A client of the broker that the configuration names; it need not run. */
  remote(configPath: string): Promise<RemoteBroker>
  /** Opens the store while no broker runs, and keeps one from starting meanwhile. */
  offlineLifecycle(configPath: string): Promise<OfflineLifecycle>
}

/** Does something with the running broker's life cycle or, when none runs, with the store's. */
export async function withLifecycle<T>(
  { access, configPath }: { readonly access: LifecycleAccess; readonly configPath: string },
  use: (lifecycle: Lifecycle) => Promise<T>,
): Promise<T> {
  const remote = await access.remote(configPath)
  if (await remote.isRunning()) return use(remote)
  const offline = await access.offlineLifecycle(configPath)
  try {
    return await use(offline.lifecycle)
  } finally {
    await offline.close()
  }
}

/** A duration option as `ms`; zero only where `allowZero`. */
export function durationOption(
  option: string,
  text: string | undefined,
  allowZero = false,
): number | undefined {
  if (text === undefined) return undefined
  if (allowZero && /^0(?:ms|[smhdw])?$/.test(text)) return 0
  const parsed = parseDuration(text)
  if (parsed.ok) return parsed.value
  const hint = parsed.suggestion === undefined ? '' : `; did you mean ${parsed.suggestion}?`
  throw new OperatorError(`${option}: ${parsed.problem}${hint}`, { exitCode: 2 })
}
