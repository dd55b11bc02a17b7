import 'reflect-metadata'
import { randomBytes, webcrypto } from 'node:crypto'
import * as x509 from '@peculiar/x509'

const hourMs = 3_600_000
const algorithm = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' }

/**
 * A certificate authority that lives as long as the tour, and one certificate of it for a server with these names.
 * @param {readonly string[]} names DNS names of the server
 * @returns {Promise<{ ca: string, cert: string, key: string }>} PEM
 */
export async function makeAuthority(names) {
  x509.cryptoProvider.set(/** @type {Crypto} */ (/** @type {unknown} */ (webcrypto)))
  const validity = { notBefore: new Date(Date.now() - hourMs), notAfter: new Date(Date.now() + 24 * hourMs) }
  const root = await makeKeys()
  const ca = await x509.X509CertificateGenerator.createSelfSigned({
    ...validity,
    serialNumber: serial(),
    name: 'CN=CA of the tour',
    keys: root,
    signingAlgorithm: algorithm,
    extensions: [
      new x509.BasicConstraintsExtension(true, 0, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign, true),
      await x509.SubjectKeyIdentifierExtension.create(root.publicKey),
    ],
  })
  const keys = await makeKeys()
  const leaf = await x509.X509CertificateGenerator.create({
    ...validity,
    serialNumber: serial(),
    subject: `CN=${names[0]}`,
    issuer: ca.subject,
    publicKey: keys.publicKey,
    signingKey: root.privateKey,
    signingAlgorithm: algorithm,
    extensions: [
      new x509.SubjectAlternativeNameExtension(names.map((value) => ({ type: 'dns', value }))),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
      new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.serverAuth]),
      await x509.AuthorityKeyIdentifierExtension.create(ca.publicKey),
    ],
  })
  const pkcs8 = Buffer.from(await webcrypto.subtle.exportKey('pkcs8', keys.privateKey))
  return { ca: ca.toString('pem'), cert: leaf.toString('pem'), key: pem('PRIVATE KEY', pkcs8) }
}

const makeKeys = () => webcrypto.subtle.generateKey(algorithm, true, ['sign', 'verify'])

// The first bit clear, the number positive.
const serial = () => `4a${randomBytes(15).toString('hex')}`

/** @param {string} label @param {Buffer} der */
function pem(label, der) {
  const lines = der.toString('base64').match(/.{1,64}/g) ?? []
  return [`-----BEGIN ${label}-----`, ...lines, `-----END ${label}-----`, ''].join('\n')
}
