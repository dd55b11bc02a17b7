import { createHash, createSecretKey, randomBytes } from 'node:crypto'
import type { KeyObject } from 'node:crypto'
import {
  closeSync,
  existsSync,
  fsyncSync,
  linkSync,
  openSync,
  readFileSync,
  rmSync,
  writeSync,
} from 'node:fs'
import { join } from 'node:path'
import { CompactEncrypt, compactDecrypt } from 'jose'
import { OperatorError } from '../core/errors.ts'
import { Secret } from '../core/secret.ts'
import { requireOwnerOnly, requireStateFolder } from './folder.ts'
import type { Seal } from './port.ts'
import { holdsSealedValues } from './sqlite.ts'

const keyBytes = 32

/** Opens the state folder's seal key (`seal.key`), making it at first use and never over one that is there. */
export async function openSeal(folder: string): Promise<Seal> {
  requireStateFolder(folder)
  const path = join(folder, 'seal.key')
  if (!existsSync(path)) {
    if (holdsSealedValues(folder)) {
      throw new OperatorError(
        `${path} is missing, but the store has values sealed with it; restore the file from a backup`,
      )
    }
    makeKey(folder, path)
  }
  const key = readKey(path)
  // Tells "another key" from "changed text" without revealing anything of a random 256-bit key.
  const kid = createHash('sha256').update('octroi seal').update(key.export()).digest('hex').slice(0, 16)
  return {
    async seal(plain) {
      const bytes = new TextEncoder().encode(plain instanceof Secret ? plain.reveal() : plain)
      return new CompactEncrypt(bytes).setProtectedHeader({ alg: 'dir', enc: 'A256GCM', kid }).encrypt(key)
    },
    open: (sealed) => openSealed({ sealed, key, kid, path }),
  }
}

async function openSealed(input: {
  sealed: string
  key: KeyObject
  kid: string
  path: string
}): Promise<string> {
  const allowed = { keyManagementAlgorithms: ['dir'], contentEncryptionAlgorithms: ['A256GCM'] }
  try {
    const { plaintext } = await compactDecrypt(input.sealed, input.key, allowed)
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(plaintext)
  } catch (cause) {
    const why =
      kidOf(input.sealed) === input.kid ? 'the sealed text was changed' : 'it was sealed with another key'
    throw new OperatorError(`a sealed value cannot be opened with ${input.path}: ${why}`, { cause })
  }
}

function kidOf(sealed: string): string | undefined {
  try {
    const header: unknown = JSON.parse(Buffer.from(sealed.split('.')[0] ?? '', 'base64url').toString())
    return typeof header === 'object' && header !== null && 'kid' in header ? String(header.kid) : undefined
  } catch {
    return undefined
  }
}

/** Written beside, flushed, then linked: a crash leaves no half a key, and `link` never replaces a file. */
function makeKey(folder: string, path: string): void {
  const draft = `${path}.${randomBytes(6).toString('hex')}`
  try {
    const file = openSync(draft, 'wx', 0o600)
    try {
      writeSync(file, `${randomBytes(keyBytes).toString('base64url')}\n`)
      fsyncSync(file)
    } finally {
      closeSync(file)
    }
    linkUnlessThere(draft, path)
    const directory = openSync(folder, 'r')
    fsyncSync(directory)
    closeSync(directory)
  } catch (cause) {
    throw new OperatorError(`cannot make the seal key ${path}: ${reason(cause)}`, { cause })
  } finally {
    rmSync(draft, { force: true })
  }
}

function linkUnlessThere(draft: string, path: string): void {
  try {
    linkSync(draft, path)
  } catch (error) {
    // Another process made it between the check and here: its key is the key.
    if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error
  }
}

function readKey(path: string): KeyObject {
  requireOwnerOnly(path, 'seal key', '600')
  let text: string
  try {
    text = readFileSync(path, 'utf8').trim()
  } catch (cause) {
    throw new OperatorError(`cannot read the seal key ${path}: ${reason(cause)}`, { cause })
  }
  const bytes = Buffer.from(text, 'base64url')
  if (!/^[\w-]+$/.test(text) || bytes.length !== keyBytes) {
    throw new OperatorError(
      `${path} does not hold a seal key (43 base64url characters); restore it from a backup`,
    )
  }
  return createSecretKey(bytes)
}

function reason(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause)
}
