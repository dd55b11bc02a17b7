import type { Command } from 'commander'

/** The process as commands see it; tests pass their own. */
export interface Io {
  /** Writes a line to stdout. */
  out(line: string): void
  /** Writes a line to stderr. */
  err(line: string): void
  readonly env: Readonly<Record<string, string | undefined>>
  readonly cwd: string
  /** stdout is a terminal: tables and colour (unless `NO_COLOR`) instead of plain lines. */
  readonly isTerminal: boolean
  /** Everything on stdin as text; for secrets. */
  readStdin(): Promise<string>
}

/** A command's action returns the process exit code: 0 good, 1 denied or failed, 2 wrong usage or configuration. */
export type Action<A extends unknown[]> = (...args: A) => Promise<number>

/** What the program gives to every command. */
export interface CommandContext {
  readonly io: Io
  /** Wraps an action for commander: keeps the exit code, turns an `OperatorError` into its message and exit code. */
  run<A extends unknown[]>(action: Action<A>): (...args: A) => Promise<void>
  /** Path of the configuration: `--config`, `OCTROI_CONFIG`, the XDG folder, `/etc/octroi/octroi.yaml`; else `OperatorError`. */
  configPath(): string
}

/** Each command group is one file that adds its commands to the program. */
export type Register = (program: Command, context: CommandContext) => void
