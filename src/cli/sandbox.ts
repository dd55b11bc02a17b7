import type { Command } from 'commander'
import type { Lifecycle, SandboxReport } from '../identity/lifecycle-model.ts'
import type { CommandContext, Io, Register } from './io.ts'
import { durationOption, withLifecycle } from './lifecycle-access.ts'
import type { LifecycleAccess } from './lifecycle-access.ts'
import { printable, tableLines } from './table.ts'

interface Output {
  readonly json?: true
}

interface CreateOptions extends Output {
  readonly template: string
  readonly name?: string
  readonly agent?: string
  readonly run?: string
  readonly ttl?: string
}

interface Commands {
  readonly group: Command
  readonly context: CommandContext
  readonly within: <T>(use: (lifecycle: Lifecycle) => Promise<T>) => Promise<T>
}

/** `octroi sandbox …`: the life cycle, over the running broker or, with it stopped, on the store. */
export function registerSandbox(access: LifecycleAccess): Register {
  return (program, context) => {
    const group = program
      .command('sandbox')
      .description('make, look at, pause and end sandboxes')
      .addHelpText(
        'after',
        '\nWorks with the broker stopped too; its changes are then in force from the next start.',
      )
    const commands: Commands = {
      group,
      context,
      within: (use) => withLifecycle({ access, configPath: context.configPath() }, use),
    }
    addCreate(commands)
    addListAndShow(commands)
    addStateCommands(commands)
    addRotate(commands)
  }
}

function addCreate({ group, context, within }: Commands): void {
  group
    .command('create')
    .description('make a sandbox from a template; prints its token, this once')
    .requiredOption('--template <name>', 'template of the configuration')
    .option('--name <name>', 'name of the sandbox (default: made from the template)')
    .option('--agent <label>', 'agent that the sandbox works for; events carry it')
    .option('--run <label>', 'run that events are grouped by (default: the name)')
    .option('--ttl <duration>', 'life, such as 2h (default and most: the max_ttl of the template)')
    .option('--json', 'JSON instead of text')
    .action(
      context.run(async (options: CreateOptions) => {
        const { template, name, agent, run } = options
        const ttlMs = durationOption('--ttl', options.ttl)
        const request = { template, name, agent, run, ttlMs }
        const made = await within((lifecycle) => lifecycle.create(request))
        if (options.json) context.io.out(JSON.stringify(made))
        else {
          printSandbox(context.io, made.sandbox)
          context.io.out(`token     ${made.token}   (shown this once)`)
          context.io.out(`next      octroi env --sandbox ${made.sandbox.name}`)
        }
        return 0
      }),
    )
}

function addListAndShow({ group, context, within }: Commands): void {
  group
    .command('list')
    .description('the living sandboxes')
    .option('--json', 'JSON instead of text')
    .action(
      context.run(async (options: Output) => {
        const all = await within((lifecycle) => lifecycle.list())
        if (options.json) context.io.out(JSON.stringify(all))
        else printList(context.io, all)
        return 0
      }),
    )
  group
    .command('show')
    .description('one sandbox with its placeholders by id')
    .argument('<name>', 'name of the sandbox')
    .option('--json', 'JSON instead of text')
    .action(
      context.run(async (name: string, options: Output) => {
        const sandbox = await within((lifecycle) => lifecycle.show(name))
        if (options.json) context.io.out(JSON.stringify(sandbox))
        else printSandbox(context.io, sandbox)
        return 0
      }),
    )
}

function addStateCommands({ group, context, within }: Commands): void {
  const add = (
    word: string,
    description: string,
    act: (lifecycle: Lifecycle, name: string) => Promise<{ json: object; text: string }>,
  ): void => {
    group
      .command(word)
      .description(description)
      .argument('<name>', 'name of the sandbox')
      .option('--json', 'JSON instead of text')
      .action(
        context.run(async (name: string, options: Output) => {
          const { json, text } = await within((lifecycle) => act(lifecycle, name))
          context.io.out(options.json ? JSON.stringify(json) : text)
          return 0
        }),
      )
  }
  add('pause', 'refuse everything it asks, until resume', async (lifecycle, name) => {
    return { json: await lifecycle.pause(name), text: `paused ${name}` }
  })
  add('resume', 'end a pause', async (lifecycle, name) => {
    return { json: await lifecycle.resume(name), text: `resumed ${name}` }
  })
  add(
    'destroy',
    'end it for good: token and placeholders die, its id is never used again',
    async (lifecycle, name) => {
      await lifecycle.destroy(name)
      return { json: { destroyed: name }, text: `destroyed ${name}` }
    },
  )
}

function addRotate({ group, context, within }: Commands): void {
  group
    .command('rotate-token')
    .description('give it a new token; the old one stays valid for the overlap')
    .argument('<name>', 'name of the sandbox')
    .option('--overlap <duration>', 'how long the old token is accepted too, 0s to 24h', '60s')
    .option('--json', 'JSON instead of text')
    .action(
      context.run(async (name: string, options: Output & { readonly overlap: string }) => {
        const overlapMs = durationOption('--overlap', options.overlap, true)
        const rotated = await within((lifecycle) => lifecycle.rotateToken(name, overlapMs))
        if (options.json) context.io.out(JSON.stringify(rotated))
        else {
          context.io.out(`token     ${rotated.token}   (shown this once)`)
          context.io.out(`old one   valid until ${rotated.old_valid_until}`)
        }
        return 0
      }),
    )
}

function printList(io: Io, all: readonly SandboxReport[]): void {
  if (all.length === 0) {
    io.out('no sandboxes; make one with: octroi sandbox create --template NAME')
    return
  }
  const heading = ['NAME', 'STATE', 'ORIGIN', 'TENANT', 'TEMPLATE', 'AGENT', 'RUN', 'EXPIRES']
  const rows = all.map((sandbox) => [
    sandbox.name,
    sandbox.state,
    sandbox.origin,
    sandbox.tenant,
    sandbox.template ?? '-',
    sandbox.agent ?? '-',
    sandbox.run ?? '-',
    sandbox.expires_at ?? 'never',
  ])
  for (const line of tableLines([heading, ...rows])) io.out(line)
}

function printSandbox(io: Io, sandbox: SandboxReport): void {
  const fields: [string, string | undefined][] = [
    ['sandbox', sandbox.name],
    ['id', sandbox.id],
    [
      'state',
      sandbox.paused_at === undefined ? sandbox.state : `${sandbox.state} since ${sandbox.paused_at}`,
    ],
    ['origin', sandbox.origin],
    ['tenant', sandbox.tenant],
    ['template', sandbox.template],
    ['agent', sandbox.agent],
    ['run', sandbox.run],
    ['created', sandbox.created_at],
    ['expires', sandbox.expires_at ?? 'never'],
    ['tokens', String(sandbox.tokens)],
  ]
  for (const [key, value] of fields) if (value !== undefined) io.out(`${key.padEnd(9)} ${printable(value)}`)
  for (const handle of sandbox.handles)
    io.out(printable(`handle    ${handle.id}  access ${handle.access}  ${handle.state}`))
}
