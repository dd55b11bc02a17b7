import { createHash, createPrivateKey, randomBytes, X509Certificate } from 'node:crypto'
import type { KeyObject } from 'node:crypto'
import { chmod, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Clock } from '../core/clock.ts'
import { OperatorError } from '../core/errors.ts'
import { ensureFolder, readOwnerOnly, systemCode, writeDurably } from './durable-file.ts'

/** Seals and opens text with the key of the state folder; `Seal` of the store fits. */
export interface KeySeal {
  seal(plain: string): Promise<string>
  open(sealed: string): Promise<string>
}

/** What may be shown of a CA: nothing of its key. */
export interface AuthorityCertificate {
  readonly certificatePem: string
  /** Lower-case hex SHA-256 of the certificate's DER. */
  readonly fingerprint: string
  /** One line, such as `CN=Octroi CA 9c41aa02, O=Octroi`. */
  readonly subject: string
  /** `ms` since the epoch. */
  readonly notBefore: number
  readonly notAfter: number
}

/** The broker's CA in use. `privateKey` is a `KeyObject`, which prints as nothing but its type. */
export interface Authority extends AuthorityCertificate {
  readonly privateKey: KeyObject
  /** The CA before the last rotation while it is valid: bundles carry both, so that running sandboxes keep working. */
  readonly previous: AuthorityCertificate | undefined
}

/** Where the CA is kept and how its key is sealed. */
export interface AuthorityOptions {
  /** State folder; made with mode 0700 when missing. */
  readonly folder: string
  readonly seal: KeySeal
  readonly clock: Clock
  /** First words of the common name; a random suffix keeps two CAs apart in trust stores. Default `Octroi CA`. */
  readonly name?: string
}

const certificateFile = 'ca.pem'
const previousFile = 'ca.previous.pem'
const keyFile = 'ca.key'
const lifetimeMs = 5 * 365 * 86_400_000

const toDate = (ms: number): string => new Date(ms).toISOString()

async function readIfThere(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8')
  } catch (cause) {
    if (systemCode(cause) === 'ENOENT') return undefined
    throw new OperatorError(`cannot read ${path}: ${systemCode(cause) ?? 'unknown error'}`, { cause })
  }
}

function parse(pem: string): { shown: AuthorityCertificate; x509: X509Certificate } {
  const x509 = new X509Certificate(pem)
  return {
    x509,
    shown: {
      certificatePem: x509.toString(),
      fingerprint: createHash('sha256').update(x509.raw).digest('hex'),
      subject: x509.subject.replaceAll('\n', ', '),
      notBefore: x509.validFromDate.getTime(),
      notAfter: x509.validToDate.getTime(),
    },
  }
}

function parseCertificate(path: string, pem: string): { shown: AuthorityCertificate; x509: X509Certificate } {
  try {
    const parsed = parse(pem)
    if (parsed.x509.ca) return parsed
  } catch (cause) {
    throw new OperatorError(
      `${path} is not a PEM certificate: restore it from a backup, or run \`octroi ca rotate\` for a new CA`,
      { cause },
    )
  }
  throw new OperatorError(
    `${path} is not a CA certificate: restore it from a backup, or run \`octroi ca rotate\` for a new CA`,
  )
}

async function openKey(path: string, sealed: string, seal: KeySeal): Promise<KeyObject> {
  try {
    const key = createPrivateKey(await seal.open(sealed.trim()))
    if (key.asymmetricKeyType === 'ec' && key.asymmetricKeyDetails?.namedCurve === 'prime256v1') return key
  } catch (cause) {
    throw new OperatorError(
      `${path} cannot be opened with the seal key of this state folder: restore both from one backup, or run ` +
        '`octroi ca rotate` for a new CA, which every sandbox then has to be given',
      { cause },
    )
  }
  throw new OperatorError(`${path} does not hold an ECDSA P-256 key: restore it, or run \`octroi ca rotate\``)
}

function checkDates(path: string, certificate: AuthorityCertificate, now: number): void {
  if (now >= certificate.notAfter) {
    throw new OperatorError(
      `the CA in ${path} expired at ${toDate(certificate.notAfter)}: run \`octroi ca rotate\` and give sandboxes the new one`,
    )
  }
  if (now < certificate.notBefore) {
    throw new OperatorError(
      `the CA in ${path} is valid from ${toDate(certificate.notBefore)} only: correct the clock of this machine`,
    )
  }
}

async function readPrevious(folder: string, now: number): Promise<AuthorityCertificate | undefined> {
  const path = join(folder, previousFile)
  const pem = await readIfThere(path)
  if (pem === undefined) return undefined
  const { shown } = parseCertificate(path, pem)
  return now < shown.notAfter ? shown : undefined
}

