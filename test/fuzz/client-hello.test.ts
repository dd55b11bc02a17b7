import {
  createClientHelloReader,
  maxClientHelloBytes,
  type ClientHelloResult,
} from '../../src/tls/client-hello.ts'
import { fuzz, holds, inPieces, same } from './fuzz.ts'

/** Bytes that begin a tunnel, as far as the end of a ClientHello. */
fuzz({
  name: 'client-hello',
  inCi: 15_000,
  full: 1_000_000,
  maxBytes: 4_096,
  dictionary: [
    ...[
      '\x16\x03\x01',
      '\x16\x03\x03\x00\x01',
      '\x16\x03\x01\x00\x00',
      '\x16\x03\x01\x40\x01',
      '\x15\x03\x03\x00\x02\x02\x28',
    ],
    ...[
      '\x01\x00',
      '\x02\x00',
      '\x03\x03',
      '\x03\x04',
      '\0\0',
      '\0\x10',
      '\0\x2b',
      '\0\x2a',
      '\0\x29',
      '\xfe\x0d',
      '\xff\xce',
    ],
    ...[
      '\x0a\x0a',
      '\xfa\xfa',
      '\0\x06a.test',
      '\0\x0ba.good.test\0',
      'A',
      '\0',
      '.',
      '\x80',
      '\x02h2',
      '\x08http/1.1',
      '\xff\xff',
    ],
    ...['GET / HTTP/1.1\r\n', 'SSH-2.0-x\r\n'],
  ],
  check(bytes, random) {
    const whole = createClientHelloReader().push(bytes)
    const reader = createClientHelloReader()
    let pieced: ClientHelloResult = 'need_more'
    for (const piece of inPieces(bytes, random)) {
      const before = pieced
      pieced = reader.push(piece)
      if (before !== 'need_more') same(pieced, before, 'a final answer changed')
    }
    same(pieced, whole, 'the message in pieces')
    if (whole === 'need_more') {
      // More of anything must end it: a client cannot keep the reader waiting for ever.
      const rest = Buffer.concat(Array.from({ length: 24 }, () => recordOf(Buffer.alloc(4_096))))
      holds(
        reader.push(Buffer.concat([Buffer.alloc(16_384), rest])) !== 'need_more',
        'waits for more than its limit',
      )
      return 'refused:need_more'
    }
    if (typeof whole === 'string') return `refused:${whole}`
    const { serverName, alpn, versions, ech, earlyData } = whole
    holds(bytes.length <= maxClientHelloBytes * 6, 'length')
    if (serverName !== undefined) {
      holds(
        /^[\x21-\x7e]{1,255}$/.test(serverName) && serverName === serverName.toLowerCase(),
        `name ${serverName}`,
      )
    }
    holds(
      alpn.every((protocol) => protocol.length > 0 && protocol.length <= 255),
      'protocols',
    )
    holds(
      versions.every((version) => version >= 0 && version <= 0xffff),
      'versions',
    )
    return `taken:${serverName === undefined} ${alpn.length > 0} ${ech} ${earlyData} ${versions.length > 1}`
  },
})

const recordOf = (payload: Buffer): Buffer =>
  Buffer.concat([Buffer.of(22, 3, 3, payload.length >> 8, payload.length & 255), payload])
