import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { startApp, type App } from '../../src/app.ts'
import { queryEvents, type LoggedEvent } from '../../src/audit/query.ts'
import type { Clock } from '../../src/core/clock.ts'
import { createLogger } from '../../src/logger.ts'
import type { Resolver } from '../../src/net/port.ts'
import type { PlaneLimits } from '../../src/proxy/limits.ts'
import { basic, rawClient, type RawClient } from './raw-client.ts'

/** A whole broker in this process, on free ports, with a state folder of its own. */
export interface TestBroker {
  readonly app: App
  readonly port: number
  readonly adminPort: number
  readonly folder: string
  readonly stateFolder: string
  /** PEM of the broker's CA. */
  readonly ca: string
  /** Lines of the operator's log. */
  readonly log: string[]
  /** Proxy password of a sandbox. */
  token(sandbox: string): Promise<string>
  /** `Proxy-Authorization: Basic …` line of a sandbox, with its CRLF. */
  auth(sandbox: string): Promise<string>
  placeholder(sandbox: string, access: string): string
  client(): Promise<RawClient>
  /** A TLS client inside a tunnel of `sandbox` to `authority`. */
  tunnel(sandbox: string, authority: string, servername?: string): Promise<RawClient>
  /** Events so far, oldest first, once `until` holds (they are written in groups). */
  events(until?: (events: LoggedEvent[]) => boolean, ms?: number): Promise<LoggedEvent[]>
  /** Rewrites the configuration and reloads. */
  reconfigure(yaml: string): Promise<void>
  stop(): Promise<void>
}

export interface TestBrokerOptions {
  /** The configuration without `version`, `state` and `listen`, unless it has them. */
  readonly yaml: string
  readonly env?: Record<string, string>
  /** More files beside the configuration, by name. */
  readonly files?: Record<string, string>
  readonly resolver?: Resolver
  readonly limits?: Partial<PlaneLimits>
  readonly clock?: Clock
}

export async function startTestBroker(options: TestBrokerOptions): Promise<TestBroker> {
  const folder = await mkdtemp(join(tmpdir(), 'octroi-test-'))
  const configFile = join(folder, 'octroi.yaml')
  await writeFile(configFile, withDefaults(options.yaml), { mode: 0o600 })
  for (const [name, text] of Object.entries(options.files ?? {}))
    await writeFile(join(folder, name), text, { mode: 0o600 })
  const log: string[] = []
  const app = await startApp({
    configFile,
    env: { PATH: process.env['PATH'], ...options.env },
    log: createLogger({ destination: { write: (line) => void log.push(line) } }),
    resolver: options.resolver,
    limits: options.limits,
    clock: options.clock,
  })
  const port = portOf(app, 'proxy')
  const stateFolder = join(folder, 'data')
  const view = (sandbox: string) => {
    const found = app.holder.current().sandboxes.get(sandbox)
    if (found === undefined) throw new TypeError(`no sandbox ${sandbox}`)
    return found
  }
  const token = async (sandbox: string): Promise<string> => {
    const sealed = view(sandbox).tokens.at(-1)?.sealed
    if (sealed === undefined) throw new TypeError(`sandbox ${sandbox} has no token`)
    return app.foundation.seal.open(sealed)
  }
  const auth = async (sandbox: string): Promise<string> =>
    `Proxy-Authorization: ${basic(sandbox, await token(sandbox))}\r\n`
  return {
    app,
    port,
    adminPort: portOf(app, 'admin'),
    folder,
    stateFolder,
    ca: app.foundation.authority.certificatePem,
    log,
    token,
    auth,
    placeholder(sandbox, access) {
      const grant = view(sandbox).grants.find((candidate) => candidate.access.name === access)
      if (grant === undefined) throw new TypeError(`${sandbox} has no access ${access}`)
      return grant.handle.placeholder
    },
    client: () => rawClient(port),
    async tunnel(sandbox, authority, servername) {
      const client = await rawClient(port)
      client.write(`CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n${await auth(sandbox)}\r\n`)
      const answer = await client.response()
      if (answer.status !== 200) throw new Error(`CONNECT was refused: ${answer.statusLine}`)
      const host = authority.slice(0, authority.lastIndexOf(':'))
      return client.startTls({
        servername: servername ?? host,
        host: servername ?? host,
        ca: app.foundation.authority.certificatePem,
      })
    },
    events: (until, ms) => eventsWhen(stateFolder, until ?? (() => true), ms ?? 5_000),
    async reconfigure(yaml) {
      await writeFile(configFile, withDefaults(yaml), { mode: 0o600 })
      await app.reload()
    },
    async stop() {
      await app.stop()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

function withDefaults(yaml: string): string {
  const has = (key: string): boolean => new RegExp(`^${key}:`, 'm').test(yaml)
  return [
    has('version') ? '' : 'version: 1\n',
    has('state') ? '' : 'state: data\n',
    has('listen') ? '' : 'listen: { proxy: 127.0.0.1:0, admin: 127.0.0.1:0 }\n',
    yaml,
  ].join('')
}

function portOf(app: App, name: string): number {
  const found = app.listeners.find(
    (listener) => listener.name === name && listener.address.startsWith('http'),
  )
  return Number(found?.address.split(':').at(-1) ?? 0)
}

async function eventsWhen(
  folder: string,
  until: (events: LoggedEvent[]) => boolean,
  ms: number,
): Promise<LoggedEvent[]> {
  const end = Date.now() + ms
  for (;;) {
    const events = queryEvents(folder, {})
    if (until(events)) return events
    if (Date.now() > end)
      throw new Error(`no such events within ${ms} ms: ${JSON.stringify(events, null, 1)}`)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}
