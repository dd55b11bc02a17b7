import 'reflect-metadata'
import * as x509 from '@peculiar/x509'
import { createHash, randomBytes, X509Certificate } from 'node:crypto'
import type { webcrypto } from 'node:crypto'

const hour = 3_600_000
const day = 24 * hour
const serverAuth = '1.3.6.1.5.5.7.3.1'

type KeyKind = 'p256' | 'rsa2048'

interface Validity {
  /** `ms` since the epoch; default one hour ago. */
  notBefore?: number
  /** `ms` since the epoch; default in 30 days. */
  notAfter?: number
}

export interface TestCaOptions extends Validity {
  /** Common name; default a random one. */
  name?: string
  /** `pathLenConstraint`; default none. */
  pathLength?: number
  /** Permitted DNS subtree (RFC 5280 section 4.2.1.10); default none. */
  permittedDns?: string
  /** `false` makes an issuer that is not allowed to be one; default `true`. */
  isCa?: boolean
}

export interface IssueOptions extends Validity {
  /** DNS names of the SAN. */
  names?: readonly string[]
  /** IP addresses of the SAN. */
  ips?: readonly string[]
  /** Common name; default the first name, or an empty subject when there is none. */
  commonName?: string
  /** Object identifiers of the extended key usage; default serverAuth. */
  usages?: readonly string[]
  /** Digest of the signature; default `SHA-256`. */
  hash?: 'SHA-1' | 'SHA-256'
  keyKind?: KeyKind
}

export interface Issued {
  /** PEM of the leaf alone. */
  readonly cert: string
  /** PKCS #8 PEM. */
  readonly key: string
  /** PEM of the leaf and every intermediate up to, but without, the root: what a server sends. */
  readonly chain: string
  /** Lower-case hex SHA-256 of the leaf's DER. */
  readonly fingerprint: string
}

export interface TestCa {
  /** PEM of the CA certificate. */
  readonly cert: string
  /** PKCS #8 PEM. */
  readonly key: string
  readonly fingerprint: string
  issue(options: IssueOptions): Promise<Issued>
  /** A CA signed by this one. */
  intermediate(options?: TestCaOptions): Promise<TestCa>
}

const keyAlgorithm = (kind: KeyKind) =>
  kind === 'p256'
    ? { name: 'ECDSA', namedCurve: 'P-256' }
    : {
        name: 'RSASSA-PKCS1-v1_5',
        hash: 'SHA-256',
        modulusLength: 2048,
        publicExponent: new Uint8Array([1, 0, 1]),
      }

const makeKeys = async (kind: KeyKind = 'p256'): Promise<webcrypto.CryptoKeyPair> =>
  (await crypto.subtle.generateKey(keyAlgorithm(kind), true, ['sign', 'verify'])) as webcrypto.CryptoKeyPair

const pkcs8Pem = async (key: webcrypto.CryptoKey): Promise<string> => {
  const der = Buffer.from(await crypto.subtle.exportKey('pkcs8', key)).toString('base64')
  return `-----BEGIN PRIVATE KEY-----\n${der.replace(/.{64}/g, '$&\n').trimEnd()}\n-----END PRIVATE KEY-----\n`
}

const pem = (certificate: x509.X509Certificate): string => `${certificate.toString('pem')}\n`

/** Lower-case hex SHA-256 of a PEM certificate's DER. */
export const fingerprintOf = (certPem: string): string =>
  createHash('sha256').update(new X509Certificate(certPem).raw).digest('hex')

const serial = (): string => Buffer.concat([Buffer.of(0x4a), randomBytes(15)]).toString('hex')

const dates = (validity: Validity): { notBefore: Date; notAfter: Date } => ({
  notBefore: new Date(validity.notBefore ?? Date.now() - hour),
  notAfter: new Date(validity.notAfter ?? Date.now() + 30 * day),
})

interface Signer {
  readonly certificate: x509.X509Certificate
  readonly keys: webcrypto.CryptoKeyPair
  /** PEM of this CA and its issuers, the root left out. */
  readonly chain: string
}

