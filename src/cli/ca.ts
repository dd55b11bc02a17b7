import type { Command } from 'commander'
import { systemClock } from '../core/clock.ts'
import type { Clock } from '../core/clock.ts'
import { OperatorError } from '../core/errors.ts'
import type { AuthorityCertificate } from '../tls/authority.ts'
import type { CommandContext } from './io.ts'

/** What the commands need beside the context. */
export interface CaDeps {
  /** State folder of the configuration; works with the broker stopped. */
  stateFolder(): Promise<string>
  /** Default the system clock. */
  readonly clock?: Clock
}

interface CaOptions {
  readonly json?: boolean
}

/** Field names of `--json`. */
const toJson = (certificate: AuthorityCertificate) => ({
  fingerprint: certificate.fingerprint,
  subject: certificate.subject,
  not_before: new Date(certificate.notBefore).toISOString(),
  not_after: new Date(certificate.notAfter).toISOString(),
  pem: certificate.certificatePem,
})

const day = (ms: number): string => new Date(ms).toISOString().slice(0, 10)

async function readShown(folder: string, clock: Clock) {
  const { readAuthorityCertificate, readPreviousCertificate } = await import('../tls/authority.ts')
  const current = await readAuthorityCertificate(folder)
  if (!current) {
    throw new OperatorError(
      `there is no CA in ${folder} yet: \`octroi init\` or the first \`octroi serve\` makes it`,
    )
  }
  return { current, previous: await readPreviousCertificate(folder, clock) }
}

/** Adds `octroi ca show` and `octroi ca rotate`. */
export function registerCa(program: Command, context: CommandContext, deps: CaDeps): void {
  const { io } = context
  const clock = deps.clock ?? systemClock
  const ca = program.command('ca').description('the certificate authority that sandboxes trust')

  const printJson = (current: AuthorityCertificate, previous: AuthorityCertificate | undefined): void => {
    io.out(JSON.stringify({ ...toJson(current), previous: previous ? toJson(previous) : null }))
  }

  ca.command('show')
    .description('print the CA certificate as PEM')
    .option('--json', 'print fingerprint, subject, dates and PEM as JSON')
    .action(
      context.run(async (options: CaOptions) => {
        const { current, previous } = await readShown(await deps.stateFolder(), clock)
        if (options.json === true) printJson(current, previous)
        else io.out(current.certificatePem.trimEnd())
        return 0
      }),
    )

  ca.command('rotate')
    .description('replace the CA by a new one; the broker has to be stopped')
    .option('--json', 'print the new CA as `ca show --json` does')
    .action(
      context.run(async (options: CaOptions) => {
        const folder = await deps.stateFolder()
        const { createRemote } = await import('./remote.ts')
        if (await createRemote({ stateFolder: folder, configPath: context.configPath() }).isRunning()) {
          throw new OperatorError(
            'the broker is running and would go on with the old CA: stop it, rotate, start it',
          )
        }
        const [{ openSeal }, { rotateAuthority }] = await Promise.all([
          import('../store/seal.ts'),
          import('../tls/authority.ts'),
        ])
        const authority = await rotateAuthority({ folder, seal: await openSeal(folder), clock })
        if (options.json === true) printJson(authority, authority.previous)
        else {
          io.out(`new CA: ${authority.subject}, valid to ${day(authority.notAfter)}`)
          io.out(`SHA-256 ${authority.fingerprint}`)
          io.out(
            'Give running sandboxes the new certificate: `octroi env` points at files that the next start writes.',
          )
        }
        return 0
      }),
    )
}
