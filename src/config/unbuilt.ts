import type { Path } from './problem.ts'

const notYet = (what: string): string => `\`${what}\` is not built into this version yet`

const narrowed = 'a static key cannot be narrowed; only destinations limit it'

/**
 * What the configuration language has and this version does not build: accepted would mean ignored, so each is an
 * error that says so. `*` stands for any one key or index; `=` marks a value, a trailing `~` its beginning.
 */
const entries: readonly (readonly [pattern: string, message: string])[] = [
  ['listen.dns', notYet('dns')],
  ['store=postgres~', notYet('store: postgres://…')],
  ['servers', notYet('servers')],
  ['isolation', notYet('isolation')],
  ['observe', notYet('observe')],
  ['credentials.*.issuer=github_app', notYet('issuer: github_app')],
  ['credentials.*.issuer=oauth', notYet('issuer: oauth')],
  ['credentials.*.issuer=token_exchange', notYet('issuer: token_exchange')],
  ['credentials.*.issuer=signed_jwt', notYet('issuer: signed_jwt')],
  ['credentials.*.issuer=aws', notYet('issuer: aws')],
  ['access.*.scope', narrowed],
  ['access.*.ttl', notYet('ttl')],
  ['access.*.expires', notYet('expires')],
  ['access.*.uses', notYet('uses')],
  ['access.*.approval', notYet('approval')],
  ['access.*.slot.query', notYet('slot: { query }')],
  ['access.*.slot.path', notYet('slot: { path }')],
  ['access.*.slot.body', notYet('slot: { body }')],
]

const rules: typeof entries = [
  ['mode=observe', notYet('mode: observe')],
  ['mode=publish', notYet('mode: publish')],
  ['observe', notYet('observe')],
  ['approval', notYet('approval')],
  ['packages', notYet('packages')],
  ['min_age', notYet('min_age')],
  ['versions', notYet('versions')],
  ['scopes', notYet('scopes')],
]

const blocks: typeof entries = [
  ['observe', notYet('observe')],
  ['servers', notYet('servers')],
  ['idle_timeout', notYet('idle_timeout')],
  ['environment', notYet('environment')],
  ['isolation', notYet('isolation')],
  ['approval', notYet('approval')],
  ['mode=observe', notYet('mode: observe')],
  ['limits.upload_per_day', notYet('upload_per_day')],
  ['limits.download_per_day', notYet('download_per_day')],
  ['limits.requests_per_day', notYet('requests_per_day')],
]

const table: readonly (readonly [pattern: string, message: string])[] = [
  ...entries,
  ...['templates', 'sandboxes'].flatMap((section) => [
    ...blocks.map(([key, message]) => [`${section}.*.${key}`, message] as const),
    ...['allow', 'deny'].flatMap((list) =>
      rules.map(([key, message]) => [`${section}.*.${list}.*.${key}`, message] as const),
    ),
  ]),
]

/** The message for a key (or, with `value`, for the value of a key) that this version does not build. */
export function unbuilt(path: Path, value?: unknown): string | undefined {
  const entry = table.find(([pattern]) => {
    const [keys = '', wanted] = pattern.split('=')
    if ((wanted === undefined) !== (value === undefined)) return false
    const steps = keys.split('.')
    if (steps.length !== path.length) return false
    if (!steps.every((step, index) => step === '*' || step === String(path[index]))) return false
    if (wanted === undefined) return true
    return wanted.endsWith('~') ? String(value).startsWith(wanted.slice(0, -1)) : value === wanted
  })
  return entry?.[1]
}
