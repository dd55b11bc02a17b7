import { constants, X509Certificate } from 'node:crypto'
import { isIP } from 'node:net'
import type { Socket } from 'node:net'
import { connect, createSecureContext } from 'node:tls'
import type { PeerCertificate, SecureContext, TLSSocket } from 'node:tls'
import type { Clock } from '../core/clock.ts'
import { Refusal } from '../core/errors.ts'
import { createSessionCache } from './session-cache.ts'
import type { SessionCache } from './session-cache.ts'
import { guardDestroy } from './tls-socket.ts'
import { loadTrustRoots } from './trust-roots.ts'
import type { TrustOptions } from './trust-roots.ts'

/** What the broker proves to one upstream; the same object for each connection of one access. */
export interface ClientCertificate {
  /** PEM chain, leaf first. */
  readonly cert: string
  /** PEM private key. */
  readonly key: string
}

/** One connection to secure. */
export interface ConnectTlsOptions {
  /** Host of the destination, canonical: the name that the certificate must carry, and the SNI unless it is an address. */
  readonly servername: string
  readonly signal: AbortSignal
  /** Offered to this upstream only. */
  readonly clientCertificate?: ClientCertificate | undefined
}

/** TLS toward upstreams, always verified. */
export interface UpstreamTls {
  /**
   * Verified TLS over a dialled socket, which it owns from now on. A `Refusal` (`upstream_tls`, `upstream_timeout`)
   * destroys the socket; so does an abort, whose reason is thrown.
   */
  connectTls(socket: Socket, options: ConnectTlsOptions): Promise<TLSSocket>
  /** Certificates trusted, PEM. */
  readonly roots: readonly string[]
  /** Sentences for the operator, shown at start. */
  readonly notes: readonly string[]
}

/** Trust and bounds of TLS toward upstreams. */
export interface UpstreamTlsOptions extends TrustOptions {
  readonly clock: Clock
  /** Default `TLSv1.2`. */
  readonly minVersion?: 'TLSv1.2' | 'TLSv1.3'
  /** Bound on one handshake, `ms`. Default 10,000. */
  readonly handshakeTimeoutMs?: number
}

// What current browsers offer, less the key exchanges without forward secrecy. OpenSSL's own order of groups begins with
// the hybrid X25519MLKEM768. Level 2 refuses SHA-1 signatures, RSA and DH below 2,048 bits.
const ciphers =
  'TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256:ECDHE-ECDSA-AES128-GCM-SHA256:' +
  'ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:' +
  'ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305:ECDHE-ECDSA-AES128-SHA:ECDHE-RSA-AES128-SHA:' +
  'ECDHE-ECDSA-AES256-SHA:ECDHE-RSA-AES256-SHA:@SECLEVEL=2'

const signatureAlgorithms =
  'ecdsa_secp256r1_sha256:ecdsa_secp384r1_sha384:ecdsa_secp521r1_sha512:ed25519:rsa_pss_rsae_sha256:' +
  'rsa_pss_rsae_sha384:rsa_pss_rsae_sha512:rsa_pss_pss_sha256:rsa_pss_pss_sha384:rsa_pss_pss_sha512:' +
  'rsa_pkcs1_sha256:rsa_pkcs1_sha384:rsa_pkcs1_sha512'

/** Client-safe sentences for the certificate errors that people meet. */
const certificateHints: Readonly<Record<string, string>> = {
  CERT_HAS_EXPIRED: 'The certificate of the upstream has expired.',
  CERT_NOT_YET_VALID: 'The certificate of the upstream is not valid yet.',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'The certificate of the upstream is self-signed.',
  SELF_SIGNED_CERT_IN_CHAIN:
    'The certificate of the upstream was issued by an authority that is not trusted here.',
  UNABLE_TO_GET_ISSUER_CERT:
    'The certificate of the upstream was issued by an authority that is not trusted here.',
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    'The certificate of the upstream was issued by an authority that is not trusted here.',
  UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    'The upstream sends no certificate chain that leads to a trusted authority; an intermediate may be missing.',
  ERR_TLS_CERT_ALTNAME_INVALID: 'The certificate of the upstream is for another name.',
  INVALID_PURPOSE: 'The certificate of the upstream is not one for servers.',
}

const handshakeHint = 'The TLS handshake with the upstream failed.'

/** X.509 errors of Node have upper-case names of OpenSSL's; those of the handshake itself begin with ERR_SSL or E. */
const isHandshakeFailure = (code: string): boolean =>
  code.startsWith('ERR_SSL') || /^E[A-Z]+$/.test(code) || code === 'ERR_TLS_HANDSHAKE'

function toRefusal(servername: string, error: NodeJS.ErrnoException): Refusal {
  const code = error.code ?? 'ERR_TLS_HANDSHAKE'
  const hint = certificateHints[code] ?? (isHandshakeFailure(code) ? handshakeHint : undefined)
  const detail = `${servername}: ${code}: ${error.message.trim()}`
  return new Refusal('upstream_tls', { detail, cause: error, ...(hint === undefined ? {} : { hint }) })
}

class WrongName extends TypeError {
  readonly code = 'ERR_TLS_CERT_ALTNAME_INVALID'
}

