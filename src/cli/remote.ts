import { request as httpRequest } from 'node:http'
import { OperatorError } from '../core/errors.ts'
import * as wire from '../admin/wire.ts'
import { ownerSocketPath } from '../admin/owner-socket.ts'
import type { BrokerStatus } from '../admin/deps.ts'
import { LifecycleError } from '../identity/lifecycle-model.ts'
import type { Lifecycle, LifecycleFault } from '../identity/lifecycle-model.ts'

/** Where the running broker is reached. */
export interface RemoteOptions {
  readonly stateFolder: string
  /** The configuration's path, for the sentence that says how to start the broker. */
  readonly configPath: string
  /** `ms` of silence before a call is given up; default 10,000. */
  readonly timeoutMs?: number
}

/** The running broker, over the owner-only socket. Every call rejects with an `OperatorError` when none runs. */
export interface RemoteBroker extends Lifecycle {
  /** Does a broker answer? `false` also for a socket that a dead one left. */
  isRunning(): Promise<boolean>
  status(): Promise<BrokerStatus & { readonly ready: boolean; readonly not_ready: readonly string[] }>
  reload(): Promise<{ readonly policy: string }>
  secretsChanged(): Promise<void>
  /** Path of the unix socket that is the identity of a sandbox, in one run if given. */
  sandboxSocket(sandbox: string, run?: string): Promise<string>
  /** Tells the broker that a run uses it, until released or until this process ends, however that ends. */
  attach(): Promise<Attached>
  /** Asks a private broker that no run uses to end. */
  handOver(): Promise<'stopping' | 'in_use' | 'permanent'>
}

/** A run as the broker counts it. */
export interface Attached {
  /** Id of the run, as events have it; a broker of another version may give none. */
  readonly run: string | undefined
  release(): void
  /** Resolves when the broker ended first; never after `release`. */
  readonly lost: Promise<void>
}

/** Nobody answers on the socket, or who does is about to end. */
export class NotRunning extends OperatorError {}

/** The broker ended between the question and the answer, or is no broker. */
export class BrokenOff extends OperatorError {}

interface Answer {
  readonly status: number
  readonly text: string
}

const maxAnswerBytes = 16 * 1024 * 1024

/** A client of the running broker of a state folder. Connects at the first call. */
export function createRemote(options: RemoteOptions): RemoteBroker {
  const at = (name: string, action = ''): string => `/v1/sandboxes/${encodeURIComponent(name)}${action}`
  const call = async <T>(
    target: string,
    schema: { parse: (value: unknown) => T },
    body?: Readonly<Record<string, unknown>>,
  ): Promise<T> => read(await exchange(options, target, body), schema)

  return {
    async isRunning() {
      try {
        await call('GET /v1/status', wire.brokerStatus)
        return true
      } catch (error) {
        if (error instanceof NotRunning) return false
        throw error
      }
    },
    status: () => call('GET /v1/status', wire.brokerStatus),
    reload: () => call('POST /v1/reload', wire.reloaded),
    secretsChanged: async () => void (await call('POST /v1/secrets/changed', wire.acknowledged)),
    sandboxSocket: async (name, run) =>
      (await call(`POST ${at(name, '/socket')}`, wire.socketOpened, run === undefined ? undefined : { run }))
        .path,
    attach: () => attach(options),
    handOver: async () => (await call('POST /v1/handover', wire.handedOver)).outcome,
    create: ({ ttlMs, ...rest }) => call('POST /v1/sandboxes', wire.created, { ...rest, ttl_ms: ttlMs }),
    list: async () => (await call('GET /v1/sandboxes', wire.sandboxList)).sandboxes,
    show: (name) => call(`GET ${at(name)}`, wire.sandboxReport),
    pause: (name) => call(`POST ${at(name, '/pause')}`, wire.sandboxReport),
    resume: (name) => call(`POST ${at(name, '/resume')}`, wire.sandboxReport),
    destroy: async (name) => void (await call(`DELETE ${at(name)}`, wire.destroyed)),
    rotateToken: (name, overlapMs) =>
      call(`POST ${at(name, '/rotate-token')}`, wire.rotated, { overlap_ms: overlapMs }),
    grant: ({ sandbox, access }) => call(`POST ${at(sandbox, '/grants')}`, wire.sandboxReport, { access }),
    runEnded: async ({ sandbox, ...ended }) =>
      void (await call(`POST ${at(sandbox, '/runs')}`, wire.acknowledged, ended)),
    revoke: (request) => call('POST /v1/revoke', wire.revoked, { ...request }),
  }
}

