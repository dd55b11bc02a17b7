import 'reflect-metadata'
import * as x509 from '@peculiar/x509'
import { randomBytes } from 'node:crypto'
import type { webcrypto } from 'node:crypto'
import { isIP } from 'node:net'

/** How far `notBefore` lies in the past, `ms`, so that clients with a slow clock accept a fresh certificate. */
export const backdateMs = 55 * 60_000

const signingAlgorithm = { name: 'ECDSA', hash: 'SHA-256' }
const serverAuth = '1.3.6.1.5.5.7.3.1'

/** X.520 `ub-common-name`: OpenSSL refuses to build, and clients to read, a longer common name. */
const maxCommonName = 64

/** No wildcard, no NUL and nothing else that a client could read as another name. */
const certifiableName = /^[a-z0-9._-]{1,253}$/

/** 126 random bits; the first byte is kept in 0x40..0x7f so that the DER integer is positive and of full length. */
const serialNumber = (): string => {
  const bytes = randomBytes(16)
  bytes[0] = ((bytes[0] ?? 0) & 0x3f) | 0x40
  return bytes.toString('hex')
}

/** X.509 times have whole seconds; rounding down keeps `notAfter` within the signer's. */
const wholeSeconds = (ms: number): Date => new Date(Math.floor(ms / 1000) * 1000)

/** Makes a self-signed CA certificate (PEM): path length 0, so that it can sign leaves and nothing else. */
export async function issueCa(options: {
  readonly commonName: string
  readonly keys: webcrypto.CryptoKeyPair
  readonly now: number
  readonly lifetimeMs: number
}): Promise<string> {
  const { commonName, keys, now, lifetimeMs } = options
  const certificate = await x509.X509CertificateGenerator.createSelfSigned({
    serialNumber: serialNumber(),
    name: [{ CN: [commonName] }, { O: ['Octroi'] }],
    notBefore: wholeSeconds(now - backdateMs),
    notAfter: wholeSeconds(now + lifetimeMs),
    keys,
    signingAlgorithm,
    extensions: [
      new x509.BasicConstraintsExtension(true, 0, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  })
  return `${certificate.toString('pem')}\n`
}

/** The CA as the minter needs it: issuer name, key identifier and the end of validity come from the certificate. */
export interface LeafSigner {
  readonly certificate: x509.X509Certificate
  readonly privateKey: webcrypto.CryptoKey
}

/** Reads a PEM certificate for use as a `LeafSigner`. */
export const readCertificate = (pem: string): x509.X509Certificate => new x509.X509Certificate(pem)

/**
 * Makes a server certificate (PEM) for one canonical name or IP literal, valid for `lifetimeMs` from `now` but never
 * longer than its CA. The name is in the SAN; the subject carries it too while it fits.
 */
export async function issueLeaf(
  signer: LeafSigner,
  options: {
    readonly host: string
    readonly publicKey: webcrypto.CryptoKey
    readonly now: number
    readonly lifetimeMs: number
  },
): Promise<{ pem: string; notAfter: number }> {
  const { host, publicKey, now, lifetimeMs } = options
  if (isIP(host) === 0 && !certifiableName.test(host)) throw new TypeError('not a canonical host name')
  const hasCommonName = host.length <= maxCommonName
  const notAfter = wholeSeconds(Math.min(now + lifetimeMs, signer.certificate.notAfter.getTime()))
  const certificate = await x509.X509CertificateGenerator.create({
    serialNumber: serialNumber(),
    subject: hasCommonName ? [{ CN: [host] }] : [],
    issuer: signer.certificate.subjectName,
    notBefore: wholeSeconds(Math.max(now - backdateMs, signer.certificate.notBefore.getTime())),
    notAfter,
    publicKey,
    signingKey: signer.privateKey,
    signingAlgorithm,
    extensions: [
      new x509.BasicConstraintsExtension(false, undefined, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
      new x509.ExtendedKeyUsageExtension([serverAuth]),
      // RFC 5280 section 4.2.1.6: critical when the subject is empty.
      new x509.SubjectAlternativeNameExtension(
        [{ type: isIP(host) === 0 ? 'dns' : 'ip', value: host }],
        !hasCommonName,
      ),
      // RFC 5280 section 4.2.1.1; Python 3.13 and `openssl verify -x509_strict` refuse leaves without it.
      await x509.AuthorityKeyIdentifierExtension.create(signer.certificate.publicKey),
      await x509.SubjectKeyIdentifierExtension.create(publicKey),
    ],
  })
  return { pem: `${certificate.toString('pem')}\n`, notAfter: notAfter.getTime() }
}
