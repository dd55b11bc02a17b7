import { join, relative, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { App } from '../app.ts'
import { effectivePolicy } from '../config/effective.ts'
import type { Config } from '../config/model.ts'
import { systemClock } from '../core/clock.ts'
import type { SandboxView } from '../identity/model.ts'
import { decide } from '../policy/decide.ts'
import { parseAuthority } from '../policy/destination.ts'
import type { Io } from './io.ts'
import { tokenOf } from './sandbox-facts.ts'

/**
 * Lines to paste after the start: how to be the first sandbox of the configuration, and a request that it may make. Its
 * token is shown on a terminal only: elsewhere the output of a server is kept as a log.
 */
export async function serveHints(
  app: App,
  { io, configPath }: { readonly io: Io; readonly configPath: string },
): Promise<readonly string[]> {
  const config = app.holder.config()
  const sandbox = firstWithToken(app, config)
  const proxy = app.listeners.find(
    ({ name, address }) => name === 'proxy' && address.startsWith('http'),
  )?.address
  if (sandbox === undefined || proxy === undefined) return []
  const url = exampleUrl(config, sandbox)
  const token = io.isTerminal ? await tokenOf(sandbox, app.foundation.seal) : undefined
  const env = `${commandName(io.cwd)} env --config ${quote(shortest(configPath, io.cwd))} --sandbox ${sandbox.name}`
  if (token === undefined)
    return [
      `paste  eval "$(${env})"   # sets HTTPS_PROXY, trust and placeholders`,
      ...(url === undefined ? [] : [`paste  curl -sS ${url}   # after that`]),
    ]
  const proxyUrl = proxy.replace('://', `://${sandbox.name}:${token}@`)
  const trust = quote(shortest(app.trust.bundle, io.cwd))
  return [
    `paste  export HTTPS_PROXY=${proxyUrl}`,
    ...(url === undefined ? [] : [`paste  curl --proxy ${proxyUrl} --cacert ${trust} ${url}`]),
    `more   ${env}`,
  ]
}

function firstWithToken(app: App, config: Config): SandboxView | undefined {
  const { sandboxes } = app.holder.current()
  for (const name of config.sandboxes.keys()) {
    const view = sandboxes.get(name)
    const byTokenAlone = view?.identity.some((proofs) => proofs.every(({ kind }) => kind === 'token'))
    if (view !== undefined && byTokenAlone && !view.paused) return view
  }
  return undefined
}

/** A URL that the sandbox may GET, from the rules that name one host. */
function exampleUrl(config: Config, sandbox: SandboxView): string | undefined {
  const template = sandbox.template === undefined ? undefined : config.templates.get(sandbox.template)
  const { allow } = effectivePolicy(template, config.sandboxes.get(sandbox.name))
  for (const rule of allow) {
    if (rule.kind !== 'host' || rule.scheme !== 'https' || !rule.ports.includes(443)) continue
    const parsed = parseAuthority(rule.host, 443)
    if (!parsed.ok) continue
    const { destination } = parsed
    const request = { kind: 'http', scheme: 'https', method: 'GET', path: '/', destination } as const
    const decision = decide(sandbox.policy, { ...request, now: systemClock.now() })
    if (decision.verdict === 'allow' && decision.tls === 'terminate') return `https://${rule.host}/`
  }
  return undefined
}

/** How this program is called: by name when it is installed, by its path in a checkout. */
function commandName(cwd: string): string {
  const bin = join(fileURLToPath(new URL('../../package.json', import.meta.url)), '..', 'bin', 'octroi.js')
  return bin.includes('/node_modules/') ? 'octroi' : `node ${quote(shortest(bin, cwd))}`
}

function shortest(path: string, cwd: string): string {
  const absolute = resolve(cwd, path)
  const near = relative(cwd, absolute)
  return near.startsWith('..') || near === '' ? absolute : join(near)
}

function quote(path: string): string {
  return /^[\w./@:+-]+$/.test(path) ? path : `'${path.replaceAll("'", String.raw`'\''`)}'`
}
