import type { Register } from './io.ts'
import { withLifecycle } from './lifecycle-access.ts'
import type { LifecycleAccess } from './lifecycle-access.ts'

/** `octroi grant SANDBOX ACCESS`: a new placeholder in place of a revoked one. */
export function registerGrant(access: LifecycleAccess): Register {
  return (program, context) => {
    program
      .command('grant')
      .description('give a sandbox a new placeholder in place of a revoked one')
      .argument('<sandbox>', 'name of the sandbox')
      .argument('<access>', 'an access that the configuration gives it')
      .option('--json', 'JSON instead of text')
      .action(
        context.run(async (sandbox: string, name: string, options: { readonly json?: true }) => {
          const report = await withLifecycle({ access, configPath: context.configPath() }, (lifecycle) =>
            lifecycle.grant({ sandbox, access: name }),
          )
          if (options.json) context.io.out(JSON.stringify(report))
          else {
            const made = report.handles.find((handle) => handle.access === name && handle.state === 'live')
            context.io.out(`granted ${name} to ${sandbox}, handle ${made?.id ?? ''}`)
            context.io.out(`octroi env --sandbox ${sandbox} prints its placeholder`)
          }
          return 0
        }),
      )
  }
}
