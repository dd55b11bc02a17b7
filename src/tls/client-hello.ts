/** What is read of a ClientHello (RFC 8446 section 4.1.2, RFC 5246 section 7.4.1.2). */
export interface ClientHello {
  /** The server name in lower case as sent, printable ASCII; `undefined` without the extension. */
  readonly serverName: string | undefined
  /** Protocols of the ALPN extension in the client's order, GREASE left out. */
  readonly alpn: readonly string[]
  /** An Encrypted ClientHello or ESNI extension is there, possibly only as GREASE: the two look alike from outside. */
  readonly ech: boolean
  readonly earlyData: boolean
  /** Versions offered, such as `0x0304`, GREASE left out. */
  readonly versions: readonly number[]
}

/** `need_more` until the message is whole; every other answer is final and repeated by later calls. */
export type ClientHelloResult = 'need_more' | 'not_tls' | 'malformed' | ClientHello

/** Takes the bytes of one client as they come. */
export interface ClientHelloReader {
  push(chunk: Uint8Array): ClientHelloResult
}

/** Largest ClientHello, bytes of the handshake message with its header. */
export const maxClientHelloBytes = 65_536

const recordHeaderBytes = 5
const maxRecordBytes = 16_384
const handshakeHeaderBytes = 4

const extensionType = {
  serverName: 0,
  alpn: 16,
  preSharedKey: 41,
  earlyData: 42,
  supportedVersions: 43,
  ech: 0xfe0d,
  esni: 0xffce,
} as const

/** Thrown inside this file only: a length that does not fit, or a value that is not allowed. */
class Malformed extends TypeError {}

