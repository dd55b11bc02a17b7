import { spawn } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const repository = fileURLToPath(new URL('../../', import.meta.url))

/** How a child process ended and what it wrote. */
export interface Ended {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  readonly stdout: string
  readonly stderr: string
}

/** A throwaway copy of `bin/` and `scripts/` with files of the test's own around them. */
export interface Checkout {
  readonly dir: string
  /** Writes a file, making its folders; returns its path. */
  write(path: string, text: string, mode?: number): string
  /** Places the Node of this test where the optional dependency would put it, below `dir` or `under`. */
  bundleNode(options?: { under?: string; version?: string }): string
  remove(): void
}

export function makeCheckout(): Checkout {
  const dir = mkdtempSync(join(tmpdir(), 'octroi-checkout-'))
  const checkout: Checkout = {
    dir,
    write(path, text, mode = 0o644) {
      const target = join(dir, path)
      mkdirSync(dirname(target), { recursive: true })
      writeFileSync(target, text, { mode })
      return target
    },
    bundleNode({ under = '.', version = process.versions.node } = {}) {
      const home = join(under, 'node_modules', `node-${process.platform}-${process.arch}`)
      checkout.write(join(home, 'package.json'), JSON.stringify({ version }))
      mkdirSync(join(dir, home, 'bin'), { recursive: true })
      const binary = join(dir, home, 'bin', 'node')
      symlinkSync(process.execPath, binary)
      return binary
    },
    remove: () => rmSync(dir, { recursive: true, force: true }),
  }
  checkout.write('package.json', JSON.stringify({ name: 'octroi', type: 'module' }))
  for (const folder of ['bin', 'scripts'])
    cpSync(join(repository, folder), join(dir, folder), { recursive: true })
  return checkout
}

/** Node options that make the process believe it is another version. */
export function pretend(checkout: Checkout, version: string): string[] {
  const preload = checkout.write(
    `pretend-${version}.cjs`,
    `Object.defineProperty(process, 'version', { value: ${JSON.stringify(version)} })\n`,
  )
  return ['--require', preload]
}

/** The environment without what npm adds when it runs the tests. */
export function plainEnv(extra: NodeJS.ProcessEnv = {}): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(([name]) => !/^npm_|^NODE_OPTIONS$|^VITEST/i.test(name))
  return { ...Object.fromEntries(kept), ...extra }
}

export interface Started {
  readonly child: ChildProcess
  readonly ended: Promise<Ended>
  /** Resolves when stdout has shown `text`. */
  shown(text: string): Promise<void>
}

interface StartOptions {
  /** The Node of this test unless given. */
  readonly command?: string
  readonly cwd?: string
  readonly env?: NodeJS.ProcessEnv
}

export function start(
  args: string[],
  { command = process.execPath, ...options }: StartOptions = {},
): Started {
  const child = spawn(command, args, { env: plainEnv(), stdio: ['ignore', 'pipe', 'pipe'], ...options })
  let stdout = ''
  let stderr = ''
  child.stdout?.setEncoding('utf8').on('data', (text: string) => (stdout += text))
  child.stderr?.setEncoding('utf8').on('data', (text: string) => (stderr += text))
  const ended = new Promise<Ended>((resolve, reject) => {
    child.on('error', reject)
    child.on('close', (code, signal) => resolve({ code, signal, stdout, stderr }))
  })
  return {
    child,
    ended,
    shown: (text) =>
      new Promise((resolve, reject) => {
        const look = (): void => {
          if (stdout.includes(text)) resolve()
        }
        child.stdout?.on('data', look)
        child.on('close', () => reject(new Error(`ended before showing ${text}: ${stdout}${stderr}`)))
        look()
      }),
  }
}

export const run = (args: string[], options?: StartOptions): Promise<Ended> => start(args, options).ended
