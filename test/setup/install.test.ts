import { existsSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { makeCheckout, plainEnv, run } from './checkout.ts'
import type { Checkout, Ended } from './checkout.ts'

const native = `node-${process.platform}-${process.arch}`

/** A lock file with one package, one optional one for another system, and the Node of this system. */
function lockFile(version: string): string {
  return JSON.stringify({
    packages: {
      '': { name: 'octroi', optionalDependencies: { [native]: '24.1.0', 'node-plan9-vax': '24.1.0' } },
      'node_modules/yaml': { version, integrity: `sha512-${version}` },
      [`node_modules/${native}`]: {
        version: '24.1.0',
        optional: true,
        os: process.platform,
        cpu: process.arch,
      },
      'node_modules/node-plan9-vax': { version: '24.1.0', optional: true, os: ['plan9'], cpu: ['vax'] },
    },
  })
}

/** Stands in for npm: notes its arguments and makes `node_modules`, or fails when told to. */
const fakeNpm = `
const { appendFileSync, mkdirSync, rmSync } = require('node:fs')
appendFileSync('npm-calls', process.argv.slice(2).join(' ') + '\\n')
console.log('added 1 package')
console.error('npm error code E404')
rmSync('node_modules', { recursive: true, force: true })
mkdirSync('node_modules')
process.exit(Number(process.env.FAKE_NPM_EXIT ?? 0))
`

describe('scripts/install-if-needed.js', () => {
  let checkout: Checkout

  beforeEach(() => {
    checkout = makeCheckout()
    checkout.write('package-lock.json', lockFile('2.9.1'))
    checkout.write('npm/npm-cli.js', fakeNpm)
    checkout.write('npm/package.json', '{}')
  })
  afterEach(() => checkout.remove())

  const install = (extra: NodeJS.ProcessEnv = {}): Promise<Ended> =>
    run([join(checkout.dir, 'scripts', 'install-if-needed.js')], {
      env: plainEnv({ npm_execpath: join(checkout.dir, 'npm', 'npm-cli.js'), ...extra }),
      cwd: '/',
    })
  const calls = (): string[] => {
    const log = join(checkout.dir, 'npm-calls')
    return existsSync(log) ? readFileSync(log, 'utf8').trim().split('\n') : []
  }

  it('installs once when node_modules is missing, then stays silent', async () => {
    const first = await install()
    expect(first).toMatchObject({ code: 0, stdout: '', stderr: 'octroi: installing dependencies (npm ci)\n' })
    expect(await install()).toEqual({ code: 0, signal: null, stdout: '', stderr: '' })
    expect(calls()).toHaveLength(1)
  })

  it('asks npm for development and optional packages in words, whatever NODE_ENV says', async () => {
    await install({ NODE_ENV: 'production' })
    expect(calls()[0]).toMatch(/^ci --include=dev --include=optional /)
  })

  it('installs again when the lock file changes', async () => {
    await install()
    checkout.write('package-lock.json', lockFile('2.9.2'))
    await install()
    expect(calls()).toHaveLength(2)
  })

  it('installs again when node_modules was deleted', async () => {
    await install()
    rmSync(join(checkout.dir, 'node_modules'), { recursive: true })
    await install()
    expect(calls()).toHaveLength(2)
  })

  it('shows what npm said, passes its code on and leaves no stamp when the installation fails', async () => {
    const failed = await install({ FAKE_NPM_EXIT: '3' })
    expect(failed.code).toBe(3)
    expect(failed.stderr).toContain('npm error code E404')
    expect(failed.stderr).toContain('added 1 package')
    await install()
    expect(calls()).toHaveLength(2)
  })

  const record = (change: (packages: Record<string, object>) => void): void => {
    const { packages } = JSON.parse(lockFile('2.9.1')) as { packages: Record<string, object> }
    delete packages['']
    delete packages['node_modules/node-plan9-vax']
    change(packages)
    checkout.write('node_modules/.package-lock.json', JSON.stringify({ packages }))
  }

  it('takes the word of an installation that npm itself made from this lock file', async () => {
    record(() => undefined)
    expect(await install()).toMatchObject({ code: 0, stderr: '' })
    expect(calls()).toEqual([])
  })

  const differences: [string, (packages: Record<string, object>) => void][] = [
    ['lacks a package', (packages) => delete packages['node_modules/yaml']],
    ['lacks the Node of this system', (packages) => delete packages[`node_modules/${native}`]],
    ['has another version', (packages) => (packages['node_modules/yaml'] = { version: '2.9.0' })],
    ['has other content', (p) => (p['node_modules/yaml'] = { version: '2.9.1', integrity: 'sha512-other' })],
    ['has a package too many', (packages) => (packages['node_modules/left-over'] = { version: '1.0.0' })],
  ]
  it.each(differences)('installs when npm made an installation that %s', async (_, change) => {
    record(change)
    await install()
    expect(calls()).toHaveLength(1)
  })
})
