import { basic, rawClient } from '../../test/helpers/raw-client.ts'

/** @typedef {import('../../test/helpers/raw-client.ts').RawClient} RawClient */
/** @typedef {import('./stage.js').Kind} Kind */
/** @typedef {{ decisions: number, nobody?: true }} Done what the log must hold of it; `nobody` if it cannot say whose it was */

const body = 'x'.repeat(64 * 1024)

/** What clients do, by kind; each resolves once the broker must have decided. */
export class Acts {
  /** @type {import('./stage.js').Stage} */
  #stage
  #count = 0

  /** @param {import('./stage.js').Stage} stage */
  constructor(stage) {
    this.#stage = stage
  }

  /** @param {string} host */
  #at(host) {
    return `${host}.soak.test:${host === 'plain' ? this.#stage.upstream.plain : this.#stage.upstream.tls}`
  }

  /** @param {Kind} kind */
  #login(kind) {
    return `Proxy-Authorization: ${basic(kind, this.#stage.tokens[kind])}\r\n`
  }

  #id() {
    return `n${(this.#count += 1)}`
  }

  /** One request head. @param {string} line method and path @param {string} host @param {string} [more] fields with their CRLF */
  #head(line, host, more = '') {
    return `${line} HTTP/1.1\r\nHost: ${this.#at(host)}\r\n${more}\r\n`
  }

  /** The same outside a tunnel. @param {Kind} kind @param {string} line method and path @param {string} [more] */
  #plainHead(kind, line, more = '') {
    const [method, path] = line.split(' ')
    return this.#head(`${method} http://${this.#at('plain')}${path}`, 'plain', this.#login(kind) + more)
  }

  /** @param {string} text @returns {Promise<RawClient>} */
  async #sending(text) {
    const client = await rawClient(this.#stage.port)
    client.write(text)
    return client
  }

  /** @param {Kind} kind @param {string} authority */
  async #connect(kind, authority) {
    const client = await this.#sending(
      `CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n${this.#login(kind)}\r\n`,
    )
    const { status } = await client.response(20_000)
    return { client, status }
  }

  /** @param {Kind} kind @param {string} host @param {string} [ca] @returns {Promise<RawClient>} */
  async #tunnel(kind, host, ca = this.#stage.brokerCa) {
    const { client, status } = await this.#connect(kind, this.#at(host))
    if (status !== 200) throw new TypeError(`CONNECT to ${host} was answered ${status}`)
    return client.startTls({ servername: `${host}.soak.test`, ca })
  }

  /**
   * Requests in one tunnel, each answered with `status`.
   * @param {{ kind: Kind, host: string, status: number }} where @param {string[]} requests
   */
  async #inTunnel({ kind, host, status }, requests) {
    const client = await this.#tunnel(kind, host)
    try {
      for (const request of requests) {
        client.write(request)
        const response = await client.response(20_000)
        if (response.status !== status) throw new TypeError(`${status} expected: ${response.statusLine}`)
      }
    } finally {
      client.destroy()
    }
    return { decisions: requests.length }
  }

  /** A request that the broker or the upstream answers with an end of the connection. @param {Promise<RawClient>} sending */
  async #ended(sending) {
    const client = await sending
    await client.closed(20_000)
    client.destroy()
    return { decisions: 1 }
  }

  /** Does `then` once the upstream has the request. @param {(id: string) => Promise<RawClient>} send */
  async #oncesSeen(send) {
    const id = this.#id()
    const seen = this.#stage.upstream.seen(id)
    const client = await send(id)
    await seen
    return client
  }

  /** @returns {Readonly<Record<Kind, Readonly<Record<string, () => Promise<Done>>>>>} */
  get all() {
    return { good: this.#good(), hostile: this.#hostile(), aborted: this.#aborted() }
  }

  /** @returns {Readonly<Record<string, () => Promise<Done>>>} */
  #good() {
    const free = { kind: /** @type {const} */ ('good'), host: 'free', status: 200 }
    const bearer = `Authorization: Bearer ${this.#stage.placeholder}\r\n`
    /** @param {string} path */
    const get = (path) => this.#head(`GET /${path}/${this.#id()}`, 'free')
    return {
      plain: async () => {
        const client = await this.#sending(this.#plainHead('good', 'GET /echo'))
        await client.response(20_000)
        client.write(this.#plainHead('good', 'GET /echo'))
        await client.response(20_000)
        client.destroy()
        return { decisions: 2 }
      },
      tunnel: () => this.#inTunnel(free, [get('echo'), get('echo'), get('echo')]),
      page: () => this.#inTunnel(free, [get('page'), get('zipped')]),
      events: () => this.#inTunnel(free, [get('events')]),
      swapped: () => {
        const swap = this.#head('GET /echo', 'api', bearer)
        return this.#inTunnel({ ...free, host: 'api' }, [swap, this.#head('GET /page', 'api', bearer), swap])
      },
      upload: () =>
        this.#inTunnel(free, [
          `${this.#head('POST /echo', 'free', `Content-Length: ${body.length}\r\n`)}${body}`,
          `${this.#head('POST /echo', 'free', 'Transfer-Encoding: chunked\r\n')}10000\r\n${body}\r\n0\r\n\r\n`,
        ]),
      spliced: async () => {
        const client = await this.#tunnel('good', 'spliced', this.#stage.upstreamCa)
        client.write(this.#head('GET /echo', 'spliced'))
        await client.response(20_000)
        client.destroy()
        return { decisions: 1 }
      },
    }
  }

  /** @returns {Readonly<Record<string, () => Promise<Done>>>} */
  #hostile() {
    /** @param {string} authority */
    const refused = async (authority) => {
      const { client, status } = await this.#connect('hostile', authority)
      client.destroy()
      if (status !== 403) throw new TypeError(`CONNECT ${authority} was answered ${status}`)
      return { decisions: 1 }
    }
    /** @param {string} path @param {number} status @param {string} [credential] */
    const inside = (path, status, credential) => {
      const host = credential === undefined ? 'free' : 'api'
      const more = credential === undefined ? '' : `Authorization: Bearer ${credential}\r\n`
      return this.#inTunnel({ kind: 'hostile', host, status }, [this.#head(`GET ${path}`, host, more)])
    }
    /** @param {string} text */
    const unread = async (text) => ({
      ...(await this.#ended(this.#sending(text))),
      nobody: /** @type {const} */ (true),
    })
    return {
      host: () => refused(`h${this.#count++ % 1_000}.evil.test:443`),
      metadata: () => refused('169.254.169.254:80'),
      self: () => refused(`127.0.0.1:${this.#stage.port}`),
      path: () => inside('/denied/x', 403),
      foreign: () => inside('/echo', 403, 'of-my-own'),
      'placeholder of another': () => inside('/echo', 403, this.#stage.placeholder),
      leak: () => inside('/leak', 502),
      unreadable: () => inside('/unreadable', 502),
      broken: () => inside('/broken', 502),
      bomb: () =>
        this.#ended(
          this.#tunnel('hostile', 'free').then((client) => {
            client.write(this.#head('GET /bomb', 'free', 'Connection: close\r\n'))
            return client
          }),
        ),
      password: async () => {
        const login = `Proxy-Authorization: ${basic('hostile', 'guessed')}\r\n`
        const client = await this.#sending(
          `CONNECT ${this.#at('free')} HTTP/1.1\r\nHost: ${this.#at('free')}\r\n${login}\r\n`,
        )
        await client.response(20_000)
        client.destroy()
        return { decisions: 1, nobody: true }
      },
      'two readings': () =>
        this.#ended(
          this.#sending(
            `${this.#plainHead('hostile', 'POST /echo', 'Content-Length: 5\r\nTransfer-Encoding: chunked\r\n')}0\r\n\r\n`,
          ),
        ),
      unreadableHead: () => unread(`GET / HTTP/1.1\r\nHost : x\r\n\r\n`),
      largeHead: () => unread(`GET http://x.test/ HTTP/1.1\r\nHost: x.test\r\nX: ${body}${body}\r\n\r\n`),
    }
  }

  /** @returns {Readonly<Record<string, () => Promise<Done>>>} */
  #aborted() {
    /** @param {RawClient} client */
    const leave = (client) => {
      client.destroy()
      return { decisions: 1 }
    }
    /** @param {string} path */
    const inTunnel = (path) => async (/** @type {string} */ id) => {
      const client = await this.#tunnel('aborted', 'free')
      client.write(this.#head(`GET /${path}/${id}`, 'free'))
      return client
    }
    return {
      waiting: async () => leave(await this.#oncesSeen(inTunnel('silent'))),
      download: async () => {
        const client = await this.#oncesSeen(inTunnel('endless'))
        await client.read((text) => text.length > 200_000 || client.isClosed, 20_000)
        return leave(client)
      },
      upload: async () =>
        leave(
          await this.#oncesSeen((id) =>
            this.#sending(
              `${this.#plainHead('aborted', `POST /echo/${id}`, 'Content-Length: 100000\r\n')}half`,
            ),
          ),
        ),
      reset: async () => {
        const client = await this.#oncesSeen((id) =>
          this.#sending(this.#plainHead('aborted', `GET /silent/${id}`)),
        )
        client.socket.resetAndDestroy()
        return { decisions: 1 }
      },
      handshake: async () => leave((await this.#connect('aborted', this.#at('free'))).client),
      'spliced handshake': async () => leave((await this.#connect('aborted', this.#at('spliced'))).client),
      'upstream cuts': () => this.#ended(this.#sending(this.#plainHead('aborted', 'GET /cut'))),
    }
  }
}
