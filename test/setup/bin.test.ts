import { rmSync, symlinkSync } from 'node:fs'
import { constants } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { makeCheckout, pretend, run, start } from './checkout.ts'
import type { Checkout } from './checkout.ts'

/** A program that says under what it runs; `{ pid, execPath, version, args }` as one JSON line. */
const probe = `
const { pid, execPath, version, execArgv } = process
const told: object = { pid, execPath, version, execArgv, args: process.argv.slice(2) }
console.log(JSON.stringify(told))
`

/** A program that waits, says which signals it got, and ends with 7 at SIGTERM. */
const waiter = `
for (const name of ['SIGINT', 'SIGHUP', 'SIGUSR2'] as const) process.on(name, () => console.log('got ' + name))
process.on('SIGTERM', () => process.exit(7))
setInterval(() => {}, 1000)
console.log('ready ' + process.pid)
`

const kindOfWarning = `
process.emitWarning('early', 'ExperimentalWarning')
process.emitWarning('early', { type: 'ExperimentalWarning' })
process.emitWarning('kept', 'DeprecationWarning', 'DEP9999')
`

describe('bin/octroi.js', () => {
  let checkout: Checkout
  let bin: string

  beforeEach(() => {
    checkout = makeCheckout()
    bin = join(checkout.dir, 'bin', 'octroi.js')
  })
  afterEach(() => checkout.remove())

  it.each(['v24.0.0', 'v24.22.3', 'v26.1.0'])('runs in its own process on Node %s', async (version) => {
    checkout.write('src/main.ts', probe)
    checkout.bundleNode()
    const { child, ended } = start([...pretend(checkout, version), bin, 'check', '--json'])
    const { code, stdout, stderr } = await ended
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    expect(JSON.parse(stdout)).toMatchObject({ pid: child.pid, version, args: ['check', '--json'] })
  })

  it.each(['v18.20.0', 'v20.19.0', 'v23.11.1'])(
    'runs under the bundled Node 24 on Node %s',
    async (version) => {
      checkout.write('src/main.ts', probe)
      checkout.bundleNode()
      const { code, stdout, stderr } = await run([...pretend(checkout, version), bin, 'run', '--', 'a b', ''])
      expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
      expect(JSON.parse(stdout)).toMatchObject({ execPath: process.execPath, args: ['run', '--', 'a b', ''] })
    },
  )

  it('finds the bundled Node where npm hoisted it, and the compiled program of an installed package', async () => {
    const home = 'app/node_modules/octroi'
    checkout.bundleNode({ under: 'app' })
    checkout.write(`${home}/package.json`, JSON.stringify({ name: 'octroi', type: 'module' }))
    symlinkSync(join(checkout.dir, 'bin'), join(checkout.dir, home, 'bin'))
    checkout.write(`${home}/dist/main.js`, `console.log('compiled')`)
    const link = join(checkout.dir, home, 'bin', 'octroi.js')
    const options = ['--preserve-symlinks', '--preserve-symlinks-main', ...pretend(checkout, 'v20.19.0')]
    expect(await run([...options, link])).toMatchObject({ code: 0, stdout: 'compiled\n', stderr: '' })
  })

  it('prefers the sources of a checkout over an earlier build', async () => {
    checkout.write('src/main.ts', `console.log('sources')`)
    checkout.write('dist/main.js', `console.log('build')`)
    expect(await run([bin])).toMatchObject({ code: 0, stdout: 'sources\n' })
  })

  it('exits with 2 and says what to install when there is no Node 24', async () => {
    checkout.write('src/main.ts', probe)
    const { code, stdout, stderr } = await run([...pretend(checkout, 'v20.19.0'), bin])
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
    expect(stderr).toContain('needs Node.js 24 or newer, but this is v20.19.0')
    expect(stderr).toContain('npm ci --include=optional')
  })

  it('does not take a bundled Node of another major', async () => {
    checkout.write('src/main.ts', probe)
    checkout.bundleNode({ version: '22.9.0' })
    expect(await run([...pretend(checkout, 'v20.19.0'), bin])).toMatchObject({ code: 2, stdout: '' })
  })

  it('exits with 2 when the bundled Node cannot be started', async () => {
    checkout.write('src/main.ts', probe)
    const binary = checkout.bundleNode()
    rmSync(binary)
    checkout.write(binary.slice(checkout.dir.length), 'not a program', 0o644)
    const { code, stderr } = await run([...pretend(checkout, 'v20.19.0'), bin])
    expect(code).toBe(2)
    expect(stderr).toContain(`cannot start ${binary}`)
  })

  it('exits with 2 when there is neither a source nor a build to start', async () => {
    const { code, stderr } = await run([bin])
    expect(code).toBe(2)
    expect(stderr).toContain('npm run build')
  })

  it.each(['v20.19.0', 'v24.22.3'])('passes the exit code on (Node %s)', async (version) => {
    checkout.write('src/main.ts', 'process.exitCode = 42')
    checkout.bundleNode()
    expect(await run([...pretend(checkout, version), bin])).toMatchObject({ code: 42, signal: null })
  })

  it('turns the death of the program by a signal into 128 + n', async () => {
    checkout.write('src/main.ts', `process.kill(process.pid, 'SIGKILL')`)
    checkout.bundleNode()
    const { code } = await run([...pretend(checkout, 'v20.19.0'), bin])
    expect(code).toBe(128 + constants.signals.SIGKILL)
  })

  it('passes signals on to the program under the bundled Node and waits for its end', async () => {
    checkout.write('src/main.ts', waiter)
    checkout.bundleNode()
    const { child, ended, shown } = start([...pretend(checkout, 'v20.19.0'), bin])
    await shown('ready')
    for (const signal of ['SIGHUP', 'SIGUSR2', 'SIGINT'] as const) {
      child.kill(signal)
      await shown(`got ${signal}`)
    }
    child.kill('SIGTERM')
    const { code, stdout } = await ended
    expect(code).toBe(7)
    const pid = Number(/ready (\d+)/.exec(stdout)?.[1])
    expect(pid).not.toBe(child.pid)
    expect(() => process.kill(pid, 0)).toThrow('ESRCH')
  })

  it.each(['v20.19.0', 'v24.0.0'])(
    'keeps experimental warnings off stderr and no others (Node %s)',
    async (version) => {
      checkout.write('src/main.ts', kindOfWarning)
      checkout.bundleNode()
      const { stderr } = await run([...pretend(checkout, version), bin])
      expect(stderr).not.toContain('early')
      expect(stderr).toContain('DEP9999')
    },
  )
})
