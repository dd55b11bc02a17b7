import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { registerCheck } from '../../src/cli/check.ts'
import type { Records } from '../../src/cli/explain.ts'
import { runProgram } from '../../src/cli/program.ts'
import { configFolder } from '../helpers/config-files.ts'
import type { ConfigFolder } from '../helpers/config-files.ts'
import { memoryIo } from '../helpers/memory-io.ts'

async function octroi(
  argv: readonly string[],
  own: { env?: Record<string, string>; records?: Records } = {},
) {
  const { io, out, err } = memoryIo(own.env === undefined ? {} : { env: own.env })
  const authorities: string[] = []
  const group = registerCheck({
    makeAuthority: (folder) => Promise.resolve(void authorities.push(folder)),
    readRecords: () => Promise.resolve(own.records),
  })
  const code = await runProgram(argv, { io, groups: [group] })
  return { code, out: out.join('\n'), err: err.join('\n'), authorities }
}

const check = (files: ConfigFolder, ...more: string[]) =>
  octroi(['check', '--config', files.path('octroi.yaml'), ...more])

describe('octroi check', () => {
  it('says what a good configuration has', async () => {
    const files = configFolder('version: 1\ntemplates: { t: {} }\nsandboxes: { a: {}, b: {} }\n')
    expect(await check(files)).toMatchObject({
      code: 0,
      out: `${files.path('octroi.yaml')}: good: 2 sandboxes, 1 template, 0 accesses`,
      err: '',
    })
  })

  it('prints every problem with file, line, column and the spelling that works', async () => {
    const files = configFolder('version: 1\nsandboxs: {}\nsandboxes:\n  s: { template: t }\n')
    const path = files.path('octroi.yaml')
    expect(await check(files)).toMatchObject({
      code: 2,
      out: '',
      err: [
        `${path}:2:1: sandboxs: unknown key \`sandboxs\`; did you mean \`sandboxes\`?`,
        `${path}:4:18: sandboxes.s.template: there is no template \`t\``,
        `${path}: 2 problems`,
      ].join('\n'),
    })
  })

  it('prints JSON with the same', async () => {
    const { code, out } = await check(configFolder('version: 1\nbogus: 1\n'), '--json')
    expect(code).toBe(2)
    expect(JSON.parse(out)).toMatchObject({
      ok: false,
      problems: [{ line: 2, column: 1, path: 'bogus' }],
      warnings: [],
    })
  })

  it('is content with warnings', async () => {
    const files = configFolder(
      'version: 1\ncredentials: { c: { issuer: static, value: { env: NOT_SET } } }\n',
    )
    const { code, err } = await check(files)
    expect(code).toBe(0)
    expect(err).toMatch(/^warning: .*the credential `c` is dead: the variable `NOT_SET` is not set$/)
  })

  it('executes nothing', async () => {
    const files = configFolder('version: 1\n')
    const mark = files.path('mark')
    const command = JSON.stringify(['/bin/sh', '-c', `touch ${mark}`])
    files.write(
      'octroi.yaml',
      `version: 1\ncredentials: { c: { issuer: static, value: { command: ${command} } } }\n`,
    )
    expect((await check(files)).code).toBe(0)
    expect(existsSync(mark)).toBe(false)
    expect(existsSync(files.path('data'))).toBe(false)
  })

  it('escapes what would steer a terminal', async () => {
    const files = configFolder('version: 1\n"bad\\e[31m": 1\n')
    const { err } = await check(files)
    expect(err).not.toContain('\u001b')
    expect(err).toContain('\\u{1b}')
  })

  it('never takes a configuration from the working directory', async () => {
    const files = configFolder('version: 1\n')
    const { io, err } = memoryIo({ cwd: files.folder, env: { HOME: '/nonexistent' } })
    const group = registerCheck({
      makeAuthority: async () => {},
      readRecords: () => Promise.resolve(undefined),
    })
    expect(await runProgram(['check'], { io, groups: [group] })).toBe(2)
    expect(err.join()).toContain('octroi init')
  })
})

describe('octroi init', () => {
  it('writes a first configuration that is good, and has the CA made', async () => {
    const { folder, path } = configFolder('version: 1\n')
    const target = `${folder}/new`
    const { code, out, authorities } = await octroi(['init', target])
    expect(code).toBe(0)
    expect(authorities).toEqual([`${target}/data`])
    expect(statSync(path('new/octroi.yaml')).mode & 0o777).toBe(0o600)
    expect(statSync(path('new/data')).mode & 0o777).toBe(0o700)
    expect(out).toContain(`octroi serve --config ${target}/octroi.yaml`)
    const text = readFileSync(path('new/octroi.yaml'), 'utf8')
    expect(text).not.toMatch(/^root:/m)
    expect(text.match(/^ *#/gm)?.length).toBeGreaterThan(10)
    expect(existsSync(path('new/octroi.schema.json'))).toBe(true)
    expect((await octroi(['check', '--config', path('new/octroi.yaml')])).code).toBe(0)
  })

  it('goes where commands look when no folder is named', async () => {
    const { folder, path } = configFolder('version: 1\n')
    const env = { XDG_CONFIG_HOME: folder }
    expect((await octroi(['init'], { env })).code).toBe(0)
    expect(existsSync(path('octroi/octroi.yaml'))).toBe(true)
    expect((await octroi(['check'], { env })).code).toBe(0)
  })

  it('never replaces a file', async () => {
    const files = configFolder('version: 1\n')
    writeFileSync(files.path('octroi.yaml'), 'version: 1\n# mine\n')
    const { code, err, authorities } = await octroi(['init', files.folder])
    expect(code).toBe(1)
    expect(err).toContain('is there already')
    expect(readFileSync(files.path('octroi.yaml'), 'utf8')).toContain('# mine')
    expect(authorities).toEqual([])
  })
})