const faults: Readonly<Record<string, LifecycleFault>> = {
  invalid: 'invalid',
  not_found: 'not_found',
  conflict: 'conflict',
  refused: 'refused',
  unaudited: 'unaudited',
}

function read<T>({ status, text }: Answer, schema: { parse: (value: unknown) => T }): T {
  let value: unknown
  try {
    value = JSON.parse(text)
    if (status < 300) return schema.parse(value)
  } catch (cause) {
    throw new OperatorError(
      'the broker gave an answer that this octroi does not understand; are both the same version?',
      {
        cause,
      },
    )
  }
  const failure = wire.failure.safeParse(value)
  if (!failure.success) throw new OperatorError(`the broker answered with status ${String(status)}`)
  const { error, message, id } = failure.data
  if (id !== undefined) throw new OperatorError(`the broker failed; its log has the cause under ${id}`)
  const fault = faults[error]
  throw fault === undefined ? new OperatorError(message) : new LifecycleError(fault, message)
}

function exchange(
  { stateFolder, configPath, timeoutMs = 10_000 }: RemoteOptions,
  target: string,
  body: Readonly<Record<string, unknown>> | undefined,
): Promise<Answer> {
  const socketPath = ownerSocketPath(stateFolder)
  const [method, path] = target.split(' ')
  const payload = body === undefined ? undefined : JSON.stringify(body)
  const headers = payload === undefined ? {} : { 'content-type': 'application/json' }
  return new Promise((resolve, reject) => {
    const request = httpRequest({ socketPath, method, path, headers, agent: false, timeout: timeoutMs })
    request.once('timeout', () =>
      request.destroy(new OperatorError(`the broker did not answer within ${String(timeoutMs / 1000)} s`)),
    )
    request.once('error', (error: NodeJS.ErrnoException) =>
      reject(connectProblem(error, socketPath, configPath)),
    )
    request.once('response', (response) => {
      let text = ''
      response.setEncoding('utf8')
      response.on('data', (chunk: string) => {
        text += chunk
        if (text.length > maxAnswerBytes)
          response.destroy(new OperatorError('the answer of the broker is too large'))
      })
      response.once('error', reject)
      response.once('end', () => resolve({ status: response.statusCode ?? 0, text }))
    })
    request.end(payload)
  })
}

/** Holds a connection open whose answer does not end. */
function attach(options: RemoteOptions): Promise<Attached> {
  const { stateFolder, configPath, timeoutMs = 10_000 } = options
  const socketPath = ownerSocketPath(stateFolder)
  return new Promise((resolve, reject) => {
    const request = httpRequest({
      socketPath,
      method: 'POST',
      path: '/v1/attach',
      agent: false,
      timeout: timeoutMs,
    })
    const lost = Promise.withResolvers<void>()
    let isReleased = false
    request.once('timeout', () =>
      request.destroy(new OperatorError(`the broker did not answer within ${String(timeoutMs / 1000)} s`)),
    )
    request.once('error', (error: NodeJS.ErrnoException) =>
      reject(connectProblem(error, socketPath, configPath)),
    )
    request.once('close', () => {
      if (!isReleased) lost.resolve()
    })
    request.once('response', (response) => {
      response.on('error', () => undefined)
      response.resume()
      request.setTimeout(0)
      if (response.statusCode === 200) {
        const release = (): void => {
          isReleased = true
          request.destroy()
        }
        const run = response.headers[wire.runField]
        resolve({ run: typeof run === 'string' ? run : undefined, release, lost: lost.promise })
      } else if (response.statusCode === 503) reject(notRunning(configPath))
      else reject(new OperatorError(`the broker answered with status ${String(response.statusCode)}`))
    })
    request.end()
  })
}

const notRunning = (configPath: string): NotRunning =>
  new NotRunning(`the broker is not running; start it with: octroi serve --config ${configPath}`)

function connectProblem(error: NodeJS.ErrnoException, socketPath: string, configPath: string): Error {
  if (error instanceof OperatorError) return error
  if (error.code === 'ENOENT' || error.code === 'ECONNREFUSED') return notRunning(configPath)
  if (error.code === 'EACCES')
    return new OperatorError(
      `${socketPath} belongs to another user: run octroi as the user who runs the broker`,
    )
  const text = `the broker on ${socketPath} broke off (${error.code ?? 'unknown error'})`
  return error.code === 'ECONNRESET'
    ? new BrokenOff(text, { cause: error })
    : new OperatorError(text, { cause: error })
}