async function makePair(options: AuthorityOptions): Promise<{ certificatePem: string; sealedKey: string }> {
  // Loaded here only: an ordinary start must not wait for the certificate library.
  const { issueCa } = await import('./certificate.ts')
  const keys = await crypto.subtle.generateKey({ name: 'ECDSA', namedCurve: 'P-256' }, true, [
    'sign',
    'verify',
  ])
  const der = Buffer.from(await crypto.subtle.exportKey('pkcs8', keys.privateKey))
  const plain = createPrivateKey({ key: der, format: 'der', type: 'pkcs8' }).export({
    type: 'pkcs8',
    format: 'pem',
  })
  return {
    certificatePem: await issueCa({
      commonName: `${options.name ?? 'Octroi CA'} ${randomBytes(4).toString('hex')}`,
      keys,
      now: options.clock.now(),
      lifetimeMs,
    }),
    sealedKey: await options.seal.seal(plain.toString()),
  }
}

async function create(options: AuthorityOptions): Promise<void> {
  const { folder } = options
  const { certificatePem, sealedKey } = await makePair(options)
  try {
    await writeDurably(join(folder, keyFile), `${sealedKey}\n`, { mode: 0o600, replace: false })
    await writeDurably(join(folder, certificateFile), certificatePem, { mode: 0o600, replace: false })
  } catch (cause) {
    if (systemCode(cause) === 'EEXIST') {
      throw new OperatorError(`another process is making the CA in ${folder}: start again when it is done`, {
        cause,
      })
    }
    throw new OperatorError(`cannot write the CA to ${folder}: ${systemCode(cause) ?? 'unknown error'}`, {
      cause,
    })
  }
}

/**
 * Loads the CA of the state folder, or makes it where neither of its files exists. A file that is there is never
 * overwritten: whatever is wrong with it is an `OperatorError` that names the file and the way out.
 */
export async function loadOrCreateAuthority(options: AuthorityOptions): Promise<Authority> {
  const { folder, seal, clock } = options
  await ensureFolder(folder)
  const certificatePath = join(folder, certificateFile)
  const keyPath = join(folder, keyFile)
  let sealedKey = await readOwnerOnly(keyPath)
  let certificatePem = await readIfThere(certificatePath)
  if (sealedKey === undefined && certificatePem === undefined) {
    await create(options)
    sealedKey = await readOwnerOnly(keyPath)
    certificatePem = await readIfThere(certificatePath)
  }
  if (sealedKey === undefined || certificatePem === undefined) {
    const [missing, other] = sealedKey === undefined ? [keyPath, certificatePath] : [certificatePath, keyPath]
    throw new OperatorError(
      `${missing} is missing beside ${other}: restore it from a backup, or run \`octroi ca rotate\` for a new CA`,
    )
  }
  const { shown, x509 } = parseCertificate(certificatePath, certificatePem)
  const privateKey = await openKey(keyPath, sealedKey, seal)
  if (!x509.checkPrivateKey(privateKey)) {
    throw new OperatorError(
      `${keyPath} does not belong to ${certificatePath}: restore both from one backup, or run \`octroi ca rotate\``,
    )
  }
  checkDates(certificatePath, shown, clock.now())
  // Public, but everything in the state folder is its owner's alone; versions before wrote it for everyone.
  await chmod(certificatePath, 0o600).catch(() => undefined)
  return { ...shown, privateKey, previous: await readPrevious(folder, clock.now()) }
}

/** The CA certificate of a state folder, read without its key; `undefined` before the first start. */
export async function readAuthorityCertificate(folder: string): Promise<AuthorityCertificate | undefined> {
  const path = join(folder, certificateFile)
  const pem = await readIfThere(path)
  return pem === undefined ? undefined : parseCertificate(path, pem).shown
}

/** The certificate that the last rotation replaced, read without a key; `undefined` when there is none or it expired. */
export const readPreviousCertificate = (
  folder: string,
  clock: Clock,
): Promise<AuthorityCertificate | undefined> => readPrevious(folder, clock.now())

/**
 * Replaces the CA by a new one, whatever state the old is in. The old certificate stays as `ca.previous.pem`; its key
 * is gone. The key is written first: after a crash in between the pair does not match, which loading reports and a
 * second rotation mends.
 */
export async function rotateAuthority(options: AuthorityOptions): Promise<Authority> {
  const { folder } = options
  await ensureFolder(folder)
  const { certificatePem, sealedKey } = await makePair(options)
  const old = await readIfThere(join(folder, certificateFile))
  const isReadable = old !== undefined && isCertificate(old)
  try {
    if (isReadable) await writeDurably(join(folder, previousFile), old, { mode: 0o600, replace: true })
    await writeDurably(join(folder, keyFile), `${sealedKey}\n`, { mode: 0o600, replace: true })
    await writeDurably(join(folder, certificateFile), certificatePem, { mode: 0o600, replace: true })
  } catch (cause) {
    throw new OperatorError(`cannot write the CA to ${folder}: ${systemCode(cause) ?? 'unknown error'}`, {
      cause,
    })
  }
  return loadOrCreateAuthority(options)
}

function isCertificate(pem: string): boolean {
  try {
    return parse(pem).x509.ca
  } catch {
    return false
  }
}
