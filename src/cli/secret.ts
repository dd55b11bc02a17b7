import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import type { Command } from 'commander'
import { OperatorError, Refusal } from '../core/errors.ts'
import type { SecretRecord } from '../core/model.ts'
import { isShort, requireSendable, withoutFinalNewline } from '../issuers/value-checks.ts'
import type { Seal, Store } from '../store/port.ts'
import type { CommandContext, Io, Register } from './io.ts'
import { timeText } from './log-lines.ts'
import { tableLines } from './table.ts'

/** What `octroi secret` needs. */
export interface SecretAccess {
  /** State folder that the configuration names. */
  stateFolder(configPath: string): Promise<string>
  /** Tells the running broker that the sealed store has changed; `false` when none runs. */
  notifyBroker(configPath: string): Promise<boolean>
}

/** What a sealed value may have at most, bytes; a private key in PEM is the longest. */
const maxBytes = 64 * 1024
const names = /^[A-Za-z0-9][\w.-]{0,127}$/

interface ValueOptions {
  readonly file?: string
}

interface Work {
  readonly context: CommandContext
  readonly access: SecretAccess
}

/** `octroi secret set|list|rotate|rm NAME`: root credentials, sealed at rest; values only from stdin or a file. */
export function registerSecret(access: SecretAccess): Register {
  return (program, context) => {
    const group = program
      .command('secret')
      .description(
        'root credentials in the sealed store; values come from stdin or a file, never from arguments',
      )
    const work = { context, access }
    addWriting(group, work)
    addReading(group, work)
  }
}

function addWriting(group: Command, work: Work): void {
  const { context } = work
  const writing = (name: string, description: string): Command =>
    group
      .command(`${name} <name>`)
      .description(description)
      .option('--file <path>', 'read the value from this file instead of stdin')
      // A value as a second argument would be in the process list and the shell's history.
      .allowExcessArguments(false)
  writing('set', 'store a value, or another one under the same name').action(
    context.run((name: string, options: ValueOptions) => store(work, name, { ...options, mustExist: false })),
  )
  writing('rotate', 'replace the value of a secret that is there').action(
    context.run((name: string, options: ValueOptions) => store(work, name, { ...options, mustExist: true })),
  )
  group
    .command('rm <name>')
    .description('delete a secret; credentials that name it are dead from then on')
    .action(context.run((name: string) => remove(work, name)))
}

function addReading(group: Command, work: Work): void {
  group
    .command('list')
    .description('names, versions and times; never values')
    .option('--json', 'JSON instead of text')
    .action(
      work.context.run(async (options: { readonly json?: true }) => {
        const { io } = work.context
        const all = await within(work, ({ store }) => store.secrets())
        const wire = ({ name, version, updatedAt }: SecretRecord) => ({
          name,
          version,
          updated_at: new Date(updatedAt).toISOString(),
        })
        if (options.json === true) io.out(JSON.stringify(all.map(wire)))
        else if (all.length === 0) io.err('no secrets yet; octroi secret set NAME stores one')
        else {
          const rows = all.map((one) => [one.name, String(one.version), timeText(one.updatedAt)])
          for (const line of tableLines([['NAME', 'VERSION', 'CHANGED'], ...rows])) io.out(line)
        }
        return 0
      }),
    )
}

async function store(
  work: Work,
  name: string,
  options: ValueOptions & { readonly mustExist: boolean },
): Promise<number> {
  requireName(name)
  const { io } = work.context
  const value = requireValue(await readValue(io, options.file))
  const version = await within(work, async ({ store, seal }) => {
    const before = findSecret(await store.secrets(), name)
    if (before === undefined && options.mustExist) {
      throw new OperatorError(`there is no secret ${name}; store one with: octroi secret set ${name}`)
    }
    if (before !== undefined && options.mustExist && (await seal.open(before.sealed)) === value) {
      throw new OperatorError(`the new value of ${name} is the one it has`)
    }
    const next = (before?.version ?? 0) + 1
    await store.putSecret({ name, sealed: await seal.seal(value), version: next, updatedAt: Date.now() })
    return next
  })
  io.out(`secret ${name}: version ${version}, ${value.length} characters`)
  if (isShort(value))
    io.err('it has less than 12 characters or 64 bits: the credential needs allow_short: true')
  await tell(work, { now: 'uses it from now on', later: 'uses it' })
  return 0
}

async function remove(work: Work, name: string): Promise<number> {
  requireName(name)
  await within(work, async ({ store }) => {
    if (findSecret(await store.secrets(), name) === undefined)
      throw new OperatorError(`there is no secret ${name}`)
    await store.deleteSecret(name)
  })
  work.context.io.out(`secret ${name}: removed; it stays valid upstream until it is revoked there`)
  await tell(work, { now: 'has dropped it', later: 'is without it' })
  return 0
}

async function tell(
  { access, context }: Work,
  { now, later }: { now: string; later: string },
): Promise<void> {
  const isTold = await access.notifyBroker(context.configPath())
  context.io.err(isTold ? `the running broker ${now}` : `no broker is running; the next start ${later}`)
}

async function within<T>(work: Work, use: (state: { store: Store; seal: Seal }) => Promise<T>): Promise<T> {
  const folder = await work.access.stateFolder(work.context.configPath())
  // Loaded here, so that other commands start without them.
  const [{ openSqliteStore }, { openSeal }] = await Promise.all([
    import('../store/sqlite.ts'),
    import('../store/seal.ts'),
  ])
  const store = await openSqliteStore({ folder })
  try {
    return await use({ store, seal: await openSeal(folder) })
  } finally {
    await store.close()
  }
}

async function readValue(io: Io, file: string | undefined): Promise<string> {
  if (file === undefined) return withoutFinalNewline(await io.readStdin())
  const path = resolve(io.cwd, file)
  try {
    return withoutFinalNewline(readFileSync(path, 'utf8'))
  } catch (cause) {
    const why = cause instanceof Error && 'code' in cause ? String(cause.code) : 'unknown error'
    throw new OperatorError(`cannot read the value from ${path}: ${why}`, { cause, exitCode: 2 })
  }
}

/** A private key may have lines; everything else must fit in a header field. */
function requireValue(text: string): string {
  const refuse = (why: string): OperatorError => new OperatorError(`not stored: ${why}`, { exitCode: 2 })
  if (Buffer.byteLength(text) > maxBytes) throw refuse(`the value is longer than ${maxBytes} bytes`)
  if (/^-----BEGIN [A-Z0-9 ]+-----\r?\n[\w+/=\r\n:,. -]+-----END [A-Z0-9 ]+-----\s*$/.test(text)) return text
  try {
    requireSendable(text)
    return text
  } catch (error) {
    if (!(error instanceof Refusal)) throw error
    throw refuse(error.detail ?? error.message)
  }
}

function requireName(name: string): void {
  if (names.test(name)) return
  throw new OperatorError('a name is letters, digits, dot, dash and underscore, at most 128', { exitCode: 2 })
}

function findSecret(all: readonly SecretRecord[], name: string): SecretRecord | undefined {
  return all.find((record) => record.name === name)
}
