import { Argument } from 'commander'
import { revokeKinds } from '../identity/lifecycle-model.ts'
import type { RevokeRequest } from '../identity/lifecycle-model.ts'
import type { Register } from './io.ts'
import { withLifecycle } from './lifecycle-access.ts'
import type { LifecycleAccess } from './lifecycle-access.ts'
import { printable } from './table.ts'

/** `octroi revoke KIND TARGET`: swaps stop within 1 s, and it says until when the value stays valid upstream. */
export function registerRevoke(access: LifecycleAccess): Register {
  return (program, context) => {
    program
      .command('revoke')
      .description('void a handle, a lease, a credential, or everything a sandbox holds')
      .addArgument(new Argument('<kind>', 'what to revoke').choices(revokeKinds))
      .argument('<target>', 'handle id or placeholder, lease id (events show it), sandbox or credential name')
      .option('--json', 'JSON instead of text')
      .addHelpText('after', help)
      .action(
        context.run(
          async (kind: RevokeRequest['kind'], target: string, options: { readonly json?: true }) => {
            const revoked = await withLifecycle({ access, configPath: context.configPath() }, (lifecycle) =>
              lifecycle.revoke({ kind, target }),
            )
            if (options.json) context.io.out(JSON.stringify(revoked))
            else {
              const counts = `${String(revoked.handles)} placeholders, ${String(revoked.tokens)} tokens`
              const what = revoked.kind === 'sandbox' ? ` (paused; ${counts})` : ''
              context.io.out(printable(`revoked ${revoked.kind} ${revoked.target}${what}`))
              context.io.out(printable(revoked.upstream))
            }
            return 0
          },
        ),
      )
  }
}

const help = `
A revoked sandbox is paused as well; \`octroi sandbox resume\` brings it back with new values.
Works with the broker stopped too.`
