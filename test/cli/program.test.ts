import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import type { Io, Register } from '../../src/cli/io.ts'
import { runProgram } from '../../src/cli/program.ts'
import { OperatorError, Refusal } from '../../src/core/errors.ts'
import { memoryIo } from '../helpers/memory-io.ts'
import { stateFolder } from '../helpers/state-folder.ts'

/** Commands that show what the program gives them. */
const probe: Register = (program, context) => {
  program.command('where').action(
    context.run(() => {
      context.io.out(context.configPath())
      return Promise.resolve(0)
    }),
  )
  program
    .command('launch')
    .option('--sandbox <name>')
    .argument('<command...>')
    .passThroughOptions()
    .action(
      context.run((command: string[]) => {
        context.io.out([context.configPath(), ...command].join(' '))
        return Promise.resolve(77)
      }),
    )
  program
    .command('fail')
    .argument('<how>')
    .action(
      context.run((how: string): Promise<number> => {
        if (how === 'operator') throw new OperatorError('the disk is full')
        if (how === 'config') throw new OperatorError('a.yaml:1:1: bad', { exitCode: 2 })
        if (how === 'refusal') throw new Refusal('audit_unavailable', { detail: 'queue full' })
        throw new TypeError('bug')
      }),
    )
}

async function run(args: readonly string[], own: Partial<Omit<Io, 'out' | 'err'>> = {}) {
  const { io, out, err } = memoryIo(own)
  const code = await runProgram(args, { io, groups: [probe] })
  return { code, out: out.join('\n'), err: err.join('\n') }
}

/** A home with a configuration in the usual place; returns the home and the file. */
function home() {
  const folder = stateFolder()
  mkdirSync(join(folder, '.config', 'octroi'), { recursive: true })
  const file = join(folder, '.config', 'octroi', 'octroi.yaml')
  writeFileSync(file, 'version: 1\n')
  return { folder, file }
}

describe('octroi: which configuration', () => {
  it.each([
    ['before the command', ['--config', 'a.yaml', 'where']],
    ['after the command', ['where', '--config', 'a.yaml']],
    ['with an equals sign', ['where', '--config=a.yaml']],
  ])('takes --config %s, over OCTROI_CONFIG, relative to where it was typed', async (_case, args) => {
    const { out } = await run(args, { cwd: '/srv', env: { OCTROI_CONFIG: '/other.yaml' } })
    expect(out).toBe('/srv/a.yaml')
  })

  it('takes OCTROI_CONFIG, then the XDG folder, and ignores a relative XDG folder', async () => {
    const { folder, file } = home()
    expect((await run(['where'], { env: { OCTROI_CONFIG: '/b.yaml', HOME: folder } })).out).toBe('/b.yaml')
    expect((await run(['where'], { env: { OCTROI_CONFIG: '', HOME: folder } })).out).toBe(file)
    const xdg = join(folder, '.config')
    expect((await run(['where'], { env: { XDG_CONFIG_HOME: xdg, HOME: '/nowhere' } })).out).toBe(file)
    expect(
      (await run(['where'], { cwd: folder, env: { XDG_CONFIG_HOME: '.config', HOME: folder } })).out,
    ).toBe(file)
  })

  it('never takes one from the working directory, and says where it looked', async () => {
    const folder = stateFolder()
    for (const name of ['octroi.yaml', '.octroi.yaml']) writeFileSync(join(folder, name), 'version: 1\n')
    mkdirSync(join(folder, 'config'))
    writeFileSync(join(folder, 'config', 'octroi.yaml'), 'version: 1\n')
    const answer = await run(['where'], { cwd: folder, env: { HOME: '/nowhere' } })
    expect([answer.code, answer.out]).toEqual([2, ''])
    expect(answer.err).toContain(
      '/nowhere/.config/octroi/octroi.yaml and /etc/octroi/octroi.yaml do not exist',
    )
    expect(answer.err).toContain('octroi init')
  })
})

describe('octroi: command line', () => {
  it('leaves options of a launched command alone, with and without --', async () => {
    for (const dashes of [[], ['--']]) {
      const args = [
        'launch',
        '--config',
        '/a.yaml',
        '--sandbox',
        's',
        ...dashes,
        'npx',
        '--config',
        'b',
        '-y',
        '--help',
      ]
      expect(await run(args)).toMatchObject({ code: 77, out: '/a.yaml npx --config b -y --help' })
    }
  })

  it('ends help and version with 0', async () => {
    const help = await run(['--help'])
    expect([help.code, help.err]).toEqual([0, ''])
    expect(help.out).toContain('Exit codes: 0 good, 1 denied or failed, 2 wrong usage or configuration.')
    expect((await run(['where', '--help'])).code).toBe(0)
    const version = await run(['--version'])
    expect([version.code, version.out]).toEqual([0, expect.stringMatching(/^\d+\.\d+\.\d+/)])
  })

  it.each([
    ['nothing', [], 'Usage: octroi'],
    ['an unknown command', ['wher'], "octroi: unknown command 'wher'\n(Did you mean where?)"],
    ['an unknown option', ['where', '--nope'], "octroi: unknown option '--nope'"],
    ['a missing argument', ['fail'], "octroi: missing required argument 'how'"],
    [
      'an option without its value',
      ['where', '--config'],
      "octroi: option '--config <file>' argument missing",
    ],
    ['an escape sequence', ['\u001b[2Jx'], String.raw`unknown command '\u{1b}[2Jx'`],
  ])('ends %s with 2 and a sentence on standard error', async (_case, args, text) => {
    const answer = await run(args)
    expect([answer.code, answer.out]).toEqual([2, ''])
    expect(answer.err).toContain(text)
    expect(answer.err).not.toMatch(/[\u001b]/)
  })

  it.each([
    ['operator', 1, 'octroi: the disk is full'],
    ['config', 2, 'octroi: a.yaml:1:1: bad'],
    ['refusal', 1, 'octroi: queue full (audit_unavailable)'],
    ['bug', 1, 'octroi: unexpected failure: bug\noctroi: OCTROI_DEBUG=1 shows where'],
  ])('turns a failure (%s) into exit code %d and a sentence, without a stack', async (how, code, text) => {
    expect(await run(['fail', how])).toEqual({ code, out: '', err: text })
  })

  it('shows the stack of a bug when asked', async () => {
    const { err } = await run(['fail', 'bug'], { env: { OCTROI_DEBUG: '1' } })
    expect(err).toMatch(/TypeError: bug\n {4}at /)
  })
})
