import { randomBytes } from 'node:crypto'
import { createServer } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import { deflateRawSync, gzipSync } from 'node:zlib'

// Text that compresses as text does: by a few times, not by hundreds, which would be a bomb.
const page = Buffer.from(
  Array.from(
    { length: 12_000 },
    (_, i) => `line ${i}, ${randomBytes(24).toString('base64')}, and some more words\n`,
  ).join(''),
)
const zipped = gzipSync(page)
const bomb = gzipSync(Buffer.alloc(16 * 1024 * 1024))

/**
 * @typedef {object} Upstream
 * @property {number} tls
 * @property {number} plain
 * @property {(id: string) => Promise<void>} seen resolves once a request with that id has come
 * @property {() => void} close
 */

/**
 * Upstreams, one with TLS and one without, that answer by the first segment of the path: well, badly or not at all.
 * @param {{ cert: string, key: string }} identity
 * @param {string} secret what a reflecting upstream shows
 * @returns {Promise<Upstream>}
 */
export async function startUpstream(identity, secret) {
  /** @type {Map<string, () => void>} */
  const waiting = new Map()
  /** @type {import('node:http').RequestListener} */
  const onRequest = (request, response) => {
    const [, what = '', id = ''] = (request.url ?? '').split('/')
    waiting.get(id)?.()
    waiting.delete(id)
    request.on('error', () => undefined)
    response.on('error', () => undefined)
    const act = answers(secret)[what]
    if (act !== undefined) return void act(request, response)
    request.resume().on('end', () => response.end(`echo ${request.headers.authorization ?? ''}`))
  }
  const servers = [createTlsServer(identity, onRequest), createServer(onRequest)]
  for (const server of servers) {
    server.keepAliveTimeout = 60_000
    server.on('clientError', (_, socket) => socket.destroy())
    await new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(undefined)))
  }
  const [tls = 0, plain = 0] = servers.map((server) => {
    const address = server.address()
    return typeof address === 'object' ? (address?.port ?? 0) : 0
  })
  return {
    tls,
    plain,
    seen: (id) => new Promise((resolve) => waiting.set(id, resolve)),
    close() {
      for (const server of servers) {
        server.close()
        server.closeAllConnections()
      }
    },
  }
}

/**
 * @param {string} secret
 * @returns {Readonly<Record<string, (request: import('node:http').IncomingMessage, response: import('node:http').ServerResponse) => void>>}
 */
const answers = (secret) => ({
  page: (_, response) => void response.end(page),
  zipped: (_, response) => void response.setHeader('Content-Encoding', 'gzip').end(zipped),
  leak: (_, response) => void response.end(`before ${secret} after`),
  unreadable: (_, response) =>
    void response.setHeader('Content-Encoding', 'x-soak').end(deflateRawSync(page)),
  bomb: (_, response) => void response.setHeader('Content-Encoding', 'gzip').end(bomb),
  broken: (_, response) =>
    void response.socket?.end('HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nfour'),
  // Some of the answer, then a reset.
  cut: (_, response) =>
    void response.socket?.write('HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nhalf', () =>
      setTimeout(() => response.socket?.destroy(), 10),
    ),
  silent: (request) => void request.resume(),
  events: (_, response) => {
    response.setHeader('Content-Type', 'text/event-stream')
    let left = 20
    const timer = setInterval(() => {
      if (left-- > 0) response.write(`data: ${left}\n\n`)
      else response.end()
      if (left < 0) clearInterval(timer)
    }, 5)
    response.on('close', () => clearInterval(timer))
  },
  endless: (_, response) => {
    const more = () => {
      while (!response.destroyed && response.write(page));
    }
    response.on('drain', more)
    more()
  },
})
