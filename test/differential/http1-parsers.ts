import { spawnSync } from 'node:child_process'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { Duplex } from 'node:stream'
import { ChunkedReader } from '../../src/http1/chunked.ts'
import { requestFraming } from '../../src/http1/framing.ts'
import { findHeadEnd, parseRequestHead, requestLimits } from '../../src/http1/head.ts'
import { mutated } from '../fuzz/mutate.ts'
import type { Seeded } from '../helpers/seeded.ts'

/** A request as one parser has read it; strings hold bytes. */
export interface Parsed {
  readonly method: string
  readonly target: string
  readonly fields: readonly (readonly [string, string])[]
  readonly body: string
  /** The body came to its end. */
  readonly isWhole: boolean
}

/** Every request that `src/http1/` takes from these bytes, up to the first that it refuses or that is cut off. */
export function readByOurs(bytes: Buffer): Parsed[] {
  const found: Parsed[] = []
  for (let rest = bytes; rest.length > 0;) {
    const end = findHeadEnd(rest, 0, requestLimits)
    if (typeof end !== 'number') break
    const head = parseRequestHead(rest.toString('latin1', 0, end - 4), requestLimits)
    if ('problem' in head) break
    const framing = requestFraming(head)
    if ('problem' in framing) break
    const body = bodyOf(rest.subarray(end), framing.kind === 'length' ? framing.length : framing.kind)
    if (body === undefined) break
    found.push({
      method: head.method,
      target: head.target,
      fields: head.fields,
      body: body.text,
      isWhole: body.isWhole,
    })
    // What follows a CONNECT is not HTTP any more.
    if (!body.isWhole || head.method === 'CONNECT') break
    rest = rest.subarray(end + body.used)
  }
  return found
}

function bodyOf(
  bytes: Buffer,
  framing: number | 'none' | 'chunked' | 'close',
): { text: string; used: number; isWhole: boolean } | undefined {
  if (framing === 'chunked') {
    const reader = new ChunkedReader()
    let text = ''
    const used = reader.push(bytes, (part) => void (text += part.toString('latin1')))
    return typeof used === 'number' ? { text, used, isWhole: reader.done } : undefined
  }
  const length = typeof framing === 'number' ? framing : 0
  const text = bytes.toString('latin1', 0, length)
  return { text, used: text.length, isWhole: text.length === length }
}

/** llhttp, as Node's server drives it, over a stream in memory. */
export interface Llhttp {
  read(bytes: Buffer): Promise<Parsed[]>
  close(): void
}

export function startLlhttp(): Llhttp {
  let found: Parsed[] = []
  const options = { insecureHTTPParser: false, requireHostHeader: false, maxHeaderSize: 64 * 1024 }
  const onRequest = (request: IncomingMessage, response: ServerResponse): void => {
    keep(request)
    request.on('end', () => response.end())
    request.on('error', () => undefined)
  }
  const server: Server = createServer(options, onRequest)
  server.on('checkExpectation', onRequest)
  const keep = (request: IncomingMessage): void => {
    const parts: Buffer[] = []
    const at = found.length
    const list = found
    const fields = Array.from({ length: request.rawHeaders.length / 2 }, (_, i): [string, string] => [
      request.rawHeaders[2 * i] ?? '',
      request.rawHeaders[2 * i + 1] ?? '',
    ])
    const now = (isWhole: boolean): void => {
      const body = Buffer.concat(parts).toString('latin1')
      list[at] = { method: request.method ?? '', target: request.url ?? '', fields, body, isWhole }
    }
    now(false)
    request.on('data', (part: Buffer) => void parts.push(part))
    request.on('end', () => now(true))
  }
  const onRaw = (request: IncomingMessage, socket: Duplex): void => {
    keep(request)
    const last = found.at(-1)
    if (last !== undefined) found[found.length - 1] = { ...last, isWhole: true }
    socket.destroy()
  }
  server.on('connect', onRaw)
  server.on('upgrade', onRaw)
  server.on('clientError', (_error, socket) => socket.destroy())
  return {
    close: () => void server.close(),
    read(bytes) {
      found = []
      const mine = found
      return new Promise((resolve) => {
        const wire = new Duplex({
          read: () => undefined,
          write: (_chunk, _encoding, done) => done(),
          allowHalfOpen: true,
        })
        wire.on('error', () => undefined)
        wire.on('close', () => resolve(mine))
        server.emit('connection', wire)
        wire.push(bytes)
        wire.push(null)
      })
    },
  }
}

