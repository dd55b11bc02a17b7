import { generateKeyPairSync, X509Certificate } from 'node:crypto'
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { inspect } from 'node:util'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import { OperatorError } from '../../src/core/errors.ts'
import { loadOrCreateAuthority, readAuthorityCertificate, rotateAuthority } from '../../src/tls/authority.ts'
import type { Authority, AuthorityOptions } from '../../src/tls/authority.ts'
import { manualClock } from '../helpers/manual-clock.ts'
import { openssl } from '../helpers/openssl.ts'
import { plainSeal } from '../helpers/plain-seal.ts'
import { createTestCa } from '../helpers/test-ca.ts'

const hour = 3_600_000
const day = 24 * hour

let root: string
let folder: string
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'octroi-ca-'))
  folder = join(root, 'state')
})
afterEach(() => rmSync(root, { recursive: true }))

const seal = plainSeal()
const load = (overrides: Partial<AuthorityOptions> = {}): Promise<Authority> =>
  loadOrCreateAuthority({ folder, seal, clock: systemClock, ...overrides })

const path = (name: string): string => join(folder, name)
const modeOf = (name: string): number => statSync(name).mode & 0o777

/** What loading fails with, and a check that it changed no file. */
async function failure(): Promise<OperatorError> {
  const before = readdirSync(folder).map((name) => [name, readFileSync(path(name), 'utf8')])
  const error: unknown = await load().then(
    () => undefined,
    (thrown: unknown) => thrown,
  )
  expect(error).toBeInstanceOf(OperatorError)
  expect(readdirSync(folder).map((name) => [name, readFileSync(path(name), 'utf8')])).toEqual(before)
  return error as OperatorError
}

describe('the first start', () => {
  it('makes a certificate and a sealed key, all of it for the owner alone', async () => {
    await load()
    expect(readdirSync(folder).sort()).toEqual(['ca.key', 'ca.pem'])
    expect([modeOf(folder), modeOf(path('ca.key')), modeOf(path('ca.pem'))]).toEqual([0o700, 0o600, 0o600])
    expect(readFileSync(path('ca.key'), 'utf8')).toMatch(/^sealed:/)
    expect(readFileSync(path('ca.key'), 'utf8')).not.toContain('PRIVATE KEY')
  })

  it('takes a certificate that everybody may read, and closes it', async () => {
    const { fingerprint } = await load()
    chmodSync(path('ca.pem'), 0o644)
    expect((await load()).fingerprint).toBe(fingerprint)
    expect(modeOf(path('ca.pem'))).toBe(0o600)
  })

  it('makes a CA that can sign leaves only, valid for five years from an hour ago at most', async () => {
    const { certificatePem, notBefore, notAfter, fingerprint } = await load()
    const x509 = new X509Certificate(certificatePem)
    expect(x509.ca).toBe(true)
    expect(fingerprint).toBe(x509.fingerprint256.replaceAll(':', '').toLowerCase())
    expect(Date.now() - notBefore).toBeLessThanOrEqual(hour)
    expect(Date.now() - notBefore).toBeGreaterThan(hour / 2)
    expect(Math.round((notAfter - Date.now()) / day)).toBe(5 * 365)
    expect(x509.serialNumber).toMatch(/^[4-7][0-9A-F]{31}$/)
  })

  it('makes another key and another name each time', async () => {
    const first = await load()
    folder = join(root, 'other')
    const second = await load()
    expect(second.fingerprint).not.toBe(first.fingerprint)
    expect(second.subject).not.toBe(first.subject)
  })

  it('makes one CA when two processes start at once', async () => {
    const outcomes = await Promise.allSettled([load(), load()])
    const made = outcomes.filter((outcome) => outcome.status === 'fulfilled')
    expect(made.length).toBeGreaterThanOrEqual(1)
    const { fingerprint } = await load()
    for (const { value } of made) expect(value.fingerprint).toBe(fingerprint)
    expect(readdirSync(folder).sort()).toEqual(['ca.key', 'ca.pem'])
  })

  it('prints nothing of the key', async () => {
    const authority = await load()
    const scalar = authority.privateKey.export({ format: 'jwk' }).d ?? ''
    expect(scalar).not.toBe('')
    expect(inspect(authority, { depth: 9, showHidden: true }) + JSON.stringify(authority)).not.toContain(
      scalar,
    )
  })
})

