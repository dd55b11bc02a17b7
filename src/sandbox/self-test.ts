/**
 * Runs inside a sandbox, mounted there as one file: it imports nothing of Octroi but types. It tries to get out in every
 * way that must fail, and prints one JSON line per check. The plan is JSON in `OCTROI_SELF_TEST`.
 */
import { createSocket } from 'node:dgram'
import { lookup } from 'node:dns/promises'
import { request as httpsRequest } from 'node:https'
import { connect } from 'node:net'
import type { Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { gunzipSync } from 'node:zlib'
import type { Check, CheckStatus } from './check.ts'

/** A header line that carries a placeholder. */
export interface PlaceholderHeader {
  readonly name: string
  readonly value: string
}

/** What to try; everything the sandbox cannot know by itself. */
export interface SelfTestPlan {
  /** Port of the relay on the sandbox's loopback. */
  readonly proxyPort: number
  /** Ports on which somebody listens on the host, with a name for each. */
  readonly hostPorts: readonly { readonly name: string; readonly port: number }[]
  /** The host's own addresses that are not loopback. */
  readonly hostAddresses: readonly string[]
  /** A placeholder and an allowed destination outside of its access, or why there is none. */
  readonly wrongHost:
    | { readonly host: string; readonly port: number; readonly header: PlaceholderHeader }
    | { readonly skip: string }
  /** A URL of an access that returns the request; `{form}` in it stands for raw, base64 or gzip. */
  readonly reflect:
    | {
        readonly url: string
        readonly header: PlaceholderHeader
        readonly placeholder: string
        /** What stands for a credential where its placeholder does not fit, such as inside base64. */
        readonly markers: readonly string[]
        readonly nonce: string
      }
    | { readonly skip: string }
  /** `ms` for each attempt. */
  readonly timeoutMs: number
}

interface Answer {
  /** `0` when the connection closed without an answer. */
  readonly status: number
  readonly phrase: string
}

const metadataSpellings = [
  '169.254.169.254',
  '2852039166',
  '0xa9fea9fe',
  '0251.0376.0251.0376',
  '169.254.43518',
  '[::ffff:169.254.169.254]',
  '[::ffff:a9fe:a9fe]',
  '[fd00:ec2::254]',
  'metadata.google.internal',
  '100.100.100.200',
]

// Made by `octroi doctor` a moment ago, and no command line, which every user of the host may read.
const plan = JSON.parse(process.env['OCTROI_SELF_TEST'] ?? '{}') as SelfTestPlan

function report(status: CheckStatus, name: string, detail: string): void {
  const check: Check = { status, name, detail }
  process.stdout.write(`${JSON.stringify(check)}\n`)
}

/** `undefined` when nobody was reached, else what was reached. */
function direct(host: string, port: number): Promise<string | undefined> {
  return new Promise((resolve) => {
    const socket = connect({ host: host.replace(/^\[(.*)\]$/, '$1'), port, timeout: plan.timeoutMs })
    const end = (reached: string | undefined) => {
      socket.destroy()
      resolve(reached)
    }
    socket.once('connect', () => end(`${host}:${port}`))
    socket.once('timeout', () => end(undefined))
    socket.once('error', () => end(undefined))
  })
}

function openProxy(head: string): Promise<{ socket: Socket; answer: Answer }> {
  return new Promise((resolve) => {
    const socket = connect({ host: '127.0.0.1', port: plan.proxyPort, timeout: plan.timeoutMs * 4 })
    let text = ''
    const end = () => {
      socket.removeAllListeners()
      socket.on('error', () => undefined)
      const [, status = '0', phrase = ''] = /^HTTP\/1\.1 (\d{3}) ?([^\r\n]*)/.exec(text) ?? []
      resolve({ socket, answer: { status: Number(status), phrase } })
    }
    socket.once('connect', () => socket.write(`${head}\r\n\r\n`, 'latin1'))
    socket.on('data', (chunk: Buffer) => {
      text += chunk.toString('latin1')
      if (text.includes('\r\n\r\n')) end()
    })
    for (const event of ['end', 'close', 'timeout', 'error']) socket.once(event, end)
  })
}

async function ask(head: string): Promise<Answer> {
  const { socket, answer } = await openProxy(head)
  socket.destroy()
  return answer
}

/** The two ways to ask a proxy for a host. */
async function bothWays(authority: string): Promise<Answer[]> {
  return [
    await ask(`CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}`),
    await ask(`GET http://${authority}/ HTTP/1.1\r\nHost: ${authority}\r\nConnection: close`),
  ]
}

const shown = ({ status, phrase }: Answer) => (status === 0 ? 'closed' : `${status} ${phrase}`)

/** Only a refusal of the broker passes: a server error means that it tried. */
const isRefused = ({ status }: Answer) => status === 0 || (status >= 400 && status < 500 && status !== 407)

async function tcpAndDns(): Promise<void> {
  const outside: [string, number][] = [
    ['1.1.1.1', 443],
    ['8.8.8.8', 53],
    ['2606:4700:4700::1111', 443],
  ]
  const reached = (await Promise.all(outside.map(([host, port]) => direct(host, port)))).filter(Boolean)
  report(reached.length > 0 ? 'FAIL' : 'PASS', 'direct-tcp', reached[0] ?? 'no public address was reached')
  const answered = (await Promise.all(['1.1.1.1', '8.8.8.8', '127.0.0.53'].map(askDns))).filter(Boolean)
  const resolved = await lookup('example.com').then(
    ({ address }) => address,
    () => undefined,
  )
  const leak = answered[0] ?? resolved
  report(leak === undefined ? 'PASS' : 'FAIL', 'direct-dns', leak ?? 'no name server answered')
}

function askDns(server: string): Promise<string | undefined> {
  // A query for example.com, type A, recursion desired (RFC 1035 section 4.1).
  const query = Buffer.from('beef01000001000000000000076578616d706c6503636f6d0000010001', 'hex')
  return new Promise((resolve) => {
    const socket = createSocket('udp4')
    const end = (answer: string | undefined) => {
      clearTimeout(timer)
      socket.close()
      resolve(answer)
    }
    const timer = setTimeout(() => end(undefined), plan.timeoutMs)
    socket.once('message', () => end(`${server} answered`))
    socket.once('error', () => end(undefined))
    // Connected, so that a port on which nobody listens is an error at once.
    socket.once('connect', () => socket.send(query))
    socket.connect(53, server)
  })
}

async function metadata(): Promise<void> {
  for (const spelling of metadataSpellings) {
    const reached = await direct(spelling, 80)
    const answers = await bothWays(`${spelling}:80`)
    const bad = reached ?? answers.filter((answer) => !isRefused(answer)).map(shown)[0]
    report(bad === undefined ? 'PASS' : 'FAIL', `metadata ${spelling}`, bad ?? answers.map(shown).join(', '))
  }
}

async function hostLoopback(): Promise<void> {
  for (const { name, port } of plan.hostPorts) {
    const hosts = ['127.0.0.1', '[::1]', 'localhost', ...plan.hostAddresses]
    const found: string[] = []
    for (const host of hosts) {
      // The sandbox's own loopback has the relay on it, which is not the host.
      const reached = await direct(host, port)
      if (reached !== undefined) found.push(reached)
      const answers = await bothWays(`${host}:${port}`)
      found.push(
        ...answers.filter((answer) => !isRefused(answer)).map((answer) => `${host}: ${shown(answer)}`),
      )
    }
    report(found.length > 0 ? 'FAIL' : 'PASS', `host ${name}`, found[0] ?? `refused as ${hosts.join(', ')}`)
  }
}

async function deniedHost(): Promise<boolean> {
  const answers = await bothWays('octroi-doctor.invalid:443')
  const octroi = answers.every((answer) => answer.phrase.startsWith('octroi '))
  if (!octroi || answers.some(({ status }) => status === 407 || status === 503)) {
    report('FAIL', 'broker', answers.map(shown).join(', '))
    return false
  }
  report('PASS', 'broker', 'answers on the relay')
  const text = answers.map(shown).join(', ')
  if (answers.every(isRefused)) report('PASS', 'denied-host', text)
  else report('MISS', 'denied-host', `the policy of this sandbox allows any host (${text})`)
  return true
}

async function wrongHost(): Promise<void> {
  const name = 'placeholder-wrong-host'
  const { wrongHost: to } = plan
  if ('skip' in to) return report('SKIP', name, to.skip)
  const authority = `${to.host}:${to.port}`
  const { socket, answer } = await openProxy(`CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}`)
  if (answer.status !== 200) {
    socket.destroy()
    return report('SKIP', name, `no tunnel to ${authority}: ${shown(answer)}`)
  }
  const hostField = to.port === 443 ? to.host : authority
  const text = await new Promise<string>((resolve) => {
    const tls = connectTls({ socket, servername: to.host })
    let read = ''
    tls.once('secureConnect', () => {
      tls.write(
        `GET / HTTP/1.1\r\nHost: ${hostField}\r\n${to.header.name}: ${to.header.value}\r\nConnection: close\r\n\r\n`,
      )
    })
    tls.on('data', (chunk: Buffer) => {
      read += chunk.toString('latin1')
    })
    tls.once('error', (error) => resolve(`TLS: ${error.message}`))
    tls.once('close', () => resolve(read))
  })
  const line = text.split('\r\n')[0] ?? ''
  if (text.startsWith('TLS: ')) report('SKIP', name, `${authority}: ${line}`)
  else report(/^HTTP\/1\.1 403 octroi handle_/.test(line) ? 'PASS' : 'FAIL', name, `${authority}: ${line}`)
}

async function reflected(): Promise<void> {
  const { reflect } = plan
  for (const form of ['raw', 'base64', 'gzip']) {
    const name = `reflected-${form}`
    if ('skip' in reflect) report('SKIP', name, reflect.skip)
    else if (form !== 'raw' && !reflect.url.includes('{form}')) report('SKIP', name, 'the URL has no {form}')
    else await reflectOnce(reflect, form, name)
  }
}

async function reflectOnce(
  to: Exclude<SelfTestPlan['reflect'], { skip: string }>,
  form: string,
  name: string,
) {
  const url = to.url.replaceAll('{form}', form)
  const { answer, body } = await get(url, { [to.header.name]: to.header.value, 'x-octroi-doctor': to.nonce })
  const readable = withDecodedBase64(withDecodedBase64(body))
  if (answer.phrase.startsWith('octroi credential_in_response'))
    report('PASS', name, 'the answer was withheld')
  else if (answer.status !== 200) report('SKIP', name, `${url}: ${shown(answer)}`)
  else if (!readable.includes(to.nonce))
    report('MISS', name, `${url} does not return the request's header fields`)
  else if (readable.includes(to.placeholder)) report('PASS', name, 'came back as the placeholder')
  else if (to.markers.some((each) => readable.includes(each))) report('PASS', name, 'came back as a marker')
  else if (form === 'base64' && to.header.value.startsWith('Basic '))
    report('MISS', name, 'base64 of a Basic field is two codings, for which nothing is promised')
  else report('FAIL', name, 'what was sent came back, and not as the placeholder')
}

/** Through the broker, since Node follows the proxy variables of the sandbox. */
function get(url: string, headers: Record<string, string>): Promise<{ answer: Answer; body: string }> {
  return new Promise((resolve) => {
    const failed = (error: Error) => resolve({ answer: { status: 0, phrase: error.message }, body: '' })
    const request = httpsRequest(url, { headers, timeout: plan.timeoutMs * 4 }, (response) => {
      const chunks: Buffer[] = []
      response.on('data', (chunk: Buffer) => chunks.push(chunk))
      response.once('error', failed)
      response.once('end', () => {
        const { statusCode: status = 0, statusMessage: phrase = '' } = response
        const bytes = Buffer.concat(chunks)
        // By the magic number: a reflecting service may send gzip as a file, without Content-Encoding.
        const plain = bytes[0] === 0x1f && bytes[1] === 0x8b ? gunzipSync(bytes) : bytes
        resolve({ answer: { status, phrase }, body: plain.toString('latin1') })
      })
    })
    request.once('timeout', () => request.destroy())
    request.once('error', failed)
    request.end()
  })
}

/** Done twice to what comes back, since a Basic field is base64 already. */
function withDecodedBase64(text: string): string {
  const runs = text.match(/[A-Za-z0-9+/_-]{24,}/g) ?? []
  const decoded = runs.flatMap((run) =>
    [0, 1, 2, 3].map((at) => Buffer.from(run.slice(at), 'base64').toString('latin1')),
  )
  return [text, ...decoded].join('\n')
}

const hasBroker = await deniedHost()
await tcpAndDns()
if (hasBroker) {
  await metadata()
  await hostLoopback()
  await wrongHost()
  await reflected()
}
