import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { App } from '../app.ts'
import type { SandboxView } from '../identity/model.ts'
import { describePolicy } from '../policy/rules.ts'
import type { Io } from './io.ts'

/** Lines to paste after the start: the variables of the first sandbox, and a request that its policy allows. */
export async function serveHints(
  app: App,
  { io, configPath }: { readonly io: Io; readonly configPath: string },
): Promise<readonly string[]> {
  const proxy = app.listeners.find(({ name, address }) => name === 'proxy' && !address.startsWith('unix:'))
  const sandbox = firstWithToken(app)
  if (proxy === undefined || sandbox === undefined) return []
  const octroi = commandName(io.cwd)
  const url = exampleUrl(app, sandbox)
  const env = `${octroi} env --config ${quote(configPath)} --sandbox ${sandbox.name}`
  const lines = [
    `try    eval "$(${env})" && curl -sS -o /dev/null -w '%{http_code}\\n' ${url}`,
    `watch  ${octroi} logs --config ${quote(configPath)} --follow`,
  ]
  const token = await tokenOf(app, sandbox)
  if (token === undefined) return lines
  const [scheme, rest] = proxy.address.split('://')
  return [`proxy  export HTTPS_PROXY=${scheme ?? ''}://${sandbox.name}:${token}@${rest ?? ''}`, ...lines]
}
