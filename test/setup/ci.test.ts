import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { makeCheckout, plainEnv, start } from './checkout.ts'
import type { Checkout, Ended } from './checkout.ts'

const script = fileURLToPath(new URL('../../.ci/run', import.meta.url))
const clients = [
  'bwrap',
  'git',
  'curl',
  'python3',
  'pip3',
  'go',
  'cargo',
  'javac',
  'mvn',
  'docker-compose',
  'openssl',
  'dig',
  'wget',
]
const tools = ['bash', 'sh', 'env', 'timeout', 'tee', 'grep', 'tail', 'mktemp', 'rm', 'dirname', 'id', 'true']
const good = 'echo "12 passed, 0 failed, 3 skipped"'

describe('.ci/run', () => {
  let checkout: Checkout

  beforeEach(() => {
    checkout = makeCheckout()
    mkdirSync(join(checkout.dir, '.ci'))
    copyFileSync(script, join(checkout.dir, '.ci', 'run'))
    for (const name of clients) program(name, 'exit 0')
    for (const tool of tools) {
      const home = ['/usr/bin', '/bin'].find((folder) => existsSync(join(folder, tool))) ?? '/usr/bin'
      symlinkSync(join(home, tool), join(checkout.dir, 'fake', tool))
    }
    program('apt-get', 'echo "$@" >>apt-calls; exit 100')
    program('sudo', 'shift; exec "$@"')
  })
  afterEach(() => checkout.remove())

  const program = (name: string, body: string): unknown =>
    checkout.write(`fake/${name}`, `#!/bin/sh\n${body}\n`, 0o755)

  /** Runs it with an npm that does `test` for `npm test` and ends with `lint` for `npm run lint`. */
  const ci = (test: string, lint = 0): Promise<Ended> => {
    program('npm', `case "$*" in test) ${test} ;; *lint) echo dirty; exit ${lint} ;; esac`)
    const env = plainEnv({
      PATH: join(checkout.dir, 'fake'),
      SYSTEM_PYTHON: join(checkout.dir, 'fake', 'python3'),
    })
    return start([join(checkout.dir, '.ci', 'run')], { command: 'bash', cwd: '/', env }).ended
  }
  const lastLine = ({ stdout }: Ended): string | undefined => stdout.split('\n').at(-2)

  it('ends with the counts of npm test alone on the last line and 0 when everything is well', async () => {
    const ended = await ci(good)
    expect(ended.code).toBe(0)
    expect(lastLine(ended)).toBe('12 passed, 0 failed, 3 skipped')
  })

  it('ends with the same line but not 0 when lint fails', async () => {
    const ended = await ci(good, 1)
    expect(ended.code).toBe(1)
    expect(ended.stdout).toContain('ci: failed: lint')
    expect(lastLine(ended)).toBe('12 passed, 0 failed, 3 skipped')
  })

  it('goes on to lint when tests fail', async () => {
    const ended = await ci('echo "1 passed, 2 failed, 0 skipped"; exit 1')
    expect(ended.code).toBe(1)
    expect(ended.stdout).toContain('ci: lint ok')
    expect(lastLine(ended)).toBe('1 passed, 2 failed, 0 skipped')
  })

  it('counts a failure when npm test ended without counts', async () => {
    const ended = await ci('exit 0')
    expect(ended.code).toBe(1)
    expect(lastLine(ended)).toBe('0 passed, 1 failed, 0 skipped')
  })

  it('goes on without the clients that apt cannot bring', async () => {
    rmSync(join(checkout.dir, 'fake', 'mvn'))
    const ended = await ci(good)
    expect(ended.code).toBe(0)
    expect(ended.stdout).toContain('ci: maven could not be installed; its tests are skipped')
    expect(lastLine(ended)).toBe('12 passed, 0 failed, 3 skipped')
    const calls = readFileSync(join(checkout.dir, 'apt-calls'), 'utf8').trim().split('\n')
    expect(calls[0]).toMatch(/ update$/)
    expect(calls[1]).toMatch(/ install -y --no-install-recommends maven$/)
  })

  it('says what is skipped where there is no apt at all', async () => {
    for (const name of ['mvn', 'dig', 'apt-get']) rmSync(join(checkout.dir, 'fake', name))
    const ended = await ci(good)
    expect(ended.code).toBe(0)
    expect(ended.stdout).toContain(
      'no apt-get here; tests that need these packages are skipped: maven dnsutils',
    )
  })
})
