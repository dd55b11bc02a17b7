import { describe, expect, it } from 'vitest'
import { createClientHelloReader, maxClientHelloBytes } from '../../src/tls/client-hello.ts'
import type { ClientHello, ClientHelloResult } from '../../src/tls/client-hello.ts'
import {
  captureHello,
  extension,
  helloMessage,
  messageOf,
  serverNames,
  toRecords,
  vector,
} from '../helpers/client-hello.ts'

const read = (...chunks: readonly Uint8Array[]): ClientHelloResult => {
  const reader = createClientHelloReader()
  let result: ClientHelloResult = 'need_more'
  for (const chunk of chunks) result = reader.push(chunk)
  return result
}

const readExtensions = (...extensions: readonly Uint8Array[]): ClientHelloResult =>
  read(toRecords(helloMessage(extensions)))

const plain: ClientHello = {
  serverName: 'a.test',
  alpn: [],
  ech: false,
  earlyData: false,
  versions: [0x0303],
}

describe('a ClientHello of a real client', () => {
  it('yields its name in lower case, its protocols and its versions', async () => {
    const hello = await captureHello({ servername: 'API.Good.test', ALPNProtocols: ['h2', 'http/1.1'] })
    expect(hello.length).toBeGreaterThan(1024)
    expect(read(hello)).toEqual({
      serverName: 'api.good.test',
      alpn: ['h2', 'http/1.1'],
      ech: false,
      earlyData: false,
      versions: [0x0304, 0x0303],
    })
  })

  it('has no server name when the client sends none', async () => {
    expect(read(await captureHello())).toMatchObject({ serverName: undefined, alpn: [] })
  })

  it('speaks of TLS 1.2 alone by its legacy version', async () => {
    const hello = await captureHello({ servername: 'a.test', maxVersion: 'TLSv1.2' })
    expect(read(hello)).toMatchObject({ serverName: 'a.test', versions: [0x0303] })
  })

  it('reads the same whichever byte the network cuts it at', async () => {
    const hello = await captureHello({ servername: 'api.good.test', ALPNProtocols: ['http/1.1'] })
    const whole = read(hello)
    for (let cut = 1; cut < hello.length; cut += 1) {
      const reader = createClientHelloReader()
      expect(reader.push(hello.subarray(0, cut))).toBe('need_more')
      expect(reader.push(hello.subarray(cut))).toEqual(whole)
    }
  })

  it('reads the same whichever byte the client ends its first record at', async () => {
    const hello = await captureHello({ servername: 'api.good.test', ALPNProtocols: ['http/1.1'] })
    const whole = read(hello)
    const message = messageOf(hello)
    for (let cut = 1; cut < message.length; cut += 1) {
      const records = [toRecords(message.subarray(0, cut)), toRecords(message.subarray(cut))]
      expect(read(Buffer.concat(records))).toEqual(whole)
    }
  })

  it('reads the same in records of one byte that arrive a byte at a time', async () => {
    const hello = await captureHello({ servername: 'api.good.test' })
    const records = toRecords(messageOf(hello), 1)
    const reader = createClientHelloReader()
    for (const byte of records.subarray(0, -1)) expect(reader.push(Uint8Array.of(byte))).toBe('need_more')
    expect(reader.push(records.subarray(-1))).toEqual(read(hello))
  })
})

