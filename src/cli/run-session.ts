import { setTimeout as sleep } from 'node:timers/promises'
import { OperatorError } from '../core/errors.ts'
import type { Installation } from './offline.ts'
import type { Io } from './io.ts'
import type { RunSession } from './run.ts'
import { placeholdersOf, sandboxOf, snapshotOf, trustOf, withRecords } from './sandbox-facts.ts'

/** How long a broker that has just taken the state folder may need until it answers, `ms`. */
const startWithinMs = 5_000
const askEveryMs = 100

interface Caller {
  readonly io: Io
  readonly configPath: string
}

/** Opens a session of `octroi run` with the running broker, or with a private one that lives as long as the session. */
export async function openSession(
  installation: Installation,
  sandbox: string,
  caller: Caller,
): Promise<RunSession> {
  if (await installation.remote.isRunning()) return joinBroker(installation, sandbox, caller.io)
  try {
    return await startPrivateBroker(installation, sandbox, caller)
  } catch (error) {
    if (!(error instanceof OperatorError && error.message.startsWith('another broker'))) throw error
    // It may be a broker that is still starting; a private one of another run never answers.
    if (await answersSoon(installation)) return joinBroker(installation, sandbox, caller.io)
    throw new OperatorError(
      `${error.message}. Several runs at once share a broker: start it with octroi serve --config ${caller.configPath}`,
      { cause: error },
    )
  }
}

async function answersSoon({ remote }: Installation): Promise<boolean> {
  for (let waited = 0; waited < startWithinMs; waited += askEveryMs) {
    if (await remote.isRunning()) return true
    await sleep(askEveryMs)
  }
  return false
}

async function joinBroker(installation: Installation, name: string, io: Io): Promise<RunSession> {
  const { config, remote } = installation
  const facts = await withRecords(installation, io.env, async ({ store, seal }) => {
    const sandbox = sandboxOf(await snapshotOf(config, store), name)
    return { placeholders: placeholdersOf(sandbox), trust: await trustOf(config, seal) }
  })
  return {
    ...facts,
    socketPath: await remote.sandboxSocket(name),
    protectedPaths: [config.stateFolder],
    ended: (exit) => remote.runEnded({ sandbox: name, exit }),
    // The socket belongs to the broker and serves the next run too.
    close: () => Promise.resolve(),
  }
}

async function startPrivateBroker(
  { config }: Installation,
  name: string,
  { io, configPath }: Caller,
): Promise<RunSession> {
  const [{ startApp }, { createLogger }, { adminEvent }] = await Promise.all([
    import('../app.ts'),
    import('../logger.ts'),
    import('../admin/event.ts'),
  ])
  // stdout belongs to the command; what goes well is not worth a line on stderr.
  const log = createLogger({
    level: 'warn',
    format: 'text',
    destination: { write: (line) => io.err(line.trimEnd()) },
  })
  const app = await startApp({ configFile: configPath, env: { ...io.env }, log, isPrivate: true })
  try {
    const view = sandboxOf(app.holder.current(), name)
    const { tenant, agent, template, run } = view
    const { events, newId } = app.foundation
    return {
      socketPath: await app.openSandboxSocket(name),
      placeholders: placeholdersOf(view),
      trust: app.trust,
      protectedPaths: [config.stateFolder],
      async ended(exit) {
        const note = `command ended with ${String(exit)}`
        const event = { action: 'run', sandbox: name, tenant, agent, template, run, exit, note } as const
        await events
          .appendDurable(adminEvent(event, { id: newId(), ts: Date.now() }))
          .catch((cause: unknown) => {
            throw new OperatorError('the end of the run could not be written to the event log', { cause })
          })
      },
      close: () => app.stop(),
    }
  } catch (error) {
    await app.stop()
    throw error
  }
}
