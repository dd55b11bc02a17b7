import { randomBytes } from 'node:crypto'
import type { Config } from '../../src/config/model.ts'
import type { ConnectionFacts, SandboxView, Snapshot } from '../../src/identity/model.ts'
import { provision } from '../../src/identity/provision.ts'
import { compileSnapshot } from '../../src/identity/snapshot.ts'
import { goodConfig } from './config-files.ts'
import { manualClock } from './manual-clock.ts'
import { memorySeal, memoryStore } from './memory-store.ts'

/** A connection from loopback on the shared listener, unless `own` says otherwise. */
export function factsOf(own: Partial<ConnectionFacts> = {}): ConnectionFacts {
  return {
    socketPath: undefined,
    port: 18_080,
    remoteAddress: '127.0.0.1',
    clientCertificate: undefined,
    openedFor: undefined,
    ...own,
  }
}

/** `Proxy-Authorization` of a user and password. */
export function basic(user: string, password: string): string {
  return `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`
}

/** A configuration provisioned into a store in memory. */
export async function identityBench(yaml: string, env: Record<string, string> = {}) {
  const store = memoryStore()
  const seal = memorySeal()
  const clock = manualClock()
  let config = goodConfig(yaml, { env, now: clock.now() })
  const run = () => provision({ config, store, seal, random: randomBytes, clock, env })
  const notes = await run()

  async function snapshot(): Promise<Snapshot> {
    const [sandboxes, tokens, handles] = await Promise.all([
      store.sandboxes(),
      store.tokens(),
      store.handles(),
    ])
    return compileSnapshot({ config, sandboxes, tokens, handles, now: clock.now() })
  }

  return {
    store,
    seal,
    clock,
    notes,
    snapshot,
    config: (): Config => config,
    provision: run,
    /** Puts another configuration in force. */
    async reconfigure(text: string): Promise<string[]> {
      config = goodConfig(text, { env, now: clock.now() })
      return run()
    },
    async view(name: string): Promise<SandboxView> {
      const found = (await snapshot()).sandboxes.get(name)
      if (found === undefined) throw new TypeError(`no sandbox ${name}`)
      return found
    },
    /** The sandbox's own tokens in plain text, oldest first. */
    async tokens(name: string): Promise<string[]> {
      const own = (await snapshot()).sandboxes.get(name)?.tokens ?? []
      return Promise.all(own.map(({ sealed }) => seal.open(sealed)))
    },
  }
}
