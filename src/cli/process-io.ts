import { text } from 'node:stream/consumers'
import type { Io } from './io.ts'

/** The process as commands see it. */
export function processIo(): Io {
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error
    // The reader went away (`octroi logs | head`): quietly over, as with other tools. What handles signals goes on.
    if (process.listenerCount('SIGTERM') === 0) process.exit(0)
  })
  return {
    out: (line) => void process.stdout.write(`${line}\n`),
    err: (line) => void process.stderr.write(`${line}\n`),
    env: process.env,
    cwd: process.cwd(),
    isTerminal: process.stdout.isTTY,
    readStdin: () => text(process.stdin),
  }
}
