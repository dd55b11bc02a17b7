import { createHash, timingSafeEqual } from 'node:crypto'
import { closeSync, existsSync, fsyncSync, openSync, readFileSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { OperatorError } from '../core/errors.ts'
import type { Throttle } from '../identity/throttle.ts'
import { requireOwnerOnly, requireStateFolder } from '../store/folder.ts'

const fileName = 'admin.token'
const tokenPattern = /^[\w-]{43}$/

/**
 * Reads the operator token of the TCP listener from `admin.token` in the state folder, making it (256 random bits, 0600)
 * at first start. Never replaces a file that is there: `OperatorError` when it cannot be read or holds something else.
 */
export function operatorToken(folder: string, random: (bytes: number) => Uint8Array): string {
  requireStateFolder(folder)
  const path = join(folder, fileName)
  if (!existsSync(path)) writeNew(path, `${Buffer.from(random(32)).toString('base64url')}\n`)
  requireOwnerOnly(path, 'operator token', '600')
  let text: string
  try {
    text = readFileSync(path, 'utf8').trim()
  } catch (cause) {
    throw new OperatorError(`cannot read the operator token ${path}`, { cause })
  }
  if (!tokenPattern.test(text))
    throw new OperatorError(
      `${path} does not hold an operator token; delete it, the next start makes a new one`,
    )
  return text
}

function writeNew(path: string, text: string): void {
  try {
    const file = openSync(path, 'wx', 0o600)
    try {
      writeSync(file, text)
      fsyncSync(file)
    } finally {
      closeSync(file)
    }
  } catch (cause) {
    throw new OperatorError(`cannot make the operator token ${path}`, { cause })
  }
}

/** What became of an `Authorization` value; `throttled` is a wrong token too many. */
export type Judged = 'ok' | 'missing' | 'wrong' | 'throttled'

/** Judges an `Authorization` value from one peer address. */
export type Bearer = (authorization: string | undefined, source: string) => Judged

/**
 * Bearer check in constant time. Wrong tokens are throttled per source; the right one always passes, so that nobody on
 * the same loopback can lock the operator out (256 bits are not guessed at any rate).
 */
export function createBearer(token: string, throttle: Throttle): Bearer {
  const expected = digest(token)
  return (authorization, source) => {
    const given = /^bearer +(\S+)$/i.exec(authorization ?? '')?.[1]
    if (given === undefined) return 'missing'
    if (timingSafeEqual(digest(given), expected)) return 'ok'
    return throttle.failed(source, 'operator') ? 'throttled' : 'wrong'
  }
}

/** Hashes first, so that the comparison takes the same time for every length. */
function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest()
}
