import { mkdirSync, readdirSync, rmSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { makeCheckout, pretend, run } from './checkout.ts'
import type { Checkout, Ended } from './checkout.ts'

const installed = fileURLToPath(new URL('../../node_modules/', import.meta.url))
const top = `import { expect, it } from 'vitest'\n`

describe('npm test', () => {
  let checkout: Checkout

  beforeEach(() => {
    checkout = makeCheckout()
    checkout.write('package-lock.json', JSON.stringify({ packages: { '': {} } }))
    mkdirSync(join(checkout.dir, 'node_modules'))
    for (const name of readdirSync(installed)) {
      if (!name.startsWith('.')) symlinkSync(join(installed, name), join(checkout.dir, 'node_modules', name))
    }
    checkout.write('node_modules/.package-lock.json', JSON.stringify({ packages: {} }))
    checkout.write('vitest.config.ts', `export default { test: { include: ['test/**/*.test.ts'] } }\n`)
  })
  afterEach(() => checkout.remove())

  const script = (): string => join(checkout.dir, 'scripts', 'test.js')
  const test = (...args: string[]): Promise<Ended> => run([script(), ...args], { cwd: '/' })
  const lastLine = ({ stdout }: Ended): string | undefined => stdout.trimEnd().split('\n').at(-1)

  it('ends with the counts alone on the last line and 0 when everything passed', async () => {
    checkout.write(
      'test/a.test.ts',
      `${top}it('one', () => {})\nit.skip('two', () => {})\nit.todo('three')\n`,
    )
    const ended = await test()
    expect(ended.code).toBe(0)
    expect(lastLine(ended)).toBe('1 passed, 0 failed, 2 skipped')
  })

  it('ends with 1 and the number of failures when a test fails', async () => {
    checkout.write('test/a.test.ts', `${top}it('one', () => {})\nit('two', () => expect(1).toBe(2))\n`)
    const ended = await test()
    expect(ended.code).toBe(1)
    expect(lastLine(ended)).toBe('1 passed, 1 failed, 0 skipped')
  })

  it('counts a file that cannot be loaded as a failure', async () => {
    checkout.write('test/a.test.ts', `${top}it('one', () => {})\n`)
    checkout.write('test/b.test.ts', `import './absent.ts'\n`)
    const ended = await test()
    expect(ended.code).toBe(1)
    expect(lastLine(ended)).toBe('1 passed, 1 failed, 0 skipped')
  })

  it('counts an error outside the tests as a failure', async () => {
    checkout.write(
      'test/a.test.ts',
      `${top}it('one', async () => {\n  void Promise.reject(new TypeError('stray'))\n  await new Promise((r) => setTimeout(r, 50))\n})\n`,
    )
    const ended = await test()
    expect(ended.code).toBe(1)
    expect(lastLine(ended)).toBe('1 passed, 1 failed, 0 skipped')
  })

  it('fails when no test ran', async () => {
    const ended = await test()
    expect(ended.code).toBe(1)
    expect(lastLine(ended)).toBe('0 passed, 0 failed, 0 skipped')
  })

  it('fails with a count when vitest cannot even start', async () => {
    checkout.write('vitest.config.ts', `throw new TypeError('broken')\n`)
    const ended = await test()
    expect(ended.code).not.toBe(0)
    expect(lastLine(ended)).toBe('0 passed, 1 failed, 0 skipped')
  })

  it('passes other arguments to vitest', async () => {
    checkout.write('test/a.test.ts', `${top}it('alpha', () => {})\nit('beta', () => {})\n`)
    checkout.write('test/b.test.ts', `${top}it('alpha', () => {})\n`)
    expect(lastLine(await test('test/a.test.ts', '-t', 'alpha'))).toBe('1 passed, 0 failed, 1 skipped')
  })

  it('runs only test/proof with full counts when asked for the proof', async () => {
    checkout.write('test/a.test.ts', `${top}it('one', () => expect(1).toBe(2))\n`)
    checkout.write(
      'test/proof/b.test.ts',
      `${top}it('two', () => expect(process.env.OCTROI_PROOF).toBe('full'))\n`,
    )
    const ended = await test('--proof')
    expect(lastLine(ended)).toBe('1 passed, 0 failed, 0 skipped')
    expect(ended.code).toBe(0)
  })

  it('runs one part of the proof when it is named', async () => {
    checkout.write('test/proof/a.test.ts', `${top}it('one', () => expect(1).toBe(2))\n`)
    checkout.write('test/proof/b.test.ts', `${top}it('two', () => {})\n`)
    expect(lastLine(await test('--proof', 'test/proof/b'))).toBe('1 passed, 0 failed, 0 skipped')
  })

  it('refuses another major than 24', async () => {
    rmSync(join(checkout.dir, 'node_modules', `node-${process.platform}-${process.arch}`))
    const { code, stderr } = await run([...pretend(checkout, 'v26.1.0'), script()])
    expect(code).toBe(2)
    expect(stderr).toContain('needs Node.js 24, but this is v26.1.0')
  })
})
