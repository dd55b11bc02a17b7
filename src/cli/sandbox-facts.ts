import { readFile } from 'node:fs/promises'
import { existsSync } from 'node:fs'
import type { Config, ProxyListener } from '../config/model.ts'
import { nearest } from '../config/problem.ts'
import { systemClock } from '../core/clock.ts'
import { OperatorError } from '../core/errors.ts'
import type { SandboxView, Snapshot } from '../identity/model.ts'
import { compileSnapshot } from '../identity/snapshot.ts'
import { parseAbsoluteTarget } from '../policy/destination.ts'
import { trustFilesIn, trustFolder, writeTrustFiles } from '../sandbox/bundle.ts'
import type { TrustFiles } from '../sandbox/bundle.ts'
import type { PlaceholderVariable } from '../sandbox/environment.ts'
import type { Seal, Store } from '../store/port.ts'
import type { EnvFacts } from './env.ts'
import { openAlone, openBeside, openOfflineLifecycle } from './offline.ts'
import type { Installation, OpenRecords } from './offline.ts'
import type { Io } from './io.ts'

/** Does something with the records, beside the running broker or alone. */
export async function withRecords<T>(
  { config, remote }: Installation,
  env: Io['env'],
  use: (records: OpenRecords, isRunning: boolean) => Promise<T>,
): Promise<T> {
  const isRunning = await remote.isRunning()
  const records = isRunning ? await openBeside(config) : await openAlone(config, env)
  try {
    return await use(records, isRunning)
  } finally {
    await records.close()
  }
}

/** The snapshot as a broker with this configuration and these records would compile it. */
export async function snapshotOf(config: Config, store: Store): Promise<Snapshot> {
  const [sandboxes, tokens, handles] = [await store.sandboxes(), await store.tokens(), await store.handles()]
  return compileSnapshot({ config, sandboxes, tokens, handles, now: systemClock.now() })
}

/** A living sandbox of a snapshot; `OperatorError` with the nearest name there is. */
export function sandboxOf(snapshot: Snapshot, name: string): SandboxView {
  const found = snapshot.sandboxes.get(name)
  if (found !== undefined) return found
  const meant = nearest(name, snapshot.sandboxes.keys())
  const names = [...snapshot.sandboxes.keys()].sort()
  const list = names.length === 0 ? 'there is none' : `there are: ${names.join(', ')}`
  throw new OperatorError(
    `no sandbox has that name; ${meant === undefined ? list : `did you mean ${meant}?`}`,
    { exitCode: 2 },
  )
}

/** The variables that carry a sandbox's live placeholders. */
export function placeholdersOf(sandbox: SandboxView): PlaceholderVariable[] {
  const now = systemClock.now()
  return sandbox.grants.flatMap(({ access: { env }, handle }) => {
    const isLive =
      handle.revokedAt === undefined && (handle.expiresAt === undefined || handle.expiresAt > now)
    return env === undefined || !isLive ? [] : [{ env, placeholder: handle.placeholder }]
  })
}

/** The public trust files of an installation; written, with a CA if need be, when no broker has run yet. */
export async function trustOf(config: Config, seal: Seal): Promise<TrustFiles> {
  const files = trustFilesIn(trustFolder(config.root))
  if ([files.bundle, files.ca, files.javaTrustStore, files.aptConf].every((path) => existsSync(path)))
    return files
  const { loadOrCreateAuthority } = await import('../tls/authority.ts')
  const authority = await loadOrCreateAuthority({ folder: config.stateFolder, seal, clock: systemClock })
  const previous = authority.previous === undefined ? [] : [authority.previous.certificatePem]
  const roots = await Promise.all(config.trust.ca.map(readRoot))
  return writeTrustFiles({
    folder: files.folder,
    caPem: authority.certificatePem,
    extra: [...previous, ...roots],
  })
}