const nameConstraints = (dnsName: string): x509.Extension => {
  const name = Buffer.from(dnsName)
  const wrap = (tag: number, body: Buffer): Buffer => Buffer.concat([Buffer.of(tag, body.length), body])
  // NameConstraints ::= SEQUENCE { permittedSubtrees [0] { GeneralSubtree { dNSName [2] } } }
  const value = wrap(0x30, wrap(0xa0, wrap(0x30, wrap(0x82, name))))
  return new x509.Extension('2.5.29.30', true, value)
}

const caCertificate = async (
  options: TestCaOptions,
  keys: webcrypto.CryptoKeyPair,
  parent?: Signer,
): Promise<x509.X509Certificate> => {
  const {
    name = `Test CA ${randomBytes(4).toString('hex')}`,
    pathLength,
    permittedDns,
    isCa = true,
  } = options
  const extensions: x509.Extension[] = [
    new x509.BasicConstraintsExtension(isCa, isCa ? pathLength : undefined, true),
    new x509.KeyUsagesExtension(
      isCa
        ? x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign
        : x509.KeyUsageFlags.digitalSignature,
      true,
    ),
    await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
  ]
  if (permittedDns !== undefined) extensions.push(nameConstraints(permittedDns))
  if (parent) extensions.push(await x509.AuthorityKeyIdentifierExtension.create(parent.certificate.publicKey))
  return x509.X509CertificateGenerator.create({
    serialNumber: serial(),
    subject: [{ CN: [name] }],
    issuer: parent ? parent.certificate.subjectName : [{ CN: [name] }],
    ...dates(options),
    publicKey: keys.publicKey,
    signingKey: (parent?.keys ?? keys).privateKey,
    signingAlgorithm: { name: 'ECDSA', hash: 'SHA-256' },
    extensions,
  })
}

const issueFrom = async (signer: Signer, options: IssueOptions): Promise<Issued> => {
  const keys = await makeKeys(options.keyKind)
  const names: x509.JsonGeneralNames = [
    ...(options.names ?? []).map((value) => ({ type: 'dns' as const, value })),
    ...(options.ips ?? []).map((value) => ({ type: 'ip' as const, value })),
  ]
  const commonName = options.commonName ?? options.names?.[0]
  const extensions: x509.Extension[] = [
    new x509.BasicConstraintsExtension(false, undefined, true),
    new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
    new x509.ExtendedKeyUsageExtension([...(options.usages ?? [serverAuth])]),
    await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
    await x509.AuthorityKeyIdentifierExtension.create(signer.certificate.publicKey),
  ]
  if (names.length > 0)
    extensions.push(new x509.SubjectAlternativeNameExtension(names, commonName === undefined))
  const certificate = await x509.X509CertificateGenerator.create({
    serialNumber: serial(),
    subject: commonName === undefined ? [] : [{ CN: [commonName] }],
    issuer: signer.certificate.subjectName,
    ...dates(options),
    publicKey: keys.publicKey,
    signingKey: signer.keys.privateKey,
    signingAlgorithm: { name: 'ECDSA', hash: options.hash ?? 'SHA-256' },
    extensions,
  })
  const cert = pem(certificate)
  return {
    cert,
    key: await pkcs8Pem(keys.privateKey),
    chain: cert + signer.chain,
    fingerprint: fingerprintOf(cert),
  }
}

const asTestCa = async (signer: Signer): Promise<TestCa> => ({
  cert: pem(signer.certificate),
  key: await pkcs8Pem(signer.keys.privateKey),
  fingerprint: fingerprintOf(pem(signer.certificate)),
  issue: (options) => issueFrom(signer, options),
  async intermediate(options = {}) {
    const keys = await makeKeys()
    const certificate = await caCertificate(options, keys, signer)
    return asTestCa({ certificate, keys, chain: pem(certificate) + signer.chain })
  },
})

/** A root CA with an ECDSA P-256 key, made in the test: `(await createTestCa()).issue({ names: ['a.test'] })`. */
export async function createTestCa(options: TestCaOptions = {}): Promise<TestCa> {
  const keys = await makeKeys()
  const certificate = await caCertificate(options, keys)
  return asTestCa({ certificate, keys, chain: '' })
}
