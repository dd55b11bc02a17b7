/**
 * Runs inside the sandbox, mounted there as one file: it may import nothing of Octroi. It listens on the sandbox's own
 * loopback, relays each connection to the broker's unix socket, and runs the command with the stdio it was given.
 *
 * `relay.ts SOCKET PORT COMMAND [ARGS…]`. File descriptor 3 is the link to `octroi run`: the relay writes `started`
 * there once the command runs, and reads names of signals for the command, one a line.
 */
import { spawn } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { closeSync, readFileSync, readdirSync, writeSync } from 'node:fs'
import { createConnection, createServer, Socket } from 'node:net'
import { constants } from 'node:os'

const linkFd = 3
const octroiFailed = 125
// O_CLOEXEC of Linux, which node:fs does not name.
const closeOnExec = 0o2000000

// What a client sees when the broker is gone: a refusal with a reason instead of a reset.
const notReady =
  'HTTP/1.1 503 octroi not_ready\r\nretry-after: 30\r\ncontent-length: 0\r\nconnection: close\r\n\r\n'

function relayConnection(client: Socket, socketPath: string): void {
  const broker = createConnection({ path: socketPath, allowHalfOpen: true })
  let reached = false
  broker.once('connect', () => {
    reached = true
    client.pipe(broker)
    broker.pipe(client)
  })
  broker.once('error', () => {
    if (reached) client.destroy()
    else client.end(notReady)
  })
  client.once('error', () => broker.destroy())
  client.once('close', () => broker.destroy())
  broker.once('close', () => {
    if (reached) client.destroySoon()
  })
}

function runCommand(command: string, args: readonly string[]): void {
  const child = spawn(command, args, { stdio: 'inherit' })
  const link = new Socket({ fd: linkFd, readable: true, writable: true })
  link.unref()
  link.on('error', () => undefined)
  child.once('spawn', () => {
    link.write('started\n')
    forwardSignals(link, child)
  })
  child.once('error', (error: NodeJS.ErrnoException) => {
    complain(`cannot run ${command}: ${error.code ?? error.message}`)
    link.end('started\n', () => process.exit(error.code === 'ENOENT' ? 127 : 126))
  })
  child.once('exit', (code, signal) => {
    process.exit(signal === null ? (code ?? octroiFailed) : 128 + constants.signals[signal])
  })
}

function forwardSignals(link: Socket, child: ChildProcess): void {
  let text = ''
  link.setEncoding('utf8')
  link.on('data', (chunk: string) => {
    const lines = (text + chunk).split('\n')
    text = lines.pop() ?? ''
    for (const name of lines) if (isSignal(name)) child.kill(name)
  })
}

function isSignal(name: string): name is NodeJS.Signals {
  return Object.hasOwn(constants.signals, name)
}

// Straight to the descriptor: opening process.stderr would change the modes of a pipe that belongs to the command.
function complain(text: string): void {
  writeSync(2, `octroi: ${text}\n`)
}

/**
 * Closes what `octroi run` inherited and passed on without knowing: an open folder of the host is a way out of any
 * mount namespace. Node marks its own descriptors, and the low ones it finds at its start, close-on-exec (libuv's
 * `uv_disable_stdio_inheritance`), so that `octroi run` passes only high ones on, and here they are those unmarked.
 */
function closeInherited(): void {
  for (const name of readdirSync('/proc/self/fdinfo')) {
    if (Number(name) <= linkFd) continue
    try {
      const flags = /^flags:\s*([0-7]+)/m.exec(readFileSync(`/proc/self/fdinfo/${name}`, 'utf8'))?.[1]
      if (flags !== undefined && (parseInt(flags, 8) & closeOnExec) === 0) closeSync(Number(name))
    } catch (error) {
      // The descriptor that listed the folder is gone by now.
      if (!(error instanceof Error && 'code' in error && error.code === 'ENOENT')) throw error
    }
  }
}

closeInherited()
const [socketPath, port, command, ...args] = process.argv.slice(2)
if (socketPath === undefined || port === undefined || command === undefined) {
  complain('the relay needs a socket, a port and a command')
  process.exit(octroiFailed)
}
const server = createServer({ allowHalfOpen: true }, (client) => relayConnection(client, socketPath))
server.once('error', (error) => {
  complain(`cannot listen in the sandbox: ${error.message}`)
  process.exit(octroiFailed)
})
server.listen(Number(port), '127.0.0.1', () => runCommand(command, args))
