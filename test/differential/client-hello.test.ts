import { readdirSync, readFileSync } from 'node:fs'
import { Duplex } from 'node:stream'
import { createSecureContext, TLSSocket, type SecureContext } from 'node:tls'
import { beforeAll, describe, expect, it } from 'vitest'
import { createClientHelloReader } from '../../src/tls/client-hello.ts'
import { mutated } from '../fuzz/mutate.ts'
import { proofCount, runSeed } from '../helpers/proof-count.ts'
import { seeded } from '../helpers/seeded.ts'
import { createTestCa } from '../helpers/test-ca.ts'

const seed = runSeed()
const count = proofCount(600, 100_000)

/** What OpenSSL, as a server, makes of the first bytes of a client. */
interface Answer {
  /** It answered with a handshake message, not an alert. */
  readonly goesOn: boolean
  readonly name: string | undefined
  /** Only where the client offers protocols and the handshake gets that far. */
  readonly protocols: readonly string[] | undefined
}

let context: SecureContext

beforeAll(async () => {
  const ca = await createTestCa()
  context = createSecureContext(await ca.issue({ names: ['a.test'] }))
})

/** In memory, so that the answer is there after a few turns of the event loop. */
async function askOpenssl(bytes: Buffer): Promise<Answer> {
  let written = Buffer.alloc(0)
  let name: string | undefined
  let protocols: readonly string[] | undefined
  let isOver = false
  const wire = new Duplex({
    read: () => undefined,
    write(chunk: Buffer, _encoding, done) {
      written = Buffer.concat([written, chunk])
      done()
    },
  })
  const socket = new TLSSocket(wire, {
    isServer: true,
    secureContext: context,
    minVersion: 'TLSv1.2',
    SNICallback(servername, done) {
      name = servername
      done(null, context)
    },
    ALPNCallback(offered) {
      protocols = offered.protocols
      return offered.protocols[0]
    },
  } as ConstructorParameters<typeof TLSSocket>[1])
  socket.on('error', () => (isOver = true))
  wire.on('error', () => (isOver = true))
  wire.push(bytes)
  for (let turn = 0; turn < 12 && !isOver && written.length === 0; turn++) {
    await new Promise((resolve) => setImmediate(resolve))
  }
  const goesOn = written[0] === 22
  socket.destroy()
  wire.destroy()
  return { goesOn, name, protocols }
}

const isGrease = (protocol: string): boolean =>
  /^([\x0a\x1a\x2a\x3a\x4a\x5a\x6a\x7a\x8a\x9a\xaa\xba\xca\xda\xea\xfa])\1$/.test(protocol)

describe(`a ClientHello read by OpenSSL as well, OCTROI_SEED=${seed}`, () => {
  it(`names the same server over ${count} mutations`, { timeout: 3_600_000 }, async () => {
    const random = seeded(seed)
    const folder = new URL('../fuzz/corpus/client-hello/', import.meta.url)
    const pool = readdirSync(folder)
      .filter((file) => file.startsWith('taken-'))
      .map((file) => readFileSync(new URL(file, folder)))
    const dictionary = [
      '\0\0',
      'a.test',
      '\0',
      'A',
      '.',
      '\0\x10',
      '\x02h2',
      '\x16\x03\x01',
      '\0\x2b',
      '\x03\x04',
    ]
    let compared = 0
    for (let number = 0; number < count;) {
      const bytes = mutated({ pool, dictionary, maxBytes: 1_024 }, random)
      const ours = createClientHelloReader().push(bytes)
      if (typeof ours === 'string') continue
      number++
      const theirs = await askOpenssl(bytes)
      if (!theirs.goesOn) continue
      compared++
      const shown = { number, input: bytes.toString('base64') }
      expect({ ...shown, name: ours.serverName }).toEqual({ ...shown, name: theirs.name?.toLowerCase() })
      if (theirs.protocols === undefined) continue
      const protocols = theirs.protocols.filter((protocol) => !isGrease(protocol))
      // OpenSSL prints a byte beyond ASCII in a way of its own; which bytes were sent is then not to be read from it.
      if (ours.alpn.some((protocol) => /[^\x20-\x7e]/.test(protocol))) continue
      expect({ ...shown, alpn: ours.alpn }).toEqual({ ...shown, alpn: protocols })
    }
    expect(compared).toBeGreaterThan(count / 10)
  })
})
