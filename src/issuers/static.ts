import { execFile } from 'node:child_process'
import { constants } from 'node:fs'
import { open, stat } from 'node:fs/promises'
import { Secret } from '../core/secret.ts'
import type { CredentialSource, Issued, Issuer, IssuerWorld, ValueSource } from './port.ts'
import {
  invalid,
  isShort,
  requireSendable,
  unavailable,
  valueId,
  withoutFinalNewline,
} from './value-checks.ts'

const commandTimeoutMs = 10_000
/** More than any value may have, so that a longer one is seen to be longer. */
const readBytes = 64 * 1024

/** An issuer for a value that is kept somewhere and stays as it is until somebody changes it there. */
export function createStaticIssuer(source: CredentialSource, world: IssuerWorld): Issuer {
  return {
    kind: 'static',
    async issue(signal): Promise<Issued> {
      const text = await readValue(source.value, world, signal)
      requireSendable(text)
      const short = isShort(text)
      if (short && !source.allowShort) {
        throw invalid('the value has less than 12 characters or 64 bits; allow_short: true accepts it')
      }
      const value = new Secret(text)
      return { value, id: valueId(value), short, expiresAt: undefined }
    },
    stamp: () => stampOf(source.value, world),
  }
}

function readValue(source: ValueSource, world: IssuerWorld, signal: AbortSignal): Promise<string> {
  switch (source.kind) {
    case 'env':
      return readEnv(source.name, world)
    case 'file':
      return readValueFile(source.path)
    case 'secret':
      return readSealed(source.name, world)
    case 'command':
      return runCommand({ argv: source.argv, env: world.env, signal })
  }
}

async function stampOf(source: ValueSource, world: IssuerWorld): Promise<string> {
  switch (source.kind) {
    case 'env':
      return world.env[source.name] === undefined ? 'absent' : 'present'
    case 'file': {
      const found = await stat(source.path, { bigint: true }).catch(() => undefined)
      return found === undefined ? 'absent' : [found.ino, found.size, found.mtimeNs, found.mode].join('.')
    }
    case 'secret':
      return (await world.secretStamp(source.name)) ?? 'absent'
    case 'command':
      // Only running it tells: a reload does, and a failed one is tried again.
      return 'command'
  }
}

async function readEnv(name: string, world: IssuerWorld): Promise<string> {
  const value = world.env[name]
  if (value === undefined)
    throw unavailable(`the environment variable ${name} is not set in the broker's environment`)
  return value
}

async function readSealed(name: string, world: IssuerWorld): Promise<string> {
  const found = await world.secret(name)
  if (found === undefined)
    throw unavailable(`the store has no secret ${name}; set it with: octroi secret set ${name}`)
  return found.reveal()
}

async function readValueFile(path: string): Promise<string> {
  // Not blocking: a named pipe would keep the open waiting for a writer.
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK).catch((cause: unknown) => {
    throw unavailable(`the file ${path} cannot be read (${codeOf(cause)})`)
  })
  try {
    const found = await file.stat()
    if (!found.isFile()) throw unavailable(`${path} is not a file`)
    if ((found.mode & 0o022) !== 0)
      throw unavailable(`others can write the file ${path}; run: chmod go-w ${path}`)
    const { buffer, bytesRead } = await file.read(Buffer.alloc(readBytes), 0, readBytes, 0)
    return withoutFinalNewline(decode(buffer.subarray(0, bytesRead)))
  } finally {
    await file.close()
  }
}

/** The program's stderr is dropped: it may hold what stdout holds. */
function runCommand(input: {
  argv: readonly string[]
  env: IssuerWorld['env']
  signal: AbortSignal
}): Promise<string> {
  const [program = '', ...args] = input.argv
  const options = {
    timeout: commandTimeoutMs,
    killSignal: 'SIGKILL',
    maxBuffer: readBytes,
    encoding: 'buffer',
    env: { ...input.env },
    signal: input.signal,
    windowsHide: true,
  } as const
  return new Promise((resolve, reject) => {
    const child = execFile(program, args, options, (error, stdout) => {
      if (error === null) resolve(withoutFinalNewline(decode(stdout)))
      else reject(unavailable(`the command ${program} ${failureOf(error)}`))
    })
    child.stdin?.end()
  })
}

function failureOf(error: Error & { code?: unknown; killed?: boolean }): string {
  if (error.code === 'ERR_CHILD_PROCESS_STDIO_MAXBUFFER') return 'printed too much'
  if (error.killed === true) return `did not end within ${commandTimeoutMs / 1000} s`
  if (typeof error.code === 'number') return `failed with exit code ${error.code}`
  return `could not be run (${codeOf(error)})`
}

function codeOf(cause: unknown): string {
  return cause instanceof Error && 'code' in cause ? String(cause.code) : 'unknown error'
}

/** Bytes that are no UTF-8 are taken one by one, so that the check that follows sees what a header field would get. */
function decode(bytes: Buffer): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch {
    return bytes.toString('latin1')
  }
}
