import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { getCACertificates } from 'node:tls'
import { beforeAll, describe, expect, it } from 'vitest'
import { OperatorError } from '../../src/core/errors.ts'
import { loadTrustRoots } from '../../src/net/trust-roots.ts'
import type { TrustOptions } from '../../src/net/trust-roots.ts'
import { createTestCa, fingerprintOf } from '../helpers/test-ca.ts'
import type { TestCa } from '../helpers/test-ca.ts'

let first: TestCa
let second: TestCa
beforeAll(async () => {
  first = await createTestCa()
  second = await createTestCa()
})

const load = (options: Partial<TrustOptions>) =>
  loadTrustRoots({ systemRoots: false, ca: [], ownFingerprints: [], ...options })

const fingerprints = (certificates: readonly string[]): string[] => certificates.map(fingerprintOf).sort()

describe('the certificates that upstreams are verified against', () => {
  it('hold each certificate of the system store once', () => {
    const system = getCACertificates('system')
    const { certificates, notes } = load({ systemRoots: true, systemStore: () => [...system, ...system] })
    expect(certificates.length).toBe(new Set(fingerprints(system)).size)
    expect(notes).toEqual([])
  })

  it('hold every certificate of the files beside them, whatever text is around', () => {
    const file = `# company\r\n${first.cert.replaceAll('\n', '\r\n')}Subject: x\n${second.cert}`
    expect(fingerprints(load({ ca: [file] }).certificates)).toEqual(
      [first.fingerprint, second.fingerprint].sort(),
    )
  })

  it("never hold the broker's own CA, from whichever side it comes", () => {
    const options = {
      systemRoots: true,
      systemStore: () => [first.cert],
      ownFingerprints: [first.fingerprint],
    }
    const { certificates, notes } = load({ ...options, ca: [first.cert + second.cert] })
    expect(fingerprints(certificates)).toEqual([second.fingerprint])
    expect(notes.join()).toContain('CA of this broker is in the trust store')
  })

  it('are those built into Node.js where the system has none, and a note says so', () => {
    const { certificates, notes } = load({ systemRoots: true, systemStore: () => [] })
    expect(certificates.length).toBeGreaterThan(100)
    expect(notes.join()).toContain('ca-certificates')
  })

  it('are an error for the operator when there are none', () => {
    expect(() => load({})).toThrow(OperatorError)
    expect(() => load({ ca: [first.cert], ownFingerprints: [first.fingerprint] })).toThrow(/trust\.system/)
  })

  it.each([
    { name: 'has no certificate', text: 'hello', says: 'file 1: no PEM certificate' },
    {
      name: 'has a private key only',
      text: '-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n',
      says: 'file 1',
    },
    {
      name: 'has a broken certificate',
      text: '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n',
      says: 'cannot be read',
    },
  ])('are an error for the operator when a file $name', ({ text, says }) => {
    expect(() => load({ ca: [text] })).toThrow(says)
  })

  it('are read from the system without what NODE_EXTRA_CA_CERTS adds', () => {
    const folder = mkdtempSync(join(tmpdir(), 'octroi-roots-'))
    try {
      const extra = join(folder, 'extra.pem')
      writeFileSync(extra, first.cert)
      const script = `const { loadTrustRoots } = await import(${JSON.stringify(import.meta.resolve('../../src/net/trust-roots.ts'))})
        const { certificates } = loadTrustRoots({ systemRoots: true, ca: [], ownFingerprints: [] })
        console.log(certificates.some((pem) => pem.replaceAll('\\n', '') === ${JSON.stringify(first.cert.replaceAll('\n', ''))}))`
      const child = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
        env: { NODE_EXTRA_CA_CERTS: extra },
        encoding: 'utf8',
      })
      expect(child.stdout).toBe('false\n')
    } finally {
      rmSync(folder, { recursive: true })
    }
  })
})
