import { connect, type Socket } from 'node:net'
import { connect as connectTls, type ConnectionOptions, type TLSSocket } from 'node:tls'

/** A client that writes and reads bytes as they are. */
export interface RawClient {
  readonly socket: Socket
  /** Everything received so far, latin1. */
  readonly text: string
  /** Did the other side end or close the connection? */
  readonly isClosed: boolean
  write(text: string | Buffer): void
  /** Resolves with everything received once `until` holds; rejects after `ms` with what came. */
  read(until: (text: string) => boolean, ms?: number): Promise<string>
  /** One whole response (length, chunked or until close) to `method`, taken off what was received; default to GET. */
  response(ms?: number, method?: string): Promise<RawResponse>
  /** Resolves when the connection is closed; rejects after `ms`. */
  closed(ms?: number): Promise<string>
  /** TLS over this connection, after a CONNECT. */
  startTls(options: ConnectionOptions): Promise<RawClient>
  end(): void
  destroy(): void
}

export interface RawResponse {
  readonly status: number
  readonly statusLine: string
  /** Lower-case names; repeated fields joined by `\n`. */
  readonly fields: Readonly<Record<string, string>>
  /** Content with the chunked framing taken off. */
  readonly body: string
  /** The bytes as they came. */
  readonly raw: string
}

export async function rawClient(port: number, host = '127.0.0.1', localAddress?: string): Promise<RawClient> {
  const from = localAddress === undefined ? {} : { localAddress }
  const socket = connect({ port, host, allowHalfOpen: true, noDelay: true, ...from })
  await new Promise<void>((resolve, reject) => {
    socket.once('connect', resolve)
    socket.once('error', reject)
  })
  return wrap(socket)
}

export async function rawUnixClient(path: string): Promise<RawClient> {
  const socket = connect({ path, allowHalfOpen: true })
  await new Promise<void>((resolve, reject) => {
    socket.once('connect', resolve)
    socket.once('error', reject)
  })
  return wrap(socket)
}

export const basic = (user: string, password: string): string =>
  `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`

function wrap(socket: Socket | TLSSocket): RawClient {
  let text = ''
  let isClosed = false
  const watchers = new Set<() => void>()
  const changed = (): void => {
    for (const watcher of [...watchers]) watcher()
  }
  const onData = (chunk: Buffer): void => {
    text += chunk.toString('latin1')
    changed()
  }
  const onEnd = (): void => {
    isClosed = true
    changed()
  }
  socket.on('data', onData)
  socket.on('end', onEnd)
  socket.on('close', onEnd)
  socket.on('error', () => undefined)

  function wait(until: () => boolean, ms: number, what: string): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        watchers.delete(check)
        reject(new Error(`no ${what} within ${ms} ms; received ${JSON.stringify(text.slice(0, 2000))}`))
      }, ms)
      const check = (): void => {
        if (!until()) return
        clearTimeout(timer)
        watchers.delete(check)
        resolve()
      }
      watchers.add(check)
      check()
    })
  }

  return {
    socket,
    get text() {
      return text
    },
    get isClosed() {
      return isClosed
    },
    write: (data) => void (typeof data === 'string' ? socket.write(data, 'latin1') : socket.write(data)),
    async read(until, ms = 5_000) {
      await wait(() => until(text), ms, 'such text')
      return text
    },
    async response(ms = 5_000, method = 'GET') {
      let found: { response: RawResponse; length: number } | undefined
      const isOver = (): boolean => (found = parse(text, isClosed, method)) !== undefined || isClosed
      await wait(isOver, ms, 'whole response')
      if (found === undefined)
        throw new Error(`closed before a whole response; received ${JSON.stringify(text)}`)
      text = text.slice(found.length)
      return found.response
    },
    async closed(ms = 5_000) {
      await wait(() => isClosed, ms, 'end')
      return text
    },
    async startTls(options) {
      socket.off('data', onData)
      socket.off('end', onEnd)
      socket.off('close', onEnd)
      const tls = connectTls({ socket, ALPNProtocols: ['http/1.1'], ...options })
      await new Promise<void>((resolve, reject) => {
        tls.once('secureConnect', resolve)
        tls.once('error', reject)
        tls.once('close', () => reject(new Error('closed during the handshake')))
      })
      return wrap(tls)
    },
    end: () => void socket.end(),
    destroy: () => void socket.destroy(),
  }
}

function parse(
  text: string,
  isClosed: boolean,
  method: string,
): { response: RawResponse; length: number } | undefined {
  const end = text.indexOf('\r\n\r\n')
  if (end < 0) return undefined
  const lines = text.slice(0, end).split('\r\n')
  const statusLine = lines[0] ?? ''
  const status = Number(statusLine.split(' ')[1])
  const fields: Record<string, string> = {}
  for (const line of lines.slice(1)) {
    const colon = line.indexOf(':')
    const name = line.slice(0, colon).toLowerCase()
    const value = line.slice(colon + 1).trim()
    fields[name] = fields[name] === undefined ? value : `${fields[name]}\n${value}`
  }
  const from = end + 4
  const done = (body: string, length: number): { response: RawResponse; length: number } => ({
    response: { status, statusLine, fields, body, raw: text.slice(0, length) },
    length,
  })
  const isBodiless = method === 'HEAD' || status < 200 || status === 204 || status === 304
  if (isBodiless || statusLine.includes(' Connection established')) return done('', from)
  if (fields['transfer-encoding'] === 'chunked') return dechunk(text, from, done)
  const declared = fields['content-length']
  if (declared !== undefined) {
    const length = from + Number(declared)
    return text.length >= length ? done(text.slice(from, length), length) : undefined
  }
  return isClosed ? done(text.slice(from), text.length) : undefined
}

function dechunk<T>(text: string, start: number, done: (body: string, length: number) => T): T | undefined {
  let body = ''
  for (let at = start; ;) {
    const line = text.indexOf('\r\n', at)
    if (line < 0) return undefined
    const size = Number.parseInt(text.slice(at, line), 16)
    at = line + 2
    if (size === 0) {
      const end = text.startsWith('\r\n', at) ? at : text.indexOf('\r\n\r\n', at)
      if (end < 0) return undefined
      return done(body, end === at ? at + 2 : end + 4)
    }
    if (text.length < at + size + 2) return undefined
    body += text.slice(at, at + size)
    at += size + 2
  }
}