/**
 * OpenSSL's own check (RFC 9525): names of the SAN only, never the common name, and a wildcard is one whole leftmost
 * label. Node's default would take the common name of a certificate without SAN.
 */
function checkIdentity(servername: string, certificate: PeerCertificate): Error | undefined {
  const x509 = new X509Certificate(certificate.raw)
  const matched =
    isIP(servername) === 0
      ? x509.checkHost(servername, { subject: 'never', partialWildcards: false })
      : x509.checkIP(servername)
  if (matched !== undefined) return undefined
  return new WrongName(`not in the SAN of the certificate: ${x509.subjectAltName ?? 'it has none'}`)
}

/** A context and the sessions made with it: a session proves the same client certificate again. */
interface Side {
  readonly context: SecureContext
  readonly sessions: SessionCache
}

class HandshakeEnded extends TypeError {
  readonly code = 'ERR_TLS_HANDSHAKE'
}

const ignore = (): void => undefined

/** Starts TLS as client, with a session of the same name, port and client certificate if there is one. */
function start(socket: Socket, servername: string, side: Side): TLSSocket {
  // Identity is not checked again on a resumed session, so that a session belongs to the name it was verified for.
  const key = `${servername} ${socket.remotePort ?? 0}`
  const session = side.sessions.take(key)
  const tls = connect({
    socket,
    secureContext: side.context,
    rejectUnauthorized: true,
    ALPNProtocols: ['http/1.1'],
    checkServerIdentity: (_host, certificate) => checkIdentity(servername, certificate),
    // RFC 6066 section 3: no addresses in SNI.
    ...(isIP(servername) === 0 ? { servername } : {}),
    ...(session ? { session } : {}),
  })
  guardDestroy(tls, socket)
  // In TLS 1.2 the session comes before the certificate was judged; one of an upstream that fails is not kept.
  let early: Buffer | undefined
  let isVerified = false
  tls.on('session', (fresh) => {
    if (isVerified) side.sessions.put(key, fresh)
    else early = fresh
  })
  tls.once('secureConnect', () => {
    isVerified = true
    if (early) side.sessions.put(key, early)
  })
  return tls
}

interface Handshake {
  readonly tls: TLSSocket
  readonly servername: string
  readonly signal: AbortSignal
  readonly clock: Clock
  readonly timeoutMs: number
}

/** Resolves when the upstream is verified; anything else destroys the TLS socket and with it the one below. */
function verified({ tls, servername, signal, clock, timeoutMs }: Handshake): Promise<TLSSocket> {
  return new Promise((resolve, reject) => {
    const settle = (): void => {
      cancelTimeout()
      signal.removeEventListener('abort', onAbort)
      tls.off('error', onError).off('close', onClose)
    }
    const fail = (error: unknown): void => {
      settle()
      tls.on('error', ignore)
      tls.destroy()
      reject(error as Error)
    }
    const onAbort = (): void => fail(signal.reason)
    const onError = (error: NodeJS.ErrnoException): void => fail(toRefusal(servername, error))
    const onClose = (): void =>
      fail(toRefusal(servername, new HandshakeEnded('the upstream closed the connection')))
    const cancelTimeout = clock.after(timeoutMs, () => {
      const detail = `${servername}: no TLS handshake in ${timeoutMs} ms`
      fail(new Refusal('upstream_timeout', { detail }))
    })
    signal.addEventListener('abort', onAbort, { once: true })
    tls.on('error', onError).on('close', onClose)
    tls.once('secureConnect', () => {
      settle()
      // TLS has no half-open state that HTTP could use, unlike the raw socket below.
      tls.allowHalfOpen = false
      resolve(tls)
    })
  })
}

/** Builds the trust once: parsing 150 certificates for each connection would cost more than the handshake. */
export function createUpstreamTls(options: UpstreamTlsOptions): UpstreamTls {
  const { clock, minVersion = 'TLSv1.2', handshakeTimeoutMs = 10_000 } = options
  const { certificates, notes } = loadTrustRoots(options)
  const sides = new WeakMap<ClientCertificate, Side>()

  const makeSide = (own?: ClientCertificate): Side => ({
    sessions: createSessionCache(clock),
    context: createSecureContext({
      ca: [...certificates],
      minVersion,
      maxVersion: 'TLSv1.3',
      ciphers,
      sigalgs: signatureAlgorithms,
      secureOptions: constants.SSL_OP_NO_RENEGOTIATION | constants.SSL_OP_NO_COMPRESSION,
      ...(own ? { cert: own.cert, key: own.key } : {}),
    }),
  })
  const anonymous = makeSide()

  function sideFor(own: ClientCertificate | undefined): Side {
    if (!own) return anonymous
    const side = sides.get(own) ?? makeSide(own)
    sides.set(own, side)
    return side
  }

  return {
    roots: certificates,
    notes,
    async connectTls(socket, { servername, signal, clientCertificate }) {
      socket.on('error', ignore)
      if (signal.aborted) socket.destroy()
      signal.throwIfAborted()
      if (socket.destroyed) throw toRefusal(servername, new HandshakeEnded('the connection is closed'))
      const tls = start(socket, servername, sideFor(clientCertificate))
      return verified({ tls, servername, signal, clock, timeoutMs: handshakeTimeoutMs })
    },
  }
}
