import { describe, expect, it } from 'vitest'
import type { LifecycleAccess } from '../../src/cli/lifecycle-access.ts'
import { registerGrant } from '../../src/cli/grant.ts'
import { runProgram } from '../../src/cli/program.ts'
import type { RemoteBroker } from '../../src/cli/remote.ts'
import { registerRevoke } from '../../src/cli/revoke.ts'
import { registerSandbox } from '../../src/cli/sandbox.ts'
import type { SandboxReport } from '../../src/identity/lifecycle-model.ts'
import { lifecycleBench } from '../helpers/lifecycle-bench.ts'
import { memoryIo } from '../helpers/memory-io.ts'

/** The command line over a broker that runs, or over its store. */
function cli(where: 'running' | 'stopped' = 'running') {
  const bench = lifecycleBench()
  const calls: string[] = []
  const notAsked = () => Promise.reject(new TypeError('not part of this test'))
  const remote: RemoteBroker = {
    ...bench.lifecycle,
    isRunning: () => Promise.resolve(where === 'running'),
    status: notAsked,
    reload: notAsked,
    secretsChanged: notAsked,
    sandboxSocket: notAsked,
    attach: notAsked,
    handOver: notAsked,
  }
  const access: LifecycleAccess = {
    remote: (configPath) => Promise.resolve((calls.push(`remote ${configPath}`), remote)),
    offlineLifecycle: () => {
      calls.push('open')
      return Promise.resolve({
        lifecycle: bench.lifecycle,
        close: () => Promise.resolve(void calls.push('close')),
      })
    },
  }
  const groups = [registerSandbox(access), registerRevoke(access), registerGrant(access)]
  return {
    bench,
    calls,
    async run(...args: string[]) {
      const { io, out, err } = memoryIo()
      const code = await runProgram(['--config', '/c.yaml', ...args], { io, groups })
      return { code, out: out.join('\n'), err: err.join('\n') }
    },
  }
}

describe('octroi sandbox', () => {
  it('creates a sandbox and prints the token once, with the next step', async () => {
    const { run, bench } = cli()
    const made = await run(
      'sandbox',
      'create',
      '--template',
      'coder',
      '--agent',
      'a7',
      '--ttl',
      '2h',
      '--name',
      's1',
    )
    expect(made.code).toBe(0)
    expect(made.out).toMatch(/^token {5}[\w-]{43} {3}\(shown this once\)$/m)
    expect(made.out).toContain('expires   2030-01-01T02:00:00.000Z')
    expect(made.out).toContain('octroi env --sandbox s1')
    const token = /^token +(\S+)/m.exec(made.out)?.[1] ?? ''
    expect(await bench.accepts('s1', token)).toBe(true)
    for (const args of [['list'], ['show', 's1'], ['list', '--json'], ['show', 's1', '--json']])
      expect((await run('sandbox', ...args)).out).not.toContain(token)
  })

  it('prints JSON that a script can read', async () => {
    const { run } = cli()
    const made = await run('sandbox', 'create', '--template', 'coder', '--name', 's1', '--json')
    expect(JSON.parse(made.out)).toMatchObject({ sandbox: { name: 's1', state: 'active' } })
    const list = JSON.parse((await run('sandbox', 'list', '--json')).out) as SandboxReport[]
    expect(list.map(({ name }) => name)).toEqual(['s1'])
    expect(JSON.parse((await run('sandbox', 'pause', 's1', '--json')).out)).toMatchObject({ state: 'paused' })
    expect(JSON.parse((await run('sandbox', 'destroy', 's1', '--json')).out)).toEqual({ destroyed: 's1' })
  })

  it('lists in aligned columns and says what to do when there is nothing', async () => {
    const { run } = cli()
    expect((await run('sandbox', 'list')).out).toContain('octroi sandbox create --template NAME')
    await run('sandbox', 'create', '--template', 'endless', '--name', 'a', '--run', 'r1')
    await run('sandbox', 'create', '--template', 'coder', '--name', 'longer-name')
    const { out } = await run('sandbox', 'list')
    expect(out.split('\n')).toEqual([
      'NAME         STATE   ORIGIN   TENANT   TEMPLATE  AGENT  RUN          EXPIRES',
      'a            active  runtime  default  endless   -      r1           never',
      'longer-name  active  runtime  web      coder     -      longer-name  2030-01-01T04:00:00.000Z',
    ])
  })

  it('pauses, resumes, rotates and destroys', async () => {
    const { run, bench } = cli()
    await run('sandbox', 'create', '--template', 'coder', '--name', 's1')
    expect((await run('sandbox', 'pause', 's1')).out).toBe('paused s1')
    expect((await run('sandbox', 'show', 's1')).out).toContain('state     paused since 2030-01-01')
    expect((await run('sandbox', 'resume', 's1')).out).toBe('resumed s1')
    const rotated = await run('sandbox', 'rotate-token', 's1', '--overlap', '0s')
    expect(rotated.out).toContain('valid until 2030-01-01T00:00:00.000Z')
    expect(await bench.store.tokens()).toHaveLength(1)
    expect((await run('sandbox', 'destroy', 's1')).out).toBe('destroyed s1')
  })

  it('works on the store with the broker stopped, and closes it also after a failure', async () => {
    const { run, calls } = cli('stopped')
    expect((await run('sandbox', 'create', '--template', 'coder', '--name', 's1')).code).toBe(0)
    expect((await run('sandbox', 'destroy', 's2')).code).toBe(1)
    expect(calls).toEqual(['remote /c.yaml', 'open', 'close', 'remote /c.yaml', 'open', 'close'])
  })

  it.each([
    ['no template', ['create'], 2, "required option '--template <name>' not specified"],
    ['a bad duration', ['create', '--template', 'coder', '--ttl', '2 hours'], 2, '--ttl: a duration is'],
    ['a near duration', ['create', '--template', 'coder', '--ttl', '2 H'], 2, 'did you mean 2h?'],
    ['a bad name', ['create', '--template', 'coder', '--name', 'A B'], 2, 'a sandbox name has'],
    ['too long a life', ['create', '--template', 'coder', '--ttl', '5h'], 1, '14400 s at most'],
    ['an unknown sandbox', ['pause', 's9'], 1, 'octroi: no sandbox has that name; there is none'],
    ['an unknown word', ['stop', 's9'], 2, "unknown command 'stop'"],
    ['an unknown option', ['list', '--jsno'], 2, 'Did you mean --json?'],
    ['too many names', ['pause', 'a', 'b'], 2, 'too many arguments'],
  ])('says what is wrong with %s', async (_case, args, code, text) => {
    const { run } = cli()
    const answer = await run('sandbox', ...args)
    expect([answer.code, answer.out]).toEqual([code, ''])
    expect(answer.err).toContain(text)
  })
})

