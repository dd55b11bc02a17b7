import { readFileSync, renameSync, writeFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { exportHead, verifyEvents } from '../audit/query.ts'
import type { ChainHead } from '../audit/chain.ts'
import type { Verification } from '../audit/verify.ts'
import { OperatorError } from '../core/errors.ts'
import type { Io, Register } from './io.ts'

interface VerifyOptions {
  readonly head?: string
  readonly exportHead?: string
  readonly json?: true
}

/** `octroi verify`: checks the event chain and names the first bad row; exit 0 good, 1 bad. */
export function registerVerify(access: { stateFolder(configPath: string): Promise<string> }): Register {
  return (program, context) => {
    program
      .command('verify')
      .description('check the chain of events; names the first bad row')
      .option('--head <file>', 'a head exported earlier: also finds a cut tail and an old copy put back')
      .option(
        '--export-head <file>',
        'write the present head, to be kept where nobody who can write the log reaches',
      )
      .option('--json', 'JSON instead of text')
      .action(
        context.run(async (options: VerifyOptions) => {
          const { io } = context
          const head = options.head === undefined ? undefined : readHead(resolve(io.cwd, options.head))
          const folder = await access.stateFolder(context.configPath())
          const verification = verifyEvents(folder, { head })
          if (options.json === true) io.out(JSON.stringify(verification))
          else report(io, verification)
          if (!verification.ok) return 1
          // Only of a chain that verifies, or the head would vouch for what is wrong.
          if (options.exportHead !== undefined) {
            writeHead(resolve(io.cwd, options.exportHead), exportHead(folder))
          }
          return 0
        }),
      )
  }
}

function report(io: Io, verification: Verification): void {
  if (!verification.ok) {
    io.out(`BAD at event ${verification.seq}: ${verification.problem}`)
    return
  }
  const { events, first, head, exported } = verification
  const range = events === 0 ? '' : ` (${first} to ${head.seq})`
  io.out(`good: ${events} events${range} follow each other`)
  io.out(`head: event ${head.seq}, ${head.hash}`)
  if (exported === 'matches') io.out('the exported head is part of the chain')
  else if (exported === 'older_than_retention') {
    io.err('the exported head is older than the oldest event kept, so it proves nothing')
  } else io.err('without --head FILE a cut tail can go unseen; --export-head FILE makes one for next time')
}

function readHead(path: string): ChainHead {
  let value: unknown
  try {
    value = JSON.parse(readFileSync(path, 'utf8'))
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause)
    throw new OperatorError(`cannot read the head ${path}: ${why}`, { cause, exitCode: 2 })
  }
  if (typeof value === 'object' && value !== null && 'seq' in value && 'hash' in value) {
    const { seq, hash } = value
    if (Number.isSafeInteger(seq) && typeof hash === 'string') return { seq: Number(seq), hash }
  }
  throw new OperatorError(`${path} is no exported head: it has no seq and hash`, { exitCode: 2 })
}

/** Written beside and renamed: a full disk leaves the head of before. */
function writeHead(path: string, head: ChainHead): void {
  try {
    writeFileSync(`${path}.new`, `${JSON.stringify(head)}\n`, { mode: 0o600 })
    renameSync(`${path}.new`, path)
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause)
    throw new OperatorError(`cannot write the head ${path}: ${why}`, { cause })
  }
}
