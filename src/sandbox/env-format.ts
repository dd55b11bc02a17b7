import { OperatorError } from '../core/errors.ts'

/** Ways in which `octroi env` prints variables. */
export const envFormats = ['sh', 'json', 'docker', 'mcp'] as const
/** One of `envFormats`. */
export type EnvFormat = (typeof envFormats)[number]

/**
 * Variables as text: `sh` to be evaluated by a POSIX shell, `json` one object, `docker` for `--env-file`, `mcp` the
 * `env` member of a server in an MCP client's configuration. A value that the format cannot carry is an `OperatorError`.
 */
export function formatEnvironment(env: Readonly<Record<string, string>>, format: EnvFormat): string {
  const entries = Object.entries(env)
  switch (format) {
    case 'sh':
      return entries.map(([name, value]) => `export ${variable(name)}=${shellQuote(value)}`).join('\n')
    case 'json':
      return JSON.stringify(env, null, 2)
    case 'docker':
      return entries.map(([name, value]) => `${variable(name)}=${oneLine(name, value)}`).join('\n')
    case 'mcp':
      return JSON.stringify({ env }, null, 2)
  }
}

/** A word that a POSIX shell reads back as the same text. */
export function shellQuote(text: string): string {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`
}

function variable(name: string): string {
  if (/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) return name
  throw new OperatorError(`"${name}" is no name of an environment variable`, { exitCode: 2 })
}

// An env file of docker has no quotes: everything after "=" up to the line's end is the value.
function oneLine(name: string, value: string): string {
  if (!/[\r\n\0]/.test(value)) return value
  throw new OperatorError(`the value of ${name} has a line break, which an env file cannot hold`)
}
