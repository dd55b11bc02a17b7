import { X509Certificate, createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { checkFile, resolvePath } from './files.ts'
import { isLoopback, maxSocketPath, parseEndpoint } from './listeners.ts'
import type { ProofConfig, ProxyListener } from './model.ts'
import { below, problemAt } from './problem.ts'
import type { Place, Problem } from './problem.ts'
import type { ProofsWire, SandboxWire } from './schema.ts'

/** Where relative paths begin, and where problems go. */
interface Context {
  readonly root: string
  readonly problems: Problem[]
}

/** The listeners that the identities of a sandbox open: one per `socket` and `port` proof. */
export function identityListeners(wire: SandboxWire, root: string): ProxyListener[] {
  return (wire.identity ?? []).flatMap(({ socket, port }): ProxyListener[] => {
    const endpoint = port === undefined ? undefined : parseEndpoint(endpointText(port))
    return [
      ...(socket === undefined
        ? []
        : [{ kind: 'unix', path: resolvePath(root, socket), identity: true } as const]),
      ...(endpoint?.ok === true
        ? [{ kind: 'tcp', ...endpoint.value, tls: false, identity: true } as const]
        : []),
    ]
  })
}

const endpointText = (port: string | number): string =>
  typeof port === 'number' ? `127.0.0.1:${port}` : port

/** One alternative of `identity`: all of its proofs must hold. */
export function canonicalProofs(proofs: ProofsWire, place: Place, context: Context): ProofConfig[] {
  const found: ProofConfig[] = []
  const complain = (key: string, message: string, suggestion?: string): void => {
    context.problems.push(problemAt(below(place, key), message, { suggestion }))
  }
  if (proofs.token !== undefined) {
    found.push({ kind: 'token' })
    if (proofs.token !== 'generated' && proofs.token.kind === 'command') {
      complain('token', 'a token comes from env, file or secret, not from a command')
    }
  }
  if (proofs.socket !== undefined) {
    const path = resolvePath(context.root, proofs.socket)
    if (Buffer.byteLength(path) > maxSocketPath) complain('socket', socketTooLong(path))
    found.push({ kind: 'socket', path })
  }
  if (proofs.port !== undefined) {
    const endpoint = parseEndpoint(endpointText(proofs.port))
    if (!endpoint.ok) complain('port', endpoint.problem, endpoint.suggestion)
    else if (endpoint.value.port === 0) complain('port', 'a port that proves identity must be a fixed one')
    else {
      found.push({ kind: 'port', port: endpoint.value.port })
      if (!isLoopback(endpoint.value.host)) complainOfOpenPort(proofs, complain)
    }
  }
  if (proofs.source !== undefined) found.push({ kind: 'source', range: proofs.source })
  if (proofs.client_certificate !== undefined) {
    const sha256 = fingerprint(proofs.client_certificate, context.root)
    if (typeof sha256 === 'string') found.push({ kind: 'client_certificate', sha256 })
    else complain('client_certificate', sha256.problem)
  }
  if (found.length === 0 && Object.keys(proofs).length === 0) {
    context.problems.push(
      problemAt(place, 'an alternative needs at least one proof; empty, anyone would pass'),
    )
  }
  return found
}

function complainOfOpenPort(proofs: ProofsWire, complain: (key: string, message: string) => void): void {
  if (proofs.token !== undefined)
    complain('port', 'a token would cross the network in cleartext on this port')
  if (proofs.source === undefined) {
    complain('port', 'off loopback anyone who reaches this port would be the sandbox; add `source` beside it')
  }
}

/** The message for a unix socket that the kernel would refuse. */
export function socketTooLong(path: string): string {
  return `the socket path has ${Buffer.byteLength(path)} bytes; the system allows ${maxSocketPath}`
}

function fingerprint(
  written: NonNullable<ProofsWire['client_certificate']>,
  root: string,
): string | { problem: string } {
  if (typeof written === 'string') return written.replaceAll(':', '').toLowerCase()
  const path = resolvePath(root, written.file)
  const check = checkFile(path)
  if (check.state !== 'ok') return { problem: check.problem }
  try {
    const certificate = new X509Certificate(readFileSync(path))
    return createHash('sha256').update(certificate.raw).digest('hex')
  } catch {
    return { problem: `${path} holds no PEM certificate` }
  }
}
