import { createHash, X509Certificate } from 'node:crypto'

// Java's default password. It only keys an integrity check, the certificates are public; Java reads the store without
// a password too and then skips the check.
const password = 'changeit'

/** Longest list of certificates that is taken for a real one. */
const maxCertificates = 10_000

/** Each certificate once, in the order of its first occurrence. Something that is no certificate is a `TypeError`. */
export function uniqueCertificates(pems: readonly string[]): X509Certificate[] {
  const seen = new Map<string, X509Certificate>()
  for (const pem of pems) {
    const certificate = new X509Certificate(pem)
    if (!seen.has(certificate.fingerprint256)) seen.set(certificate.fingerprint256, certificate)
  }
  return [...seen.values()]
}

/** The certificates in a PEM text, ignoring what stands between them. */
export function splitPem(text: string): string[] {
  return text.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? []
}

/** A Java key store (JKS, version 2) of trusted certificates, password `changeit`. Equal input gives equal bytes. */
export function javaTrustStore(certificates: readonly X509Certificate[]): Buffer {
  if (certificates.length > maxCertificates) throw new TypeError('too many certificates for a trust store')
  const parts: Buffer[] = [uint(4, 0xfeedfeed), uint(4, 2), uint(4, certificates.length)]
  certificates.forEach((certificate, index) => {
    const created = Buffer.alloc(8)
    created.writeBigInt64BE(BigInt(certificate.validFromDate.getTime()))
    const der = certificate.raw
    // Tag 2 is a trusted certificate; aliases must differ in lower case.
    parts.push(uint(4, 2), utf(`octroi-${index}`), created, utf('X.509'), uint(4, der.length), der)
  })
  const body = Buffer.concat(parts)
  const digest = createHash('sha1')
    .update(Buffer.from(password, 'utf16le').swap16())
    .update('Mighty Aphrodite')
    .update(body)
    .digest()
  return Buffer.concat([body, digest])
}

function uint(bytes: number, value: number): Buffer {
  const buffer = Buffer.alloc(bytes)
  buffer.writeUIntBE(value, 0, bytes)
  return buffer
}

function utf(ascii: string): Buffer {
  return Buffer.concat([uint(2, ascii.length), Buffer.from(ascii, 'ascii')])
}
