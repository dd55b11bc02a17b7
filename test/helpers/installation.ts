import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import type { App } from '../../src/app.ts'
import { runCli } from '../../src/cli/wiring.ts'
import { memoryIo } from './memory-io.ts'
import { stateFolder } from './state-folder.ts'

/** An installation of its own: configuration, state folder and command line, as a user has them. */
export interface Installed {
  readonly folder: string
  readonly configPath: string
  readonly state: string
  /** Runs one command line of the real program, `--config` added. */
  octroi(...args: string[]): Promise<{ code: number; out: string; err: string }>
  /** Starts its broker in this process, on free ports; it stops with the test. */
  serve(): Promise<App>
}

/** A static credential's value that nothing may ever show. */
export const demoKey = 'sk-live-0123456789abcdefghij'

const yaml = `version: 1
state: data
listen: { proxy: 127.0.0.1:0, admin: 127.0.0.1:0 }
credentials:
  demo: { issuer: static, value: { env: DEMO_KEY } }
access:
  demo:
    credential: demo
    destinations: [{ host: api.example.com, methods: [GET] }]
    env: DEMO_KEY
templates:
  coder: { tenant: default, access: [demo], allow: [{ host: example.org }], max_ttl: 1h }
sandboxes:
  first: { agent: agent-1, template: coder }
`

/** Writes the configuration; no broker has run yet. */
export function installed(extra = ''): Installed {
  const folder = stateFolder()
  const configPath = join(folder, 'octroi.yaml')
  mkdirSync(join(folder, 'data'), { mode: 0o700 })
  writeFileSync(configPath, `${yaml}${extra}`)
  const env = { DEMO_KEY: demoKey, PATH: process.env['PATH'] }
  return {
    folder,
    configPath,
    state: join(folder, 'data'),
    async octroi(...args) {
      const { io, out, err } = memoryIo({ env, cwd: folder })
      const code = await runCli(['--config', configPath, ...args], io)
      return { code, out: out.join('\n'), err: err.join('\n') }
    },
    async serve() {
      const [{ startApp }, { createLogger }] = await Promise.all([
        import('../../src/app.ts'),
        import('../../src/logger.ts'),
      ])
      const log = createLogger({ level: 'silent' })
      const app = await startApp({ configFile: configPath, env: { ...env }, log })
      onTestFinished(() => app.stop())
      return app
    },
  }
}