describe('a later start', () => {
  it('loads the same CA', async () => {
    const first = await load()
    const second = await load()
    expect(second.fingerprint).toBe(first.fingerprint)
    expect(second.privateKey.equals(first.privateKey)).toBe(true)
  })

  it('refuses a key file that others can read, and says how to close it', async () => {
    await load()
    chmodSync(path('ca.key'), 0o640)
    expect((await failure()).message).toContain(`chmod 600 ${path('ca.key')}`)
  })

  it('refuses a folder that others can enter', async () => {
    await load()
    chmodSync(folder, 0o755)
    expect((await failure()).message).toContain(`chmod 700 ${folder}`)
  })

  it('refuses a key sealed by another state folder', async () => {
    await load({ seal: plainSeal('other') })
    expect((await failure()).message).toMatch(/ca\.key cannot be opened .*ca rotate/)
  })

  it('refuses an empty key file', async () => {
    await load()
    writeFileSync(path('ca.key'), '')
    expect((await failure()).message).toContain(path('ca.key'))
  })

  it('refuses a key of another kind', async () => {
    await load()
    const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-384' })
    const text = privateKey.export({ type: 'pkcs8', format: 'pem' }).toString()
    writeFileSync(path('ca.key'), await seal.seal(text))
    expect((await failure()).message).toContain('does not hold an ECDSA P-256 key')
  })

  it.each(['ca.key', 'ca.pem'])('refuses to go on without %s, rather than making a new one', async (name) => {
    await load()
    unlinkSync(path(name))
    expect((await failure()).message).toContain(`${path(name)} is missing`)
  })

  it('refuses a key and a certificate that do not belong together', async () => {
    await load()
    const key = readFileSync(path('ca.key'))
    await rotateAuthority({ folder, seal, clock: systemClock })
    writeFileSync(path('ca.key'), key)
    expect((await failure()).message).toContain('does not belong to')
  })

  it('refuses a certificate that is no CA, and text that is no certificate', async () => {
    await load()
    writeFileSync(path('ca.pem'), (await (await createTestCa()).issue({ names: ['a.test'] })).cert)
    expect((await failure()).message).toContain('ca.pem is not a CA certificate')
    writeFileSync(path('ca.pem'), 'nothing')
    expect((await failure()).message).toContain('ca.pem is not a PEM certificate')
  })

  it('refuses a CA past its end or before its beginning', async () => {
    const clock = manualClock(Date.now())
    const { notAfter } = await load({ clock })
    await expect(load({ clock: manualClock(notAfter) })).rejects.toThrow(/expired at .*octroi ca rotate/)
    await expect(load({ clock: manualClock(Date.now() - 2 * hour) })).rejects.toThrow(/clock/)
  })

  it('says which file it cannot read', async () => {
    await load()
    unlinkSync(path('ca.key'))
    mkdirSync(path('ca.key'), { mode: 0o700 })
    await expect(load()).rejects.toThrow(`cannot read ${path('ca.key')}: EISDIR`)
  })
})

describe('a rotation', () => {
  it('makes a new CA and keeps the old certificate, without its key, for bundles', async () => {
    const old = await load()
    const authority = await rotateAuthority({ folder, seal, clock: systemClock })
    expect(authority.fingerprint).not.toBe(old.fingerprint)
    expect(authority.previous?.fingerprint).toBe(old.fingerprint)
    expect(readdirSync(folder).sort()).toEqual(['ca.key', 'ca.pem', 'ca.previous.pem'])
    expect([modeOf(path('ca.key')), modeOf(path('ca.previous.pem'))]).toEqual([0o600, 0o600])
    expect((await load()).fingerprint).toBe(authority.fingerprint)
  })

  it('forgets the old certificate once it has expired', async () => {
    const old = await load()
    await rotateAuthority({ folder, seal, clock: manualClock(old.notAfter - day) })
    const after = await load({ clock: manualClock(old.notAfter + day) })
    expect(after.previous).toBeUndefined()
  })

  it('mends what loading refuses', async () => {
    await load({ seal: plainSeal('other') })
    writeFileSync(path('ca.pem'), 'nothing')
    const { fingerprint } = await rotateAuthority({ folder, seal, clock: systemClock })
    expect((await load()).fingerprint).toBe(fingerprint)
  })
})

describe('the certificate alone', () => {
  it('is read without the key, and is absent before the first start', async () => {
    expect(await readAuthorityCertificate(folder)).toBeUndefined()
    const { fingerprint } = await load()
    unlinkSync(path('ca.key'))
    expect((await readAuthorityCertificate(folder))?.fingerprint).toBe(fingerprint)
  })

  it('has what strict clients ask of a CA', async (context) => {
    await load()
    const text = openssl(context, ['x509', '-in', path('ca.pem'), '-noout', '-text'])
    expect(text).toMatch(/Basic Constraints: critical\s+CA:TRUE, pathlen:0\n/)
    expect(text).toMatch(/Key Usage: critical\s+Certificate Sign, CRL Sign\n/)
    expect(text).toMatch(/Subject Key Identifier:\s+[0-9A-F:]{59}\n/)
    expect(openssl(context, ['verify', '-x509_strict', '-CAfile', path('ca.pem'), path('ca.pem')])).toContain(
      'OK',
    )
  })
})