describe('a ClientHello made by hand', () => {
  it('is complete without extensions', () => {
    expect(read(toRecords(helloMessage()))).toEqual({ ...plain, serverName: undefined })
  })

  it('is read up to 64 KiB, as post-quantum key shares may need', () => {
    const spent = helloMessage([serverNames('a.test'), extension(21, Buffer.alloc(0))]).length
    const fitting = [serverNames('a.test'), extension(21, Buffer.alloc(maxClientHelloBytes - spent))]
    // The extensions' own length field of two bytes ends a little below 64 KiB.
    expect(helloMessage(fitting).length).toBe(maxClientHelloBytes)
    expect(read(toRecords(helloMessage(fitting)))).toEqual(plain)
    expect(read(toRecords(helloMessage(fitting), 700))).toEqual(plain)
  })

  it('is refused from its header on when it announces more than 64 KiB', () => {
    expect(read(Buffer.of(22, 3, 1, 0, 4, 1, 1, 0, 0))).toBe('malformed')
  })

  it('ignores what the client sends in later records', () => {
    const hello = toRecords(helloMessage([serverNames('a.test')]))
    expect(read(Buffer.concat([hello, Buffer.of(20, 3, 3, 0, 1, 1)]))).toEqual(plain)
  })

  it('names Encrypted ClientHello, its predecessor and early data', () => {
    expect(readExtensions(serverNames('a.test'), extension(0xfe0d, Buffer.of(0)))).toEqual({
      ...plain,
      ech: true,
    })
    expect(readExtensions(serverNames('a.test'), extension(0xffce, Buffer.of(0)))).toEqual({
      ...plain,
      ech: true,
    })
    expect(readExtensions(serverNames('a.test'), extension(42, Buffer.alloc(0)))).toEqual({
      ...plain,
      earlyData: true,
    })
  })

  it('leaves GREASE out of protocols and versions and accepts it as an extension', () => {
    const grease = extension(0x1a1a, Buffer.of(0))
    const alpn = extension(16, vector(2, vector(1, Buffer.of(0x2a, 0x2a)), vector(1, Buffer.from('h2'))))
    const versions = extension(43, vector(1, Buffer.of(0xfa, 0xfa, 3, 4)))
    expect(readExtensions(grease, serverNames('a.test'), alpn, versions)).toEqual({
      ...plain,
      alpn: ['h2'],
      versions: [0x0304],
    })
  })

  it('reads a hundred protocols', () => {
    const protocols = Array.from({ length: 100 }, (_, index) => `p${index}`)
    const alpn = extension(16, vector(2, ...protocols.map((name) => vector(1, Buffer.from(name)))))
    expect(readExtensions(alpn)).toMatchObject({ alpn: protocols })
  })
})

const nameList = (...entries: readonly Uint8Array[]): Buffer => extension(0, vector(2, ...entries))
const hostEntry = (name: string): Buffer => Buffer.concat([Buffer.of(0), vector(2, Buffer.from(name))])

const malformed: readonly { name: string; extensions: readonly Uint8Array[] }[] = [
  { name: 'two server_name extensions', extensions: [serverNames('a.test'), serverNames('b.test')] },
  { name: 'two names in one extension', extensions: [serverNames('a.test', 'b.test')] },
  { name: 'an empty list of names', extensions: [nameList()] },
  { name: 'an empty name', extensions: [serverNames('')] },
  { name: 'a name with a NUL', extensions: [serverNames('a.test\0.b.test')] },
  { name: 'a name with a space', extensions: [serverNames('a.test b.test')] },
  { name: 'a name with a byte above 126', extensions: [serverNames('ä.test')] },
  { name: 'a name of 256 bytes', extensions: [serverNames('a'.repeat(256))] },
  {
    name: 'a name of an unknown type',
    extensions: [nameList(Buffer.concat([Buffer.of(1), vector(2, Buffer.from('a.test'))]))],
  },
  {
    name: 'a list of names shorter than its extension',
    extensions: [extension(0, Buffer.concat([vector(2, hostEntry('a.test')), Buffer.of(0)]))],
  },
  { name: 'an empty list of protocols', extensions: [extension(16, vector(2))] },
  { name: 'an empty protocol', extensions: [extension(16, vector(2, vector(1)))] },
  { name: 'no version in supported_versions', extensions: [extension(43, vector(1))] },
  { name: 'half a version', extensions: [extension(43, vector(1, Buffer.of(3, 4, 3)))] },
  { name: 'an early_data extension with a body', extensions: [extension(42, Buffer.of(0))] },
  {
    name: 'two extensions of a type that is not read',
    extensions: [extension(10, Buffer.of(0)), extension(10, Buffer.of(0))],
  },
  {
    name: 'an extension after pre_shared_key',
    extensions: [extension(41, Buffer.of(0)), serverNames('a.test')],
  },
  { name: 'an extension longer than the list', extensions: [Buffer.of(0, 10, 0, 9, 1)] },
]

