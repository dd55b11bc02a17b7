import { createSocket } from 'node:dgram'
import { isIPv4 } from 'node:net'

/** What the server says to one question. */
export type DnsReply =
  | { readonly addresses: readonly string[]; readonly ttl?: number; readonly cnames?: readonly string[] }
  | { readonly rcode: 'NXDOMAIN' | 'SERVFAIL' }
  | 'silent'

export interface TestDnsServer {
  /** `127.0.0.1:port`. */
  readonly address: string
  /** Questions so far, such as `a.test A`. */
  readonly asked: string[]
  close(): Promise<void>
}

const types: Readonly<Record<number, string>> = { 1: 'A', 28: 'AAAA' }

function readName(packet: Buffer): { name: string; end: number } {
  const labels: string[] = []
  let at = 12
  for (let length = packet.readUInt8(at); length > 0; length = packet.readUInt8(at)) {
    labels.push(packet.toString('latin1', at + 1, at + 1 + length))
    at += 1 + length
  }
  return { name: labels.join('.').toLowerCase(), end: at + 1 }
}

const encodeName = (name: string): Buffer =>
  Buffer.concat([
    ...name.split('.').map((label) => Buffer.concat([Buffer.of(label.length), Buffer.from(label)])),
    Buffer.of(0),
  ])

function addressBytes(address: string): Buffer {
  if (isIPv4(address)) return Buffer.from(address.split('.').map(Number))
  const [left = '', right] = address.split('::')
  const groups = (text: string): string[] => (text === '' ? [] : text.split(':'))
  const tail = right === undefined ? [] : groups(right)
  const zeros = new Array<string>(8 - groups(left).length - tail.length).fill('0')
  return Buffer.from(
    [...groups(left), ...zeros, ...tail].map((group) => group.padStart(4, '0')).join(''),
    'hex',
  )
}

function record(name: string, type: number, ttl: number, data: Buffer): Buffer {
  const fixed = Buffer.alloc(10)
  fixed.writeUInt16BE(type, 0)
  fixed.writeUInt16BE(1, 2)
  fixed.writeUInt32BE(ttl, 4)
  fixed.writeUInt16BE(data.length, 8)
  return Buffer.concat([encodeName(name), fixed, data])
}

function respond(query: Buffer, name: string, reply: Exclude<DnsReply, 'silent'>): Buffer {
  const { end } = readName(query)
  const type = query.readUInt16BE(end)
  const records: Buffer[] = []
  let owner = name
  if ('addresses' in reply) {
    for (const target of reply.cnames ?? []) {
      records.push(record(owner, 5, reply.ttl ?? 60, encodeName(target)))
      owner = target
    }
    for (const address of reply.addresses) {
      if (isIPv4(address) === (type === 1))
        records.push(record(owner, type, reply.ttl ?? 60, addressBytes(address)))
    }
  }
  const header = Buffer.from(query.subarray(0, 12))
  const rcode = 'rcode' in reply ? { NXDOMAIN: 3, SERVFAIL: 2 }[reply.rcode] : 0
  header.writeUInt16BE(0x8180 | rcode, 2)
  header.writeUInt16BE(records.length, 6)
  header.writeUInt16BE(0, 8)
  header.writeUInt16BE(0, 10)
  return Buffer.concat([header, query.subarray(12, end + 4), ...records])
}

/** A DNS server on loopback that answers A and AAAA by a function. */
export async function createTestDnsServer(
  answer: (name: string, type: string) => DnsReply,
): Promise<TestDnsServer> {
  const socket = createSocket('udp4')
  const asked: string[] = []
  socket.on('message', (query, peer) => {
    const { name, end } = readName(query)
    const type = types[query.readUInt16BE(end)] ?? 'other'
    asked.push(`${name} ${type}`)
    const reply = answer(name, type)
    if (reply !== 'silent') socket.send(respond(query, name, reply), peer.port, peer.address)
  })
  await new Promise<void>((bound) => socket.bind(0, '127.0.0.1', bound))
  return {
    address: `127.0.0.1:${socket.address().port}`,
    asked,
    close: () => new Promise((closed) => socket.close(() => closed())),
  }
}
