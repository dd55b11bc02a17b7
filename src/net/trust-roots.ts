import { createHash, X509Certificate } from 'node:crypto'
import { getCACertificates } from 'node:tls'
import { OperatorError } from '../core/errors.ts'

/** `trust:` of the configuration, files read. */
export interface TrustOptions {
  /** Trust what this machine trusts. */
  readonly systemRoots: boolean
  /** Contents of further PEM files, each with one certificate or more. */
  readonly ca: readonly string[]
  /** Lower-case hex SHA-256 of certificates never to trust: the broker's own CAs, which may be in the system store. */
  readonly ownFingerprints: readonly string[]
  /** PEM certificates of the system store; default those of this machine. */
  readonly systemStore?: () => readonly string[]
}

/** The certificates to trust, and what the operator should know of them. */
export interface TrustRoots {
  /** PEM, each certificate once. */
  readonly certificates: readonly string[]
  /** Sentences for the operator, shown at start. */
  readonly notes: readonly string[]
}

const certificateBlock = /-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----/g

/** Of a PEM block without a parse: the system store repeats each certificate some four times. */
function fingerprintOfBlock(block: string): string {
  const base64 = block.slice(block.indexOf('\n') + 1, block.lastIndexOf('-----END'))
  return createHash('sha256').update(Buffer.from(base64, 'base64')).digest('hex')
}

function readExtra(text: string, index: number): string[] {
  const place = `trust.ca, file ${index + 1}`
  const blocks = text.match(certificateBlock)
  if (!blocks) throw new OperatorError(`${place}: no PEM certificate in it`, { exitCode: 2 })
  for (const block of blocks) {
    try {
      new X509Certificate(block)
    } catch (cause) {
      throw new OperatorError(`${place}: a certificate in it cannot be read`, { exitCode: 2, cause })
    }
  }
  return blocks
}

function readSystem(options: TrustOptions, notes: string[]): readonly string[] {
  if (!options.systemRoots) return []
  const { systemStore = () => getCACertificates('system') } = options
  const found = systemStore()
  if (found.length > 0) return found
  notes.push(
    'The system has no trusted certificates (package ca-certificates); the list built into Node.js is used.',
  )
  return getCACertificates('bundled')
}

/**
 * The certificates that upstreams are verified against, without the broker's own. An `OperatorError` when a file cannot
 * be read as PEM or nothing is left to trust.
 */
export function loadTrustRoots(options: TrustOptions): TrustRoots {
  const notes: string[] = []
  const distinct = new Map<string, string>()
  for (const block of [...readSystem(options, notes), ...options.ca.flatMap(readExtra)]) {
    distinct.set(fingerprintOfBlock(block), block)
  }
  for (const own of options.ownFingerprints) {
    if (distinct.delete(own))
      notes.push('The CA of this broker is in the trust store; upstreams are not verified with it.')
  }
  if (distinct.size === 0) {
    const message =
      'no certificate to verify upstreams with: set `trust.system: true` or list files in `trust.ca`'
    throw new OperatorError(message, { exitCode: 2 })
  }
  return { certificates: [...distinct.values()], notes }
}
