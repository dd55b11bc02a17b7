import { ClientGone, type ClientConnection } from './connection.ts'
import type { Incoming } from './forward.ts'
import { returnedFields, writeHead } from './head.ts'
import { pipeBoth } from './pipe.ts'
import type { Upstream } from './upstream-pool.ts'

/**
 * After a 101: passes the switch on and relays bytes both ways, early ones included, until both sides are closed. Any
 * other answer to an upgrade is an ordinary response.
 */
export async function relayUpgraded(
  client: ClientConnection,
  upstream: Upstream,
  incoming: Incoming,
): Promise<void> {
  const { head } = incoming
  if (head.status !== 101) throw new TypeError('not a switch of protocols')
  if (client.isGone) throw new ClientGone('the client left')
  const protocol = head.fields.find(([name]) => name.toLowerCase() === 'upgrade')?.[1] ?? ''
  client.socket.write(
    writeHead(`HTTP/1.1 101 ${head.phrase}`, [
      ...returnedFields(head.fields),
      ['Connection', 'Upgrade'],
      ['Upgrade', protocol],
    ]),
    'latin1',
  )
  upstream.deadline = Infinity
  client.deadline = Infinity
  // From here on the end of one direction is only that; the relay passes it on.
  client.onGone(undefined)
  client.socket.write(upstream.reader.detach())
  upstream.socket.write(client.reader.detach())
  await pipeBoth(client.socket, upstream.socket)
}
