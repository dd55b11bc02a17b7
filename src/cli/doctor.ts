import { randomBytes } from 'node:crypto'
import { createServer } from 'node:net'
import { networkInterfaces } from 'node:os'
import type { SecureContext } from 'node:tls'
import { OperatorError } from '../core/errors.ts'
import type { Grant } from '../handles/model.ts'
import { slotHeader } from '../handles/slot.ts'
import { authorityOf, parseAbsoluteTarget } from '../policy/destination.ts'
import { markers } from '../redact/forms.ts'
import type { TrustFiles } from '../sandbox/bundle.ts'
import type { Check } from '../sandbox/check.ts'
import { checkClients } from '../sandbox/client-checks.ts'
import {
  checkBubblewrap,
  checkListener,
  checkNode,
  checkStateFolder,
  checkTrustFiles,
} from '../sandbox/host-checks.ts'
import type { ListenerAddress } from '../sandbox/host-checks.ts'
import { launch, relayPort, scriptFor } from '../sandbox/launcher.ts'
import type { PlaceholderHeader, SelfTestPlan } from '../sandbox/self-test.ts'
import type { CommandContext, Io, Register } from './io.ts'
import type { RunDeps } from './run.ts'

/** What is looked at from outside. */
export interface HostFacts {
  readonly stateFolder: string
  readonly trust: TrustFiles
  /** Listeners of the configuration: proxy, admin, owner socket. */
  readonly listeners: readonly ListenerAddress[]
  /** TLS context with a leaf for `localhost`; `undefined` when the CA's key cannot be opened. */
  readonly context: SecureContext | undefined
  readonly now: number
}

/** What is known of a sandbox before it is tested from inside. */
export interface InsideFacts {
  readonly grants: readonly Grant[]
  /** A host that a rule allows over terminated TLS and that no access has; `undefined` if there is none. */
  readonly freeHost: { readonly host: string; readonly port: number } | undefined
  /** TCP ports of the broker on this host. */
  readonly brokerPorts: readonly { readonly name: string; readonly port: number }[]
}

/** Where the facts come from; wired by the program. */
export interface DoctorDeps {
  host(configPath: string): Promise<HostFacts>
  inside(configPath: string, sandbox: string): Promise<InsideFacts>
  /** Name of the first sandbox in the configuration. */
  firstSandbox(configPath: string): Promise<string | undefined>
  readonly run: RunDeps
}

interface DoctorOptions {
  readonly inside?: boolean
  readonly sandbox?: string
  readonly reflect?: string
  readonly json?: boolean
}

/** Adds `octroi doctor`: exit code 1 if any check fails. */
export function registerDoctor(deps: DoctorDeps): Register {
  return (program, context) => {
    program
      .command('doctor')
      .description('test this installation, or with --inside try to break out of a sandbox')
      .option('--inside', 'start the sandbox and test from inside')
      .option(
        '--sandbox <name>',
        'the sandbox to test, with --inside (default: the first of the configuration)',
      )
      .option(
        '--reflect <url>',
        'https URL of an access that returns the request; {form} stands for raw, base64, gzip',
      )
      .option('--json', 'JSON lines')
      .action(
        context.run(async (options: DoctorOptions) => {
          const print = (check: Check) =>
            context.io.out(options.json === true ? JSON.stringify(check) : line(check))
          let failed = false
          for await (const check of checks(deps, context, options)) {
            print(check)
            failed ||= check.status === 'FAIL'
          }
          return failed ? 1 : 0
        }),
      )
  }
}

function line({ status, name, detail }: Check): string {
  return `${status}  ${name.padEnd(34)}  ${detail}`
}

async function* checks(
  deps: DoctorDeps,
  context: CommandContext,
  options: DoctorOptions,
): AsyncGenerator<Check> {
  if (options.inside !== true) {
    if (options.sandbox !== undefined || options.reflect !== undefined) {
      throw new OperatorError('--sandbox and --reflect belong to --inside', { exitCode: 2 })
    }
    return yield* outside(await deps.host(context.configPath()), context.io)
  }
  const { io } = context
  const configPath = context.configPath()
  const sandbox = options.sandbox ?? (await deps.firstSandbox(configPath))
  if (sandbox === undefined)
    throw new OperatorError('the configuration has no sandbox; name one with --sandbox', { exitCode: 2 })
  if (options.sandbox === undefined) io.err(`testing from inside the sandbox ${sandbox}`)
  yield* await testInside({ deps, io, configPath, sandbox, options })
}

async function* outside(facts: HostFacts, io: Io): AsyncGenerator<Check> {
  const hostPath = io.env['PATH'] ?? ''
  yield checkNode(process.version)
  yield await checkStateFolder(facts.stateFolder)
  const trust = await checkTrustFiles(facts.trust, facts.now)
  yield* trust
  yield await checkBubblewrap(hostPath)
  for (const listener of facts.listeners) yield await checkListener(listener)
  const skip = (detail: string): Check => ({ status: 'SKIP', name: 'trust of clients', detail })
  if (facts.context === undefined) yield skip('the key of the CA cannot be opened')
  else if (trust.some(({ status }) => status === 'FAIL')) yield skip('the trust files are not in order')
  else yield* await checkClients({ trust: facts.trust, hostPath, context: facts.context })
}

