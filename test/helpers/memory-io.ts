import type { Io } from '../../src/cli/io.ts'

/** An `Io` that keeps what a command prints. */
export interface MemoryIo {
  readonly io: Io
  readonly out: string[]
  readonly err: string[]
}

/** No environment, no terminal, working directory `/` and empty stdin unless told otherwise. */
export function memoryIo(own: Partial<Omit<Io, 'out' | 'err'>> = {}): MemoryIo {
  const out: string[] = []
  const err: string[] = []
  const io: Io = {
    out: (line) => void out.push(line),
    err: (line) => void err.push(line),
    env: {},
    cwd: '/',
    isTerminal: false,
    readStdin: () => Promise.resolve(''),
    ...own,
  }
  return { io, out, err }
}
