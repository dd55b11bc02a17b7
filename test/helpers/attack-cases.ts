import { expect } from 'vitest'
import type { LoggedEvent } from '../../src/audit/query.ts'
import type { AttackBench } from './attack-bench.ts'
import type { RawClient, RawResponse } from './raw-client.ts'

interface Expected {
  readonly status: number
  /** Of the event, and of the status line unless `shown` says otherwise. */
  readonly reason: string
  readonly sandbox?: string
}

/** One request with the login of a sandbox on a connection of its own: refused, and nothing leaves the broker. */
export async function expectRefused(
  bench: AttackBench,
  head: string,
  expected: Expected,
): Promise<RawResponse> {
  const { sandbox = 's1', status, reason } = expected
  const mark = bench.mark()
  const { client, response } = await bench.ask(sandbox, head)
  expect([head, response.statusLine]).toEqual([
    head,
    expect.stringMatching(`^HTTP/1\\.1 ${status} octroi ${reason}( |$)`),
  ])
  // 400 means that the next request cannot be found with certainty.
  if (status === 400) await client.closed()
  client.destroy()
  const [event] = await mark.decisions(1)
  expect([head, event]).toMatchObject([head, { verdict: 'deny', reason, status }])
  // A head that cannot be read names nobody.
  if (reason !== 'malformed' && reason !== 'too_large') expect(event?.sandbox).toBe(sandbox)
  mark.nothingLeft()
  return response
}

/** The same for a CONNECT; the Host field repeats the authority. */
export const expectConnectRefused = (
  bench: AttackBench,
  authority: string,
  expected: Expected,
): Promise<RawResponse> =>
  expectRefused(bench, `CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n\r\n`, expected)

/** One request inside an open tunnel: its answer, and that the upstream saw nothing of it. */
export async function expectRefusedInside(
  bench: AttackBench,
  client: RawClient,
  {
    request,
    status,
    reason,
    agent = 'a1',
  }: { request: string; status: number; reason: string; agent?: string },
): Promise<LoggedEvent> {
  const mark = bench.mark()
  client.write(request)
  const response = await client.response()
  expect([request, response.statusLine]).toEqual([
    request,
    expect.stringMatching(`^HTTP/1\\.1 ${status} octroi ${reason}( |$)`),
  ])
  const [event] = await mark.decisions(1)
  expect([request, event]).toMatchObject([request, { verdict: 'deny', reason, status, agent }])
  expect([request, mark.upstream()]).toEqual([request, ''])
  if (status === 400 || status === 421) await client.closed()
  return event ?? { id: '', seq: 0, ts: 0, kind: 'exchange' }
}

/** One request that passes; returns what the upstreams received and the event. */
export async function expectAllowed(
  bench: AttackBench,
  client: RawClient,
  request: string,
): Promise<{ response: RawResponse; received: string; event: LoggedEvent }> {
  const mark = bench.mark()
  client.write(request)
  const response = await client.response()
  expect([request, response.status]).toEqual([request, 200])
  const [event] = await mark.decisions(1)
  expect([request, event]).toMatchObject([request, { verdict: 'allow', status: 200 }])
  return {
    response,
    received: mark.upstream() + mark.plain(),
    event: event ?? { id: '', seq: 0, ts: 0, kind: 'exchange' },
  }
}
