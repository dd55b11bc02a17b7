import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { makeCheckout, pretend, run, start } from './checkout.ts'
import type { Checkout } from './checkout.ts'

/** Stands in for the program: says its arguments, drains for 200 ms at SIGTERM, then ends with 0. */
const server = `
import { writeFileSync } from 'node:fs'
const hold = setInterval(() => {}, 1000)
process.on('SIGTERM', () => {
  clearInterval(hold)
  setTimeout(() => {
    writeFileSync('drained', '')
    process.exit(0)
  }, 200)
})
console.log(JSON.stringify({ pid: process.pid, args: process.argv.slice(2) }))
`

describe('npm start', () => {
  let checkout: Checkout

  beforeEach(() => {
    checkout = makeCheckout()
    checkout.write('src/main.ts', server)
    checkout.write('package-lock.json', JSON.stringify({ packages: { '': {} } }))
    checkout.write('node_modules/.package-lock.json', JSON.stringify({ packages: {} }))
    checkout.write(
      'package.json',
      JSON.stringify({ name: 'octroi', type: 'module', scripts: { start: 'exec node scripts/start.js' } }),
    )
  })
  afterEach(() => checkout.remove())

  const script = (): string => join(checkout.dir, 'scripts', 'start.js')
  const told = (stdout: string): { pid: number; args: string[] } =>
    JSON.parse(stdout.split('\n').find((line) => line.startsWith('{')) ?? '{}') as {
      pid: number
      args: string[]
    }

  it('serves with the configuration of the checkout from any folder and adds the given arguments', async () => {
    const { child, ended, shown } = start([script(), '--json'], { cwd: '/' })
    await shown('pid')
    child.kill('SIGKILL')
    const config = join(checkout.dir, 'config', 'octroi.yaml')
    expect(told((await ended).stdout).args).toEqual(['serve', '--config', config, '--json'])
  })

  it.each([['--config', 'other.yaml'], ['--config=other.yaml']])(
    'lets a configuration of the caller win (%s)',
    async (...given) => {
      const { child, ended, shown } = start([script(), ...given.filter((arg) => arg !== undefined)])
      await shown('pid')
      child.kill('SIGKILL')
      expect(told((await ended).stdout).args).toEqual(['serve', ...given])
    },
  )

  it.each(['v20.19.0', 'v26.1.0'])(
    'serves under the bundled Node 24 when started by Node %s',
    async (version) => {
      checkout.bundleNode()
      const { child, ended, shown } = start([...pretend(checkout, version), script()], { cwd: checkout.dir })
      await shown('pid')
      child.kill('SIGTERM')
      const { code, stdout } = await ended
      expect(code).toBe(0)
      expect(told(stdout).pid).not.toBe(child.pid)
      expect(existsSync(join(checkout.dir, 'drained'))).toBe(true)
    },
  )

  it('refuses another major than 24', async () => {
    const { code, stderr } = await run([...pretend(checkout, 'v26.1.0'), script()])
    expect(code).toBe(2)
    expect(stderr).toContain('needs Node.js 24, but this is v26.1.0')
  })

  it('drains and leaves no process behind when npm gets SIGTERM', async () => {
    checkout.bundleNode()
    const { child, ended, shown } = start(['start'], { command: 'npm', cwd: checkout.dir })
    let drainedFirst = false
    child.on('exit', () => (drainedFirst = existsSync(join(checkout.dir, 'drained'))))
    await shown('pid')
    child.kill('SIGTERM')
    const { stdout } = await ended
    expect(drainedFirst).toBe(true)
    expect(() => process.kill(told(stdout).pid, 0)).toThrow('ESRCH')
  })
})
