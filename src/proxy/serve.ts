import type { RequestHead } from '../http1/head.ts'
import { lingerClose } from './byte-reader.ts'
import type { ClientConnection } from './connection.ts'
import { exchange } from './exchange.ts'
import { finish } from './finish.ts'
import { startRecord } from './record.ts'
import { refuse } from './refuse.ts'
import { tunnel } from './tunnel.ts'

/**
 * Requests of one connection in turn, until the client is done, a refusal ends it, or a tunnel takes it over. Never
 * rejects: a failure that nobody foresaw ends this connection only.
 */
export async function serve(client: ClientConnection): Promise<void> {
  try {
    for (;;) {
      const head = await nextHead(client)
      if (head === undefined) return
      const isConnect = head.method === 'CONNECT' && client.tunnel === undefined
      const next = isConnect ? await tunnel(client, head, serve) : await exchange(client, head)
      if (next === 'taken') return
      if (next === true && client.plane.isReady()) continue
      lingerClose(client.socket)
      return
    }
  } catch (error) {
    client.plane.log.error({ err: error }, 'a connection failed inside the broker')
    client.socket.destroy()
  }
}

/** The next head, or `undefined` after the connection was ended: by the client, or by a refusal of what it sent. */
async function nextHead(client: ClientConnection): Promise<RequestHead | undefined> {
  try {
    const head = await client.nextHead()
    if (head === undefined) client.socket.end(() => client.socket.destroy())
    return head
  } catch (error) {
    const { plane } = client
    const record = startRecord({
      id: plane.newId(),
      ts: plane.clock.now(),
      started: plane.clock.monotonic(),
      snapshot: plane.snapshot(),
      source: client.source,
      run: client.facts.run,
    })
    if (client.tunnel !== undefined) {
      record.sandbox = plane.snapshot().sandboxes.get(client.tunnel.sandboxName)
      record.destination = client.tunnel.destination
      client.tunnel.requests++
    }
    await refuse(client, error, { record, head: undefined, body: undefined, leg: undefined })
    finish(plane, record)
    return undefined
  }
}
