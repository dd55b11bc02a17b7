import { execFileSync } from 'node:child_process'

/** Runs the openssl command and returns what it prints; skips the test, with the reason, where there is none. */
export function openssl(context: { skip: (note: string) => never }, args: readonly string[]): string {
  try {
    return execFileSync('openssl', args, { encoding: 'utf8' })
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT')
      context.skip('openssl is not installed')
    throw error
  }
}