describe('a malformed ClientHello', () => {
  it.each(malformed)('is refused for $name', ({ extensions }) => {
    expect(readExtensions(...extensions)).toBe('malformed')
  })

  it('is refused when bytes follow its extensions', () => {
    const message = helloMessage([serverNames('a.test')])
    message.writeUIntBE(message.length - 4 + 1, 1, 3)
    expect(read(toRecords(Buffer.concat([message, Buffer.of(0)])))).toBe('malformed')
  })

  it('is refused when another message follows inside its record', () => {
    const message = helloMessage([serverNames('a.test')])
    expect(read(toRecords(Buffer.concat([message, message])))).toBe('malformed')
  })

  it('is refused for an oversized session id, an empty record, a record over 2^14 and another record type inside', () => {
    const message = helloMessage([serverNames('a.test')])
    expect(read(toRecords(helloMessage([], Buffer.alloc(33))))).toBe('malformed')
    expect(read(Buffer.of(22, 3, 1, 0, 0))).toBe('malformed')
    expect(read(Buffer.of(22, 3, 1, 0x40, 0x01))).toBe('malformed')
    expect(read(Buffer.concat([toRecords(message.subarray(0, 10)), Buffer.of(23, 3, 1)]))).toBe('malformed')
    expect(read(toRecords(Buffer.concat([Buffer.of(2), message.subarray(1)])))).toBe('malformed')
  })

  it('stays refused whatever comes after', () => {
    const hello = toRecords(helloMessage([serverNames('a.test')]))
    expect(read(Buffer.of(22, 3, 1, 0, 0), hello)).toBe('malformed')
    expect(read(Buffer.from('GET / HTTP/1.1\r\n'), hello)).toBe('not_tls')
  })
})

describe('bytes that are not TLS', () => {
  it.each([
    { name: 'HTTP', bytes: Buffer.from('GET / HTTP/1.1\r\n') },
    { name: 'SSH', bytes: Buffer.from('SSH-2.0-x\r\n') },
    { name: 'an SSLv2 hello', bytes: Buffer.of(0x80, 0x2e, 1, 0, 2) },
    { name: 'a record of another major version', bytes: Buffer.of(22, 2) },
  ])('are told apart: $name', ({ bytes }) => {
    expect(read(bytes)).toBe('not_tls')
  })
})

/** Deterministic, so that a failure can be run again. */
const randomFrom = (seed: number) => (): number => {
  seed = (Math.imul(seed, 1_664_525) + 1_013_904_223) >>> 0
  return seed / 2 ** 32
}

describe('mutated ClientHellos', () => {
  it('never make the reader throw, and never yield a name that is not printable ASCII', async () => {
    const seeds = [
      await captureHello({
        servername: 'api.good.test',
        ALPNProtocols: ['h2', 'http/1.1'],
        maxVersion: 'TLSv1.2',
      }),
      toRecords(
        helloMessage([
          serverNames('a.test'),
          extension(0xfe0d, Buffer.alloc(40)),
          extension(42, Buffer.alloc(0)),
        ]),
        9,
      ),
      toRecords(
        helloMessage([extension(16, vector(2, vector(1, Buffer.from('h2')))), serverNames('a.test')]),
        1,
      ),
    ]
    const random = randomFrom(20_260_101)
    const outcomes = new Set<string>()
    for (let round = 0; round < 20_000; round += 1) {
      const bytes = Buffer.from(seeds[round % seeds.length] ?? Buffer.alloc(0))
      for (let edits = 1 + Math.floor(random() * 3); edits > 0; edits -= 1) {
        bytes[Math.floor(random() * bytes.length)] = Math.floor(random() * 256)
      }
      const cut = Math.floor(random() * bytes.length)
      const result = read(bytes.subarray(0, cut), bytes.subarray(cut))
      outcomes.add(typeof result === 'string' ? result : 'hello')
      if (typeof result !== 'string' && result.serverName !== undefined)
        expect(result.serverName).toMatch(/^[!-~]{1,255}$/)
    }
    expect([...outcomes].sort()).toEqual(['hello', 'malformed', 'need_more', 'not_tls'])
  })
})