async function testInside(what: {
  readonly deps: DoctorDeps
  readonly io: Io
  readonly configPath: string
  readonly sandbox: string
  readonly options: DoctorOptions
}): Promise<Check[]> {
  const { deps, io, configPath, sandbox, options } = what
  const facts = await deps.inside(configPath, sandbox)
  let visits = 0
  const canary = createServer((socket) => {
    visits += 1
    socket.destroy()
  })
  await new Promise<void>((resolve) => canary.listen(0, resolve))
  const address = canary.address()
  const port = typeof address === 'object' && address !== null ? address.port : 0
  const session = await deps.run.open(configPath, sandbox)
  try {
    const plan = planOf(facts, port, options.reflect)
    const script = scriptFor('self-test')
    let text = ''
    const launched = await launch({
      command: 'node',
      args: [script.inside],
      socketPath: session.socketPath,
      trust: session.trust,
      placeholders: session.placeholders,
      env: { OCTROI_SELF_TEST: JSON.stringify(plan) },
      workspace: {
        input: undefined,
        output: undefined,
        readOnly: [],
        protectedPaths: session.protectedPaths,
      },
      hostPath: io.env['PATH'] ?? '',
      files: new Map([[script.inside, script.outside]]),
      onStdout: (chunk) => void (text += chunk.toString()),
    })
    const exit = await launched.exit
    await session.ended(exit)
    return [...readChecks(text), ...verdicts(exit, visits)]
  } finally {
    await session.close()
    canary.close()
  }
}

/** What only the host can say: whether the test ran to its end, and whether anything reached the canary. */
function verdicts(exit: number, visits: number): Check[] {
  const name = 'canary on the host'
  return [
    ...(exit === 0
      ? []
      : [{ status: 'FAIL', name: 'self-test', detail: `ended with exit code ${exit}` } as const]),
    visits === 0
      ? { status: 'PASS', name, detail: 'nothing reached it' }
      : { status: 'FAIL', name, detail: `reached ${visits} times` },
  ]
}

function readChecks(text: string): Check[] {
  // Written by our own script a moment ago; what it printed before it broke off still counts.
  const lines = text.split('\n').filter((each) => each.endsWith('}'))
  return lines.map((each) => JSON.parse(each) as Check)
}

function planOf(facts: InsideFacts, canaryPort: number, reflectUrl: string | undefined): SelfTestPlan {
  const [first] = facts.grants
  return {
    proxyPort: relayPort,
    hostPorts: [{ name: 'canary', port: canaryPort }, ...facts.brokerPorts],
    hostAddresses: Object.values(networkInterfaces())
      .flatMap((addresses) => addresses ?? [])
      .filter(({ internal, address }) => !internal && !address.startsWith('fe80:'))
      .map(({ address, family }) => (family === 'IPv6' ? `[${address}]` : address)),
    wrongHost: wrongHostOf(first, facts.freeHost),
    reflect: reflectOf(facts.grants, reflectUrl),
    timeoutMs: 1_500,
  }
}

function wrongHostOf(grant: Grant | undefined, free: InsideFacts['freeHost']): SelfTestPlan['wrongHost'] {
  if (grant === undefined) return { skip: 'this sandbox has no placeholder' }
  if (free === undefined) return { skip: 'no rule of this sandbox allows a host outside of its accesses' }
  return { ...free, header: headerOf(grant) }
}

function reflectOf(grants: readonly Grant[], url: string | undefined): SelfTestPlan['reflect'] {
  if (url === undefined) return { skip: 'needs --reflect URL, an access whose upstream returns the request' }
  const target = parseAbsoluteTarget(url)
  if (!target.ok) throw new OperatorError(`--reflect ${url}: ${target.problem}`, { exitCode: 2 })
  const { scheme, destination } = target
  if (scheme !== 'https') return { skip: 'a placeholder goes over https only' }
  const grant = grants.find(({ access }) =>
    access.destinations.some(({ host, port }) => host === destination.host && port === destination.port),
  )
  if (grant === undefined)
    return { skip: `no access of this sandbox has the destination ${authorityOf(destination)}` }
  const nonce = `octroi-doctor-${randomBytes(9).toString('hex')}`
  return { url, header: headerOf(grant), placeholder: grant.handle.placeholder, markers, nonce }
}

/** The placeholder in its slot. */
function headerOf({ access: { slot }, handle: { placeholder } }: Grant): PlaceholderHeader {
  const name = slotHeader(slot)
  if (slot.kind === 'header') {
    return { name, value: slot.scheme === undefined ? placeholder : `${slot.scheme} ${placeholder}` }
  }
  const basic = slot.field === 'user' ? `${placeholder}:` : `octroi:${placeholder}`
  return { name, value: `Basic ${Buffer.from(basic).toString('base64')}` }
}
