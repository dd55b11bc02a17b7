import { execFileSync, spawnSync } from 'node:child_process'
import { X509Certificate } from 'node:crypto'
import { mkdtemp, readFile, readdir, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { getCACertificates, rootCertificates } from 'node:tls'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { OperatorError } from '../../src/core/errors.ts'
import { writeAptConf, writeTrustFiles } from '../../src/sandbox/bundle.ts'
import { javaTrustStore, splitPem, uniqueCertificates } from '../../src/sandbox/trust-store.ts'

// A public root stands in for the broker's CA: these files hold certificates only, never a key.
const ours = new X509Certificate(rootCertificates[0] ?? '').toString()
const other = new X509Certificate(rootCertificates[1] ?? '').toString()
const hasKeytool = spawnSync('keytool', ['-help']).error === undefined

let folder: string
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'octroi-bundle-'))
})
afterEach(() => rm(folder, { recursive: true, force: true }))

describe('writeTrustFiles', () => {
  it('writes the CA first and every root of the system once', async () => {
    const files = await writeTrustFiles({ folder, caPem: ours })
    const bundle = splitPem(await readFile(files.bundle, 'utf8')).map(
      (pem) => new X509Certificate(pem).fingerprint256,
    )
    expect(bundle[0]).toBe(new X509Certificate(ours).fingerprint256)
    expect(new Set(bundle).size).toBe(bundle.length)
    const system = getCACertificates('system').map((pem) => new X509Certificate(pem).fingerprint256)
    expect(new Set(bundle)).toEqual(new Set([bundle[0], ...system]))
    expect(splitPem(await readFile(files.ca, 'utf8'))).toEqual([ours.trim()])
    expect(await readFile(files.aptConf, 'utf8')).toBe(`Acquire::https::CAInfo "${files.bundle}";\n`)
  })

  it('carries the CA before a rotation and the roots of a company too', async () => {
    const files = await writeTrustFiles({
      folder,
      caPem: `${ours}text between\n${other}`,
      extra: [rootCertificates[2] ?? ''],
    })
    expect(splitPem(await readFile(files.ca, 'utf8'))).toHaveLength(2)
    const text = await readFile(files.bundle, 'utf8')
    expect(text).toContain(other)
    expect(text).toContain(new X509Certificate(rootCertificates[2] ?? '').toString())
  })

  it('lets other users read them, and leaves nothing else in the folder', async () => {
    const previous = process.umask(0o077)
    try {
      await writeTrustFiles({ folder, caPem: ours })
    } finally {
      process.umask(previous)
    }
    const names = (await readdir(folder)).sort()
    expect(names).toEqual(['apt.conf', 'octroi-bundle.jks', 'octroi-bundle.pem', 'octroi-ca.pem'])
    for (const name of names) expect((await stat(join(folder, name))).mode & 0o777).toBe(0o644)
  })

  it('writes only what changed', async () => {
    const files = await writeTrustFiles({ folder, caPem: ours })
    const before = await stat(files.javaTrustStore)
    await writeTrustFiles({ folder, caPem: ours })
    expect((await stat(files.javaTrustStore)).ino).toBe(before.ino)
    await writeFile(files.javaTrustStore, 'broken')
    await writeTrustFiles({ folder, caPem: ours })
    expect((await readFile(files.javaTrustStore)).readUInt32BE(0)).toBe(0xfeedfeed)
  })

  it('says which file cannot be written', async () => {
    await writeFile(join(folder, 'file'), '')
    const attempt = writeTrustFiles({ folder: join(folder, 'file'), caPem: ours })
    await expect(attempt).rejects.toThrow(OperatorError)
    await expect(attempt).rejects.toThrow(join(folder, 'file'))
  })

  it('gives apt a file of its own for each path under which a sandbox sees the bundle', async () => {
    const name = await writeAptConf(folder, '/certs/octroi-bundle.pem')
    expect(await writeAptConf(folder, '/other/octroi-bundle.pem')).not.toBe(name)
    expect(await readFile(join(folder, name), 'utf8')).toBe(
      'Acquire::https::CAInfo "/certs/octroi-bundle.pem";\n',
    )
    await expect(writeAptConf(folder, '/a"b')).rejects.toThrow(OperatorError)
  })
})

describe('javaTrustStore', () => {
  it('is the same for the same certificates', () => {
    const certificates = uniqueCertificates([ours, other, ours])
    expect(certificates).toHaveLength(2)
    expect(javaTrustStore(certificates)).toEqual(javaTrustStore(uniqueCertificates([ours, other])))
  })

  it.skipIf(!hasKeytool)('is read by keytool with its password (skipped without a Java)', async () => {
    const file = join(folder, 'store.jks')
    await writeFile(file, javaTrustStore(uniqueCertificates([ours, other])))
    const options = ['-J-Duser.language=en', '-list', '-v', '-keystore', file, '-storetype', 'JKS']
    const listed = execFileSync('keytool', [...options, '-storepass', 'changeit'], {
      encoding: 'utf8',
      stdio: 'pipe',
    })
    expect(listed).toContain('Your keystore contains 2 entries')
    expect(listed).toContain('trustedCertEntry')
    expect(listed).toContain(new X509Certificate(ours).fingerprint256)
    const refused = spawnSync('keytool', [...options, '-storepass', 'wrongpassword'])
    expect(refused.status).not.toBe(0)
  })
})
