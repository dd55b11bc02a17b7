import { readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { generateKeyPairSync } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { runProgram } from '../../src/cli/program.ts'
import { registerSecret } from '../../src/cli/secret.ts'
import { openSeal } from '../../src/store/seal.ts'
import { openSqliteStore } from '../../src/store/sqlite.ts'
import { memoryIo } from '../helpers/memory-io.ts'
import { stateFolder } from '../helpers/state-folder.ts'

const value = 'sk-live-4fJq9ZkPw81mC2'

function setup(isRunning = false) {
  const folder = stateFolder()
  let told = 0
  const access = {
    stateFolder: () => Promise.resolve(folder),
    notifyBroker: () => {
      told += 1
      return Promise.resolve(isRunning)
    },
  }
  const run = async (stdin: string, ...argv: string[]) => {
    const io = memoryIo({
      env: { OCTROI_CONFIG: '/etc/o.yaml' },
      cwd: folder,
      readStdin: () => Promise.resolve(stdin),
    })
    const code = await runProgram(['secret', ...argv], { io: io.io, groups: [registerSecret(access)] })
    return { code, text: [...io.out, ...io.err].join('\n') }
  }
  const stored = async (name: string): Promise<string | undefined> => {
    const store = await openSqliteStore({ folder })
    const record = (await store.secrets()).find((one) => one.name === name)
    await store.close()
    return record === undefined ? undefined : (await openSeal(folder)).open(record.sealed)
  }
  return { folder, run, stored, told: () => told }
}

describe('octroi secret', () => {
  it('stores what stdin holds, sealed, and shows its length alone', async () => {
    const { folder, run, stored, told } = setup()
    const { code, text } = await run(`${value}\n`, 'set', 'openai')
    expect(code).toBe(0)
    expect(text).toBe('secret openai: version 1, 22 characters\nno broker is running; the next start uses it')
    expect(await stored('openai')).toBe(value)
    expect(told()).toBe(1)
    for (const file of readdirSync(folder))
      expect(readFileSync(join(folder, file)).includes(value)).toBe(false)
  })

  it('tells the running broker', async () => {
    const { run } = setup(true)
    expect((await run(value, 'set', 'openai')).text).toContain('the running broker uses it from now on')
  })

  it('reads a file, replaces a value, and counts versions', async () => {
    const { folder, run, stored } = setup()
    writeFileSync(join(folder, 'key.txt'), `${value}-2\r\n`)
    await run(value, 'set', 'k')
    expect((await run('', 'set', 'k', '--file', 'key.txt')).text).toContain('version 2')
    expect(await stored('k')).toBe(`${value}-2`)
    const list = await run('', 'list')
    expect(list.text).toMatch(/^NAME +VERSION +CHANGED\nk +2 +20\d\d-/)
    expect(list.text).not.toContain('sk-live')
    expect((await run('', 'list', '--json')).text).toMatch(
      /^\[\{"name":"k","version":2,"updated_at":"[-0-9T:.]+Z"\}\]$/,
    )
  })

  it('rotates only what is there, and only to another value', async () => {
    const { run, stored } = setup()
    expect(await run(value, 'rotate', 'k')).toMatchObject({
      code: 1,
      text: expect.stringContaining('no secret k'),
    })
    await run(value, 'set', 'k')
    expect(await run(value, 'rotate', 'k')).toMatchObject({
      code: 1,
      text: expect.stringContaining('is the one'),
    })
    expect((await run(`${value}x`, 'rotate', 'k')).code).toBe(0)
    expect(await stored('k')).toBe(`${value}x`)
  })

  it('removes a secret and says that it stays valid upstream', async () => {
    const { run, stored } = setup()
    expect((await run('', 'rm', 'k')).code).toBe(1)
    await run(value, 'set', 'k')
    expect((await run('', 'rm', 'k')).text).toContain('stays valid upstream')
    expect(await stored('k')).toBeUndefined()
    expect((await run('', 'list')).text).toContain('no secrets yet')
  })

  it('takes no value as an argument', async () => {
    const { run, stored } = setup()
    expect((await run('', 'set', 'k', value)).code).toBe(2)
    expect(await stored('k')).toBeUndefined()
  })

  const refused: [string, string, RegExp][] = [
    ['nothing', '', /missing or empty/],
    ['the word undefined', 'undefined\n', /missing or empty/],
    ['two lines', 'a-value-of-some-length\nsecond', /line break/],
    ['NUL', 'a-value-of-some-length\0', /control character/],
    ['a leading space', ' a-value-of-some-length', /white space/],
    ['other alphabets', 'a-value-of-some-łength', /ISO 8859-1/],
    ['64 KiB', 'x'.repeat(70_000), /longer than/],
  ]
  for (const [name, text, message] of refused) {
    it(`refuses ${name} and stores nothing`, async () => {
      const { run, stored } = setup()
      expect(await run(text, 'set', 'k')).toMatchObject({ code: 2, text: expect.stringMatching(message) })
      expect(await stored('k')).toBeUndefined()
    })
  }

  it('takes a private key with its lines, and warns of a short value', async () => {
    const { run, stored } = setup()
    const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
    const pem = privateKey.export({ type: 'pkcs8', format: 'pem' }).toString()
    expect((await run(pem, 'set', 'app')).code).toBe(0)
    expect(`${await stored('app')}\n`).toBe(pem)
    expect((await run('123456', 'set', 'pin')).text).toContain('allow_short: true')
  })

  it('refuses a name that could be something else', async () => {
    const { run } = setup()
    for (const name of ['../x', 'a b', '', 'x'.repeat(200)])
      expect((await run(value, 'set', name)).code).toBe(2)
  })
})
