import type { Io, Register } from './io.ts'
import { registerCa } from './ca.ts'
import { registerCheck } from './check.ts'
import { registerDoctor } from './doctor.ts'
import { hostFacts, insideFacts } from './doctor-facts.ts'
import { registerEnv } from './env.ts'
import { registerGrant } from './grant.ts'
import type { LifecycleAccess } from './lifecycle-access.ts'
import { hasStore, installationOf, openBeside, openOfflineLifecycle } from './offline.ts'
import type { Installation } from './offline.ts'
import { registerLogs } from './logs.ts'
import { runProgram } from './program.ts'
import { registerRevoke } from './revoke.ts'
import { registerRun } from './run.ts'
import type { RunDeps } from './run.ts'
import { openSession } from './run-session.ts'
import { envFacts } from './sandbox-facts.ts'
import { registerSandbox } from './sandbox.ts'
import { registerSecret } from './secret.ts'
import { registerServe } from './serve.ts'
import { serveHints } from './serve-hints.ts'
import { registerVerify } from './verify.ts'
import { registerWhy } from './why.ts'

/** Runs one command line of `octroi` and returns its exit code. */
export function runCli(argv: readonly string[], io: Io): Promise<number> {
  return runProgram(argv, { io, groups: groupsOf(io) })
}

/** Every command group, in the order of the help text. */
function groupsOf(io: Io): readonly Register[] {
  const at = (configPath: string) => installationOf(configPath, io.env)
  const lifecycle: LifecycleAccess = {
    remote: async (configPath) => Promise.resolve(at(configPath).remote),
    offlineLifecycle: (configPath) => openOfflineLifecycle(at(configPath).config, io),
  }
  const run: RunDeps = {
    open: async (configPath, sandbox) => openSession(at(configPath), sandbox, { io, configPath }),
  }
  const folder = {
    stateFolder: async (configPath: string) => Promise.resolve(at(configPath).config.stateFolder),
  }
  return [
    registerServe((app, configPath) => serveHints(app, { io, configPath })),
    registerCheck({ makeAuthority, readRecords: (config) => readRecords(config) }),
    registerRun(run),
    registerEnv({ load: async (configPath, sandbox) => envFacts(at(configPath), sandbox, io) }),
    registerSandbox(lifecycle),
    registerGrant(lifecycle),
    registerRevoke(lifecycle),
    registerSecret({ ...folder, notifyBroker: async (configPath) => notifyBroker(at(configPath)) }),
    registerLogs(folder),
    registerWhy(folder),
    registerVerify(folder),
    (program, context) =>
      registerCa(program, context, {
        stateFolder: () => folder.stateFolder(context.configPath()),
      }),
    registerDoctor({
      host: async (configPath) => hostFacts(at(configPath)),
      inside: async (configPath, sandbox) => insideFacts(at(configPath), sandbox, io),
      run,
    }),
  ]
}

/** Tells the running broker, if one runs, that the sealed store has changed. */
async function notifyBroker({ remote }: Installation): Promise<boolean> {
  if (!(await remote.isRunning())) return false
  await remote.secretsChanged()
  return true
}

async function makeAuthority(folder: string): Promise<void> {
  const [{ openSeal }, { loadOrCreateAuthority }, { systemClock }] = await Promise.all([
    import('../store/seal.ts'),
    import('../tls/authority.ts'),
    import('../core/clock.ts'),
  ])
  await loadOrCreateAuthority({ folder, seal: await openSeal(folder), clock: systemClock })
}

type ReadRecords = Parameters<typeof registerCheck>[0]['readRecords']

const readRecords: ReadRecords = async (config) => {
  if (!hasStore(config)) return undefined
  const { store, close } = await openBeside(config)
  try {
    return {
      sandboxes: await store.sandboxes(),
      tokens: await store.tokens(),
      handles: await store.handles(),
    }
  } finally {
    await close()
  }
}
