import type { Config } from '../config/model.ts'
import { OperatorError } from '../core/errors.ts'
import type { Installation } from './offline.ts'
import { ensureBroker } from './private-broker.ts'
import type { Caller } from './private-broker.ts'
import { BrokenOff, NotRunning } from './remote.ts'
import type { Attached } from './remote.ts'
import type { RunSession } from './run.ts'
import { placeholdersOf, sandboxOf, snapshotOf, trustOf, withRecords } from './sandbox-facts.ts'

/** A private broker may end between being found and being attached to, but not time after time. */
const attempts = 5

/** Opens a session of `octroi run` with the running broker, or with a private one that is started for it. */
export async function openSession(
  installation: Installation,
  sandbox: string,
  caller: Caller,
): Promise<RunSession> {
  const attached = await attach(installation, caller)
  try {
    return await session(installation, sandbox, { attached, caller })
  } catch (error) {
    attached.release()
    throw error
  }
}

async function attach(installation: Installation, caller: Caller): Promise<Attached> {
  for (let attempt = 1; ; attempt += 1) {
    await ensureBroker(installation, caller)
    try {
      return await installation.remote.attach()
    } catch (error) {
      if (!(error instanceof NotRunning || error instanceof BrokenOff)) throw error
      if (attempt === attempts) throw new OperatorError('the broker ends again and again', { cause: error })
    }
  }
}

async function session(
  installation: Installation,
  name: string,
  { attached, caller }: { attached: Attached; caller: Caller },
): Promise<RunSession> {
  const { config, remote } = installation
  const { io } = caller
  const facts = await withRecords(installation, io.env, async ({ store, seal }) => {
    const sandbox = sandboxOf(await snapshotOf(config, store), name)
    return { placeholders: placeholdersOf(sandbox), trust: await trustOf(config, seal) }
  })
  const { run } = attached
  const socketPath = await remote.sandboxSocket(name, run)
  void attached.lost.then(() => {
    io.err('octroi: the broker has ended; this command has no network until it is started again')
  })
  return {
    ...facts,
    socketPath,
    protectedPaths: [config.stateFolder, ...secretFilesOf(config)],
    ended: (exit) => remote.runEnded({ sandbox: name, exit, run }),
    // The broker closes the socket of the run then.
    close: () => Promise.resolve(attached.release()),
  }
}

/** Files that hold root credentials or tokens of sandboxes. */
function secretFilesOf({ credentials, sandboxes }: Config): string[] {
  const refs = [...credentials.values()].map(({ value }) => value)
  const tokens = [...sandboxes.values()].map(({ token }) => token)
  return [...refs, ...tokens].flatMap((ref) =>
    ref !== undefined && ref !== 'generated' && ref.kind === 'file' ? [ref.path] : [],
  )
}
