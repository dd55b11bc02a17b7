import { existsSync } from 'node:fs'
import { join } from 'node:path'
import type { SecureContext } from 'node:tls'
import { effectivePolicy } from '../config/effective.ts'
import type { Config } from '../config/model.ts'
import { systemClock } from '../core/clock.ts'
import type { SandboxView, Snapshot } from '../identity/model.ts'
import { decide } from '../policy/decide.ts'
import { parseAuthority } from '../policy/destination.ts'
import { trustFilesIn, trustFolder } from '../sandbox/bundle.ts'
import type { HostFacts, InsideFacts } from './doctor.ts'
import type { Io } from './io.ts'
import type { Installation } from './offline.ts'
import { sandboxOf, snapshotOf, withRecords } from './sandbox-facts.ts'

/** What `octroi doctor` looks at from outside. */
export async function hostFacts({ config }: Installation): Promise<HostFacts> {
  const { stateFolder, listen } = config
  return {
    stateFolder,
    trust: trustFilesIn(trustFolder(config.root)),
    listeners: [
      ...listen.proxy.map((at) => ({
        name: 'proxy',
        at: at.kind === 'unix' ? { path: at.path } : { host: at.host, port: at.port },
      })),
      { name: 'admin', at: { host: listen.admin.host, port: listen.admin.port } },
      { name: 'admin', at: { path: join(stateFolder, 'admin.sock') } },
    ],
    context: await localhostContext(stateFolder),
    now: systemClock.now(),
  }
}

/** What `octroi doctor --inside` has to know of a sandbox before it tests it. */
export async function insideFacts(installation: Installation, name: string, io: Io): Promise<InsideFacts> {
  const { config } = installation
  return withRecords(installation, io.env, async ({ store }) => {
    const snapshot = await snapshotOf(config, store)
    const sandbox = sandboxOf(snapshot, name)
    const tcp = config.listen.proxy.flatMap((at) =>
      at.kind === 'tcp' ? [{ name: 'proxy', port: at.port }] : [],
    )
    return {
      grants: sandbox.grants,
      freeHost: freeHostOf(config, snapshot, sandbox),
      brokerPorts: [...tcp, { name: 'admin', port: config.listen.admin.port }].filter(
        ({ port }) => port !== 0,
      ),
    }
  })
}

/** A host that a rule allows over terminated TLS and that no access of the tenant has. */
export function freeHostOf(
  config: Config,
  snapshot: Snapshot,
  sandbox: SandboxView,
): InsideFacts['freeHost'] {
  const template = sandbox.template === undefined ? undefined : config.templates.get(sandbox.template)
  const { allow } = effectivePolicy(template, config.sandboxes.get(sandbox.name))
  for (const rule of allow) {
    if (rule.kind !== 'host' || rule.host === 'any' || rule.host.startsWith('*.')) continue
    for (const port of rule.ports) {
      const parsed = parseAuthority(
        rule.host.includes(':') ? `[${rule.host}]:${port}` : `${rule.host}:${port}`,
      )
      if (!parsed.ok || snapshot.bound.get(sandbox.tenant)?.has(rule.host, port) === true) continue
      const { destination } = parsed
      const decision = decide(sandbox.policy, { kind: 'connect', destination, now: systemClock.now() })
      const isTerminated = decision.verdict === 'allow' && decision.tls === 'terminate'
      if (isTerminated && decision.schemes.includes('https')) return { host: rule.host, port }
    }
  }
  return undefined
}

/** A TLS context for `localhost` from the CA there is; never makes one. */
async function localhostContext(stateFolder: string): Promise<SecureContext | undefined> {
  const [authorities, { createMinter }, { createLeafCache }, { openSeal }] = await Promise.all([
    import('../tls/authority.ts'),
    import('../tls/minter.ts'),
    import('../tls/leaf-cache.ts'),
    import('../store/seal.ts'),
  ])
  if (!existsSync(join(stateFolder, 'seal.key'))) return undefined
  const clock = systemClock
  const minter = createMinter({ clock })
  try {
    if ((await authorities.readAuthorityCertificate(stateFolder)) === undefined) return undefined
    const seal = await openSeal(stateFolder)
    const authority = await authorities.loadOrCreateAuthority({ folder: stateFolder, seal, clock })
    return await createLeafCache({ authority, minter, clock }).contextFor('localhost')
  } catch {
    // Whatever keeps the key shut is a finding of the checks of the state folder.
    return undefined
  } finally {
    await minter.close()
  }
}
