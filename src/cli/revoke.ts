import { Argument } from 'commander'
import { revokeKinds } from '../identity/lifecycle-model.ts'
import type { Revoked, RevokeRequest } from '../identity/lifecycle-model.ts'
import type { Register } from './io.ts'
import { withLifecycle } from './lifecycle-access.ts'
import type { LifecycleAccess } from './lifecycle-access.ts'
import { printable } from './table.ts'

interface RevokeOptions {
  readonly undo?: true
  readonly json?: true
}

/** `octroi revoke KIND TARGET`: swaps stop within 1 s, and it says until when the value stays valid upstream. */
export function registerRevoke(access: LifecycleAccess): Register {
  return (program, context) => {
    program
      .command('revoke')
      .description('void a handle, a lease, a credential, or everything a sandbox holds')
      .addArgument(new Argument('<kind>', 'what to revoke').choices(revokeKinds))
      .argument('<target>', 'handle id or placeholder, lease id (events show it), sandbox or credential name')
      .option('--undo', 'send a revoked credential or lease again')
      .option('--json', 'JSON instead of text')
      .addHelpText('after', help)
      .action(
        context.run(async (kind: RevokeRequest['kind'], target: string, options: RevokeOptions) => {
          const { undo, json } = options
          const where = { access, configPath: context.configPath() }
          const revoked = await withLifecycle(where, (lifecycle) => lifecycle.revoke({ kind, target, undo }))
          if (json) context.io.out(JSON.stringify(revoked))
          else for (const line of lines(revoked, undo === true)) context.io.out(printable(line))
          return 0
        }),
      )
  }
}

function lines({ kind, target, handles, tokens, upstream }: Revoked, undone: boolean): string[] {
  const counts =
    kind === 'sandbox' ? ` (paused; placeholders: ${String(handles)}, tokens: ${String(tokens)})` : ''
  return [`${undone ? 'reinstated' : 'revoked'} ${kind} ${target}${counts}`, upstream]
}

const help = `
A revoked sandbox is paused as well, and what it held stays void: \`octroi sandbox resume\` lets it ask again, with the
token that \`octroi env\` prints then; \`octroi grant\` gives it a new placeholder.
Works with the broker stopped too.`