async function readRoot(path: string): Promise<string> {
  try {
    return await readFile(path, 'utf8')
  } catch (cause) {
    throw new OperatorError(`trust.ca: ${path} cannot be read`, { cause, exitCode: 2 })
  }
}

/** What `octroi env` prints of a sandbox; works with the broker stopped. */
export async function envFacts(installation: Installation, name: string, io: Io): Promise<EnvFacts> {
  const { config } = installation
  const found = await withRecords(installation, io.env, async ({ store, seal, notes }, isRunning) => {
    const sandbox = sandboxOf(await snapshotOf(config, store), name)
    return {
      sandbox,
      token: await tokenOf(sandbox, seal),
      trust: await trustOf(config, seal),
      notes,
      isRunning,
    }
  })
  const { sandbox, trust } = found
  const notes = [...found.notes]
  const needsToken = sandbox.identity.some((proofs) => proofs.some(({ kind }) => kind === 'token'))
  let token = found.token
  if (needsToken && token === undefined) {
    token = await reissue(installation, name, io)
    notes.push(
      `the token of ${name} was issued again, since the one before cannot be printed; that one ends in 60 s`,
    )
  }
  return {
    proxy: await proxyOf(installation, sandbox, found.isRunning),
    login: needsToken && token !== undefined ? { user: name, token } : undefined,
    placeholders: placeholdersOf(sandbox),
    trust,
    notes,
  }
}

/** The newest token that does not end, if this state folder's key still opens it. */
export async function tokenOf(sandbox: SandboxView, seal: Seal): Promise<string | undefined> {
  const lasting = sandbox.tokens.filter(({ expiresAt }) => expiresAt === undefined)
  const newest = lasting.toSorted((a, b) => b.createdAt - a.createdAt)[0]
  if (newest === undefined) return undefined
  try {
    return await seal.open(newest.sealed)
  } catch (error) {
    if (error instanceof OperatorError) return undefined
    throw error
  }
}

async function reissue({ config, remote }: Installation, name: string, io: Io): Promise<string> {
  if (await remote.isRunning()) return (await remote.rotateToken(name)).token
  const offline = await openOfflineLifecycle(config, io)
  try {
    return (await offline.lifecycle.rotateToken(name)).token
  } finally {
    await offline.close()
  }
}

type TcpListener = Extract<ProxyListener, { kind: 'tcp' }>

/** The listener a sandbox uses: the port that is its proof, else the first shared one. */
async function proxyOf(
  { config, remote }: Installation,
  sandbox: SandboxView,
  isRunning: boolean,
): Promise<EnvFacts['proxy']> {
  const own = sandbox.identity.flat().find((proof) => proof.kind === 'port')
  // A certificate can be shown over TLS only.
  const needsTls = sandbox.identity.every((proofs) =>
    proofs.some(({ kind }) => kind === 'client_certificate'),
  )
  const isUsable = (at: ProxyListener): at is TcpListener =>
    at.kind === 'tcp' && (own === undefined ? !at.identity && (at.tls || !needsTls) : at.port === own.port)
  const index = config.listen.proxy.findIndex(isUsable)
  const at = config.listen.proxy[index]
  if (at?.kind !== 'tcp')
    throw new OperatorError(
      `no TCP listener serves ${sandbox.name}: add one to \`listen.proxy\`, or use \`octroi run\``,
    )
  const scheme = at.tls ? 'https' : 'http'
  if (at.port !== 0) return { scheme, host: at.host, port: at.port }
  const status = isRunning ? await remote.status() : undefined
  // A private broker has no TCP listener at all.
  if (status === undefined || status.private)
    throw new OperatorError('the proxy listens on any free port, which is known only while the broker runs')
  const open = status.listeners.filter((listener) => listener.name === 'proxy')
  const bound = parseAbsoluteTarget(`${open[index]?.address ?? ''}/`)
  if (!bound.ok) throw new OperatorError('the running broker has another configuration: reload or restart it')
  return { scheme, host: at.host, port: bound.destination.port }
}
