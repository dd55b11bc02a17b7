import { posix } from 'node:path'
import { Option } from 'commander'
import { OperatorError } from '../core/errors.ts'
import { writeAptConf } from '../sandbox/bundle.ts'
import type { TrustFiles } from '../sandbox/bundle.ts'
import { envFormats, formatEnvironment } from '../sandbox/env-format.ts'
import type { EnvFormat } from '../sandbox/env-format.ts'
import { sandboxEnvironment } from '../sandbox/environment.ts'
import type { EnvironmentInput, PlaceholderVariable } from '../sandbox/environment.ts'
import type { Register } from './io.ts'

/** What `octroi env` needs to know of one sandbox; loading works with the broker stopped. */
export interface EnvFacts {
  /** Where this sandbox's requests go: its own port if it has one, else the shared listener. */
  readonly proxy: { readonly scheme: 'http' | 'https'; readonly host: string; readonly port: number }
  /** Proxy credentials in plain text; `undefined` where no token is among the proofs. */
  readonly login: { readonly user: string; readonly token: string } | undefined
  readonly placeholders: readonly PlaceholderVariable[]
  /** Trust files that exist, as this host sees them. */
  readonly trust: TrustFiles
  /** Sentences for the operator, such as that the token was issued again since the old one cannot be printed. */
  readonly notes: readonly string[]
}

/** Where the facts come from; wired by the program. */
export interface EnvDeps {
  /** Facts about a living sandbox. Throws `OperatorError` for an unknown name or a state folder that cannot be read. */
  load(configPath: string, sandbox: string): Promise<EnvFacts>
}

interface EnvOptions {
  readonly sandbox: string
  readonly format: EnvFormat
  readonly json?: boolean
  readonly proxyHost?: string
  readonly caPath?: string
}

/** Adds `octroi env`. */
export function registerEnv(deps: EnvDeps): Register {
  return (program, context) => {
    const { io } = context
    program
      .command('env')
      .description('print the variables a sandbox needs: proxy, trust, placeholders')
      .requiredOption('--sandbox <name>', 'the sandbox')
      .addOption(new Option('--format <format>', 'how to print').choices(envFormats).default('sh'))
      .option('--json', 'the same as --format json')
      .option('--proxy-host <host>', 'name or address of the broker as the sandbox sees it')
      .option('--ca-path <path>', 'where the sandbox sees the folder of the trust files, or one PEM bundle')
      .action(
        context.run(async (options: EnvOptions) => {
          const facts = await deps.load(context.configPath(), options.sandbox)
          const input = await environmentInput(facts, options, io.env['JAVA_TOOL_OPTIONS'])
          const format = options.json === true ? 'json' : options.format
          io.out(formatEnvironment(sandboxEnvironment(input), format))
          for (const note of facts.notes) io.err(note)
          return 0
        }),
      )
  }
}

async function environmentInput(
  facts: EnvFacts,
  options: EnvOptions,
  javaToolOptions: string | undefined,
): Promise<EnvironmentInput> {
  return {
    proxyScheme: facts.proxy.scheme,
    proxyHost: proxyHost(options.proxyHost, facts.proxy.host),
    proxyPort: facts.proxy.port,
    login: facts.login,
    placeholders: facts.placeholders,
    // Options of this host are no use in a container; on this host an inherited value is kept.
    javaToolOptions: options.caPath === undefined ? javaToolOptions : undefined,
    ...(await trustPaths(facts.trust, options.caPath)),
  }
}

function proxyHost(wanted: string | undefined, listening: string): string {
  if (wanted === undefined) {
    if (listening === '0.0.0.0') return '127.0.0.1'
    return listening === '::' ? '::1' : listening
  }
  const host = wanted.replace(/^\[(.*)\]$/, '$1')
  if (/^[A-Za-z0-9._:-]+$/.test(host)) return host
  throw new OperatorError(`--proxy-host takes a name or an address, without port: "${wanted}"`, {
    exitCode: 2,
  })
}

type TrustPaths = Pick<EnvironmentInput, 'bundlePath' | 'caPath' | 'javaTrustStore' | 'aptConf'>

async function trustPaths(trust: TrustFiles, seenAt: string | undefined): Promise<TrustPaths> {
  if (seenAt === undefined) {
    return {
      bundlePath: trust.bundle,
      caPath: trust.ca,
      javaTrustStore: trust.javaTrustStore,
      aptConf: trust.aptConf,
    }
  }
  if (!posix.isAbsolute(seenAt)) {
    throw new OperatorError(`--ca-path takes an absolute path, as the sandbox sees it: "${seenAt}"`, {
      exitCode: 2,
    })
  }
  if (/\.(?:pem|crt|cer)$/i.test(seenAt)) {
    return { bundlePath: seenAt, caPath: seenAt, javaTrustStore: undefined, aptConf: undefined }
  }
  const inside = (file: string) => posix.join(seenAt, posix.basename(file))
  return {
    bundlePath: inside(trust.bundle),
    caPath: inside(trust.ca),
    javaTrustStore: inside(trust.javaTrustStore),
    aptConf: inside(await writeAptConf(trust.folder, inside(trust.bundle))),
  }
}