// Reads one head in base64 on each line; answers with a line of JSON, `null` for what it refuses.
const script = `
import sys, json, base64, io
from http.server import BaseHTTPRequestHandler
class H(BaseHTTPRequestHandler):
    def __init__(self, data):
        self.rfile = io.BytesIO(data)
        self.wfile = io.BytesIO()
        self.client_address = ('', 0)
    def log_message(self, *a): pass
    def send_error(self, *a, **k): pass
    def handle_expect_100(self): return True
for line in sys.stdin:
    h = H(base64.b64decode(line))
    h.raw_requestline = h.rfile.readline(65537)
    ok = h.parse_request()
    print(json.dumps([h.command, h.requestline.split()[1], list(h.headers.items())] if ok else None))
`

/** Heads as Python's http.server reads them, `undefined` for one that it refuses; nothing at all without Python. */
export function readByPython(
  messages: readonly Buffer[],
): (Omit<Parsed, 'body' | 'isWhole'> | undefined)[] | undefined {
  const lines = messages.map((message) => message.toString('base64')).join('\n')
  const ended = spawnSync('python3', ['-c', script], {
    input: `${lines}\n`,
    maxBuffer: 1 << 28,
    encoding: 'utf8',
  })
  if (ended.error !== undefined || ended.status !== 0) return undefined
  return ended.stdout
    .trim()
    .split('\n')
    .map((line) => {
      const found = JSON.parse(line) as [string, string, [string, string][]] | null
      if (found === null) return undefined
      // It leaves the blanks behind a value to whoever asks for it.
      const fields = found[2].map(([name, value]): [string, string] => [name, value.replace(/[ \t]+$/, '')])
      return { method: found[0], target: found[1], fields }
    })
}

const crlf = '\r\n'
const templates: readonly string[] = [
  'GET /a HTTP/1.1\r\nHost: a\r\n\r\n',
  'POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody',
  'PUT /a?b=c HTTP/1.1\r\nHost: a\r\nX: 1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n',
  'DELETE http://a/b HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nAccept: */*\r\n\r\nbody',
  'PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nab\r\n00\r\nX-A: 1\r\n\r\n',
]

/** Two or three requests on one connection, with bytes changed that decide where each of them ends. */
export function hostileStream(random: Seeded): Buffer {
  const pool = templates.map((text) => Buffer.from(text, 'latin1'))
  const clean = Array.from({ length: random.below(3) }, () => random.pick(pool))
  const dirty = mutated({ pool, dictionary: framingWords, maxBytes: 2_000 }, random)
  const at = random.below(clean.length + 1)
  return Buffer.concat([...clean.slice(0, at), dirty, ...clean.slice(at)])
}

/** Texts on which parsers differ. */
export const framingWords: readonly string[] = [
  ...[
    crlf,
    '\n',
    '\r',
    ' ',
    '\t',
    ':',
    ',',
    ';',
    '\0',
    '\x0b',
    '\x0c',
    '\x85',
    '\xa0',
    '\x1c',
    crlf + crlf,
    '\n\n',
    `${crlf} `,
    `${crlf}\t`,
  ],
  ...[
    'Content-Length: 4\r\n',
    'Content-Length: 0\r\n',
    'Content-Length:\r\n',
    'Content-length : 4\r\n',
    '4, 4',
    '+4',
    '0x4',
    '04',
    '4 4',
  ],
  ...[
    'Transfer-Encoding: chunked\r\n',
    'Transfer-Encoding: identity\r\n',
    'Transfer-Encoding:\tchunked\r\n',
    'xchunked',
    'chunked, chunked',
  ],
  ...[
    'Transfer_Encoding: chunked\r\n',
    'Connection: close\r\n',
    'Connection: upgrade\r\n',
    'Upgrade: websocket\r\n',
    'Expect: 100-continue\r\n',
  ],
  ...[
    '0\r\n\r\n',
    '0',
    '5\r\n',
    'ffffffff',
    '-1',
    ';',
    '0x',
    'GET /b HTTP/1.1\r\nHost: b\r\n\r\n',
    'HTTP/1.0',
    'HTTP/1.1',
    'HTTP/0.9',
    'HTTP/1.1 ',
  ],
  ...[
    '/',
    '//',
    'http://b/',
    '*',
    '"',
    '\\',
    'x',
    'Host: b\r\n',
    'X: \xe9\r\n',
    'X: a\r\n b\r\n',
    'CONNECT a:443 HTTP/1.1',
  ],
]