/** Reads big-endian vectors out of a bounded slice; every read is checked. */
class Cursor {
  readonly #bytes: Uint8Array
  #at = 0

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes
  }

  get isDone(): boolean {
    return this.#at === this.#bytes.length
  }

  take(length: number): Uint8Array {
    const end = this.#at + length
    if (end > this.#bytes.length) throw new Malformed('truncated')
    const slice = this.#bytes.subarray(this.#at, end)
    this.#at = end
    return slice
  }

  uint(bytes: 1 | 2): number {
    let value = 0
    for (const byte of this.take(bytes)) value = value * 256 + byte
    return value
  }

  /** A vector with a length field of `lengthBytes`. */
  vector(lengthBytes: 1 | 2, min: number): Cursor {
    const length = this.uint(lengthBytes)
    if (length < min) throw new Malformed('vector too short')
    return new Cursor(this.take(length))
  }

  rest(): Uint8Array {
    return this.take(this.#bytes.length - this.#at)
  }

  end(): void {
    if (!this.isDone) throw new Malformed('trailing bytes')
  }
}

// RFC 8701: 0x0a0a, 0x1a1a, ... 0xfafa.
const isGrease = (value: number): boolean => (value & 0x0f0f) === 0x0a0a && value >> 8 === (value & 0xff)

const latin1 = (bytes: Uint8Array): string => String.fromCharCode(...bytes)

function readServerName(body: Cursor): string {
  const list = body.vector(2, 1)
  body.end()
  const type = list.uint(1)
  const name = list.vector(2, 1).rest()
  // RFC 6066 section 3 allows one name of each type and defines one type only, so that a second entry is either
  // forbidden or of a kind that a server may read differently from us.
  list.end()
  if (type !== 0 || name.length > 255) throw new Malformed('server name')
  for (const byte of name) if (byte <= 0x20 || byte >= 0x7f) throw new Malformed('server name')
  return latin1(name).toLowerCase()
}

function readAlpn(body: Cursor): string[] {
  const list = body.vector(2, 1)
  body.end()
  const protocols: string[] = []
  while (!list.isDone) {
    const protocol = list.vector(1, 1).rest()
    const first = protocol[0] ?? 0
    if (protocol.length === 2 && isGrease(first * 256 + (protocol[1] ?? 0))) continue
    protocols.push(latin1(protocol))
  }
  return protocols
}

function readVersions(body: Cursor): number[] {
  const list = body.vector(1, 2)
  body.end()
  const versions: number[] = []
  while (!list.isDone) {
    const version = list.uint(2)
    if (!isGrease(version)) versions.push(version)
  }
  return versions
}

function readExtensions(hello: Cursor, legacyVersion: number): ClientHello {
  let serverName: string | undefined
  let alpn: string[] = []
  let versions = [legacyVersion]
  let ech = false
  let earlyData = false
  const seen = new Set<number>()
  // Before TLS 1.3 the extensions may be left out with their length field.
  const list = hello.isDone ? new Cursor(new Uint8Array(0)) : hello.vector(2, 0)
  hello.end()
  while (!list.isDone) {
    const type = list.uint(2)
    const body = list.vector(2, 0)
    // RFC 8446 section 4.2: no two of one type, and pre_shared_key comes last.
    if (seen.has(type) || seen.has(extensionType.preSharedKey)) throw new Malformed('extension order')
    seen.add(type)
    if (type === extensionType.serverName) serverName = readServerName(body)
    else if (type === extensionType.alpn) alpn = readAlpn(body)
    else if (type === extensionType.supportedVersions) versions = readVersions(body)
    else if (type === extensionType.ech || type === extensionType.esni) ech = true
    else if (type === extensionType.earlyData) {
      body.end()
      earlyData = true
    }
  }
  return { serverName, alpn, ech, earlyData, versions }
}

function parseClientHello(message: Uint8Array): ClientHello {
  const hello = new Cursor(message)
  const legacyVersion = hello.uint(2)
  if (legacyVersion >> 8 !== 3) throw new Malformed('version')
  hello.take(32)
  if (hello.vector(1, 0).rest().length > 32) throw new Malformed('session id')
  if (hello.vector(2, 2).rest().length % 2 !== 0) throw new Malformed('cipher suites')
  // Every version demands the null compression method among those offered.
  if (!hello.vector(1, 1).rest().includes(0)) throw new Malformed('compression')
  return readExtensions(hello, legacyVersion)
}

/** The record layer and the handshake header below one ClientHello. */
class Reader implements ClientHelloReader {
  readonly #recordHeader = new Uint8Array(recordHeaderBytes)
  #headerFill = 0
  /** Payload bytes of the current record that are still to come. */
  #recordLeft = 0
  #message = new Uint8Array(512)
  #fill = 0
  /** Bytes of the handshake message: its header, and once that is read all of it. */
  #expected = handshakeHeaderBytes
  #result: ClientHelloResult = 'need_more'

  push(chunk: Uint8Array): ClientHelloResult {
    let at = 0
    while (at < chunk.length && this.#result === 'need_more') {
      if (this.#recordLeft === 0) {
        this.#result = this.#pushHeaderByte(chunk[at] ?? 0)
        at += 1
      } else {
        at += this.#pushPayload(chunk.subarray(at))
        if (this.#fill === this.#expected) this.#result = this.#onExpected()
      }
    }
    if (this.#result !== 'need_more') this.#message = new Uint8Array(0)
    return this.#result
  }

  #pushHeaderByte(byte: number): 'need_more' | 'not_tls' | 'malformed' {
    if (this.#headerFill === recordHeaderBytes) this.#headerFill = 0
    this.#recordHeader[this.#headerFill] = byte
    this.#headerFill += 1
    // 22 is handshake, and every version of the record layer begins with 3.
    const isForeign = (this.#headerFill === 1 && byte !== 22) || (this.#headerFill === 2 && byte !== 3)
    if (isForeign) return this.#fill === 0 ? 'not_tls' : 'malformed'
    if (this.#headerFill < recordHeaderBytes) return 'need_more'
    this.#recordLeft = (this.#recordHeader[3] ?? 0) * 256 + (this.#recordHeader[4] ?? 0)
    // RFC 8446 section 5.1: no empty handshake fragments, at most 2^14 bytes.
    return this.#recordLeft === 0 || this.#recordLeft > maxRecordBytes ? 'malformed' : 'need_more'
  }

  /** Takes what belongs to the message; returns how much. */
  #pushPayload(bytes: Uint8Array): number {
    const taken = bytes.subarray(0, Math.min(this.#recordLeft, this.#expected - this.#fill))
    const needed = this.#fill + taken.length
    if (needed > this.#message.length) {
      const larger = new Uint8Array(Math.min(maxClientHelloBytes, Math.max(this.#message.length * 2, needed)))
      larger.set(this.#message)
      this.#message = larger
    }
    this.#message.set(taken, this.#fill)
    this.#fill = needed
    this.#recordLeft -= taken.length
    return taken.length
  }

  #onExpected(): ClientHelloResult {
    const message = this.#message
    if (this.#expected === handshakeHeaderBytes) {
      const length = (message[1] ?? 0) * 65_536 + (message[2] ?? 0) * 256 + (message[3] ?? 0)
      this.#expected += length
      if (message[0] !== 1 || length === 0 || this.#expected > maxClientHelloBytes) return 'malformed'
      return 'need_more'
    }
    // Nothing may follow a ClientHello inside its record: the peer would read a message that we did not.
    if (this.#recordLeft > 0) return 'malformed'
    try {
      return parseClientHello(message.subarray(handshakeHeaderBytes, this.#fill))
    } catch (error) {
      if (error instanceof Malformed) return 'malformed'
      throw error
    }
  }
}

/**
 * Reads the ClientHello at the head of a TLS stream from chunks of any size, across records of any size. It keeps at
 * most `maxClientHelloBytes`, never throws, and leaves it to the caller to keep the raw bytes for relaying.
 */
export const createClientHelloReader = (): ClientHelloReader => new Reader()
