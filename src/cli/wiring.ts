import type { Io, Register } from './io.ts'
import { registerCa } from './ca.ts'
import { registerCheck } from './check.ts'
import { registerDoctor } from './doctor.ts'
import { registerEnv } from './env.ts'
import { registerGrant } from './grant.ts'
import type { LifecycleAccess } from './lifecycle-access.ts'
import type { Installation } from './offline.ts'
import { registerLogs } from './logs.ts'
import { runProgram } from './program.ts'
import { registerRevoke } from './revoke.ts'
import { registerRun } from './run.ts'
import type { RunDeps } from './run.ts'
import { registerSandbox } from './sandbox.ts'
import { registerSecret } from './secret.ts'
import { registerServe } from './serve.ts'
import { registerVerify } from './verify.ts'
import { registerWhy } from './why.ts'

/** Runs one command line of `octroi` and returns its exit code. */
export function runCli(argv: readonly string[], io: Io): Promise<number> {
  return runProgram(argv, { io, groups: groupsOf(io) })
}

/**
 * Every command group, in the order of the help text. What a command works with is loaded when it runs: reading the
 * configuration alone costs more than starting Node.
 */
function groupsOf(io: Io): readonly Register[] {
  const at = async (configPath: string): Promise<Installation> =>
    (await import('./offline.ts')).installationOf(configPath, io.env)
  const lifecycle: LifecycleAccess = {
    remote: async (configPath) => (await at(configPath)).remote,
    offlineLifecycle: async (configPath) => {
      const { config } = await at(configPath)
      return (await import('./offline.ts')).openOfflineLifecycle(config, io)
    },
  }
  const run: RunDeps = {
    async open(configPath, sandbox) {
      const { openSession } = await import('./run-session.ts')
      return openSession(await at(configPath), sandbox, { io, configPath })
    },
  }
  const folder = {
    stateFolder: async (configPath: string) => (await at(configPath)).config.stateFolder,
  }
  return [
    registerServe,
    registerCheck({ makeAuthority, readRecords: (config) => readRecords(config) }),
    registerRun(run),
    registerEnv({
      async load(configPath, sandbox) {
        const { envFacts } = await import('./sandbox-facts.ts')
        return envFacts(await at(configPath), sandbox, io)
      },
    }),
    registerSandbox(lifecycle),
    registerGrant(lifecycle),
    registerRevoke(lifecycle),
    registerSecret({ ...folder, notifyBroker: async (configPath) => notifyBroker(await at(configPath)) }),
    registerLogs(folder),
    registerWhy(folder),
    registerVerify(folder),
    (program, context) =>
      registerCa(program, context, {
        stateFolder: () => folder.stateFolder(context.configPath()),
      }),
    registerDoctor({
      async host(configPath) {
        const { hostFacts } = await import('./doctor-facts.ts')
        return hostFacts(await at(configPath))
      },
      async inside(configPath, sandbox) {
        const { insideFacts } = await import('./doctor-facts.ts')
        return insideFacts(await at(configPath), sandbox, io)
      },
      firstSandbox: async (configPath) => (await at(configPath)).config.sandboxes.keys().next().value,
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
  const { hasStore, openBeside } = await import('./offline.ts')
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
