import { startTestBroker, type TestBroker } from '../../helpers/broker.ts'
import { createTestCa } from '../../helpers/test-ca.ts'
import { eventsOf, expectNowhere, openShell, type Ran, type Shell, type ShellOptions } from './kit.ts'
import { startUpstream, type Handler, type Upstream } from './upstream.ts'
import { expect } from 'vitest'

/** A package registry of our own behind a credential, and a sandbox that holds the placeholder for it. */
export interface PrivateRegistry {
  readonly broker: TestBroker
  readonly upstream: Upstream
  readonly shell: Shell
  /** `https://HOST:PORT`. */
  readonly origin: string
  /** `https://LOGIN@HOST:PORT`. */
  originWith(login: string): string
  /** The real credential, which only the upstream may see. */
  readonly secret: string
  readonly placeholder: string
  /** The event of a path says that the credential was used, and neither the log nor what ran shows it. */
  expectSwapped(path: string, ran: readonly Ran[]): Promise<void>
  stop(): Promise<void>
}

export interface PrivateOptions extends ShellOptions {
  /** Below `good.test`. */
  readonly name: string
  /** `slot` of the access, as YAML. */
  readonly slot: string
  /** Variable that carries the placeholder. */
  readonly env: string
  /** `identity` of the sandbox, as YAML; default a token. */
  readonly identity?: string
  /** Answers the requests that the right credential came with; the others get 401. */
  readonly handler: Handler
  /** The value of `Authorization` that the upstream wants for a credential. */
  readonly authorization: (secret: string) => string
}

const secret = 'tk_8Vq3Zm6Xw9Bn2Lr5Kc7Ht4Py1Jd0Gf'

export async function startPrivateRegistry(options: PrivateOptions): Promise<PrivateRegistry> {
  const host = `${options.name}.good.test`
  const ca = await createTestCa()
  const upstream = await startUpstream(
    (received, response) => {
      if (received.headers.authorization === options.authorization(secret))
        return options.handler(received, response)
      response.writeHead(401, { 'www-authenticate': 'Basic realm="registry"', 'content-length': 0 }).end()
    },
    { ca, names: [host] },
  )
  const broker = await startTestBroker({
    files: { 'root.pem': ca.cert },
    env: { KEY: secret },
    yaml: `
resolver: { hosts: { ${host}: [127.0.0.1] } }
trust: { system: false, ca: [root.pem] }
credentials: { key: { issuer: static, value: { env: KEY } } }
access:
  registry:
    credential: key
    destinations: [{ host: ${host}, port: ${upstream.port}, methods: [GET, HEAD], addresses: [127.0.0.0/8] }]
    slot: ${options.slot}
    env: ${options.env}
sandboxes: { s1: { agent: a1, identity: [${options.identity ?? '{ token: generated }'}], access: [registry] } }
`,
  })
  const shell = await openShell(broker, 's1', options)
  const authority = `${host}:${upstream.port}`
  return {
    broker,
    upstream,
    shell,
    origin: `https://${authority}`,
    originWith: (login) => `https://${login}@${authority}`,
    secret,
    placeholder: broker.placeholder('s1', 'registry'),
    async expectSwapped(path, ran) {
      const events = await eventsOf(broker, 'a1', { host, path })
      expect(events.at(-1)).toMatchObject({
        verdict: 'allow',
        reason: 'access',
        access: 'registry',
        status: 200,
      })
      await expectNowhere(broker, secret, ran)
    },
    async stop() {
      await shell.stop()
      await broker.stop()
      await upstream.stop()
    },
  }
}

/** The value of `Authorization` for Basic credentials. */
export const basicFor = (user: string) => (password: string) =>
  `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`
