import { checkFile } from './files.ts'
import type { CredentialConfig, PolicyBlock, ValueRef } from './model.ts'
import { below, problemAt } from './problem.ts'
import type { Place, Problem } from './problem.ts'

/** Problems refuse the configuration, warnings are shown and leave it in force. */
export interface Findings {
  readonly problems: Problem[]
  readonly warnings: Problem[]
}

/**
 * A credential whose value is not there is dead, and says so: requests with its placeholder are refused and nothing
 * else stops. A secret file that every user may write is refused.
 */
export function checkCredential(
  credential: CredentialConfig,
  place: Place,
  env: Readonly<Record<string, string | undefined>>,
): Findings {
  return checkRef(credential.value, below(place, 'value'), {
    env,
    dead: `the credential \`${credential.name}\` is dead`,
  })
}

/** Looks at what a reference names, without running a command or opening the store. */
export function checkRef(
  ref: ValueRef,
  place: Place,
  options: { env: Readonly<Record<string, string | undefined>>; dead: string },
): Findings {
  const { env, dead } = options
  if (ref.kind === 'env' && (env[ref.name] ?? '') === '') {
    const state = env[ref.name] === undefined ? 'not set' : 'empty'
    return warning(place, `${dead}: the variable \`${ref.name}\` is ${state}`)
  }
  if (ref.kind === 'file') {
    const check = checkFile(ref.path)
    if (check.state === 'missing') return warning(place, `${dead}: ${check.problem}`)
    if (check.state === 'refused') return { problems: [problemAt(place, check.problem)], warnings: [] }
  }
  return { problems: [], warnings: [] }
}

const warning = (place: Place, message: string): Findings => ({
  problems: [],
  warnings: [problemAt(place, message)],
})

/** Rules whose day has passed: they deny, which is worth knowing. */
export function warnOfExpired(block: PolicyBlock, place: Place, now: number): Problem[] {
  return (['allow', 'deny'] as const).flatMap((key) =>
    block[key].flatMap((rule, index) => {
      if (rule.expires === undefined || rule.expires > now) return []
      const effect = key === 'allow' ? 'it denies now' : 'it goes on denying'
      return [problemAt(below(place, key, index, 'expires'), `this rule has expired; ${effect}`)]
    }),
  )
}