describe('octroi revoke', () => {
  it('revokes a handle and says until when the value stays valid upstream', async () => {
    const { run, bench } = cli()
    await run('sandbox', 'create', '--template', 'coder', '--name', 's1')
    const { id, placeholder } = await bench.addHandle('s1', 'openai')
    const { code, out } = await run('revoke', 'handle', placeholder)
    expect([code, out]).toEqual([
      0,
      `revoked handle ${id}\nOctroi sends nothing for it any more; the value of openai-key is static and stays valid ` +
        'upstream until you rotate it there.',
    ])
    expect((await run('sandbox', 'show', 's1')).out).toContain(`handle    ${id}  access openai  revoked`)
  })

  it('revokes a sandbox and counts what died', async () => {
    const { run, bench } = cli('stopped')
    await run('sandbox', 'create', '--template', 'coder', '--name', 's1')
    await bench.addHandle('s1', 'openai')
    const { out } = await run('revoke', 'sandbox', 's1')
    expect(out).toMatch(/^revoked sandbox s1 \(paused; placeholders: 1, tokens: 1\)\n/)
    const again = await run('revoke', 'credential', 'openai-key', '--json')
    expect(JSON.parse(again.out)).toMatchObject({ kind: 'credential', target: 'openai-key' })
  })

  it('takes back what can be taken back, and says what to do about the rest', async () => {
    const { run, bench } = cli()
    await run('sandbox', 'create', '--template', 'coder', '--name', 's1')
    const { id } = await bench.addHandle('s1', 'openai')
    await run('revoke', 'credential', 'openai-key')
    const undone = await run('revoke', 'credential', 'openai-key', '--undo')
    expect(undone.out).toBe('reinstated credential openai-key\nOctroi sends it again.')
    expect((await run('revoke', 'handle', id, '--undo')).err).toContain('`octroi grant` makes a new one')
    await run('revoke', 'handle', id)
    const granted = await run('grant', 's1', 'openai')
    expect(granted.out).toMatch(/^granted openai to s1, handle [0-9a-f]{32}\noctroi env --sandbox s1 prints/)
    const live = (await bench.lifecycle.show('s1')).handles.filter(({ state }) => state === 'live')
    expect(granted.out).toContain(live[0]?.id ?? 'none')
    const again = await run('grant', 's1', 'openai', '--json')
    expect([again.code, again.err]).toEqual([1, expect.stringContaining('revoke that first')])
  })

  it('refuses a kind there is not, and an unknown target without repeating it', async () => {
    const { run } = cli()
    const kind = await run('revoke', 'token', 'x')
    expect([kind.code, kind.err]).toEqual([2, expect.stringContaining('Allowed choices are handle, lease')])
    const target = await run('revoke', 'handle', 'sk-live-secret')
    expect([target.code, target.err]).toEqual([1, 'octroi: no handle has that id or placeholder'])
  })
})
