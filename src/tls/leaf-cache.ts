import { constants } from 'node:crypto'
import { createSecureContext } from 'node:tls'
import type { SecureContext } from 'node:tls'
import { LRUCache } from 'lru-cache'
import type { Clock } from '../core/clock.ts'
import type { Authority } from './authority.ts'
import type { Leaf, Minter } from './minter.ts'
import type { LeafSource } from './port.ts'

/** A `LeafSource` whose CA can be replaced while it runs. */
export interface LeafCache extends LeafSource {
  /** From now on leaves come from `authority`; a leaf that is being made for the old one is not handed out. */
  replaceAuthority(authority: Authority): void
  /** Contexts held. */
  readonly size: number
}

/** Collaborators and bound of the cache. */
export interface LeafCacheOptions {
  readonly authority: Authority
  readonly minter: Minter
  readonly clock: Clock
  /** Contexts kept, the least recently used dropped first. Default 2,000, at some 50 KB each. */
  readonly maxEntries?: number
}

/** How far the clock may go back before leaves are made anew, `ms`; less than leaves are backdated by. */
const smallStepMs = 30 * 60_000

interface Entry {
  readonly context: SecureContext
  /** `ms` since the epoch: from then on clients take the leaf, at the latest. */
  readonly notBefore: number
  /** `ms` since the epoch: two thirds of the leaf's life. */
  readonly renewAt: number
  readonly notAfter: number
}

/** TLS settings of the sandbox-facing side, shared by every context. */
export const serverTlsOptions = {
  minVersion: 'TLSv1.2',
  maxVersion: 'TLSv1.3',
  // Forward secrecy and authenticated encryption only; TLS 1.3 has nothing else.
  ciphers:
    'TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256:ECDHE-ECDSA-AES128-GCM-SHA256:' +
    'ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305',
  // No renegotiation: it costs the server a signature each time. No tickets: contexts are shared by all sandboxes, so
  // that a session of one could be resumed on a connection of another.
  secureOptions:
    constants.SSL_OP_NO_RENEGOTIATION | constants.SSL_OP_NO_TICKET | constants.SSL_OP_NO_COMPRESSION,
} as const

function toEntry(leaf: Leaf, mintedAt: number): Entry {
  const context = createSecureContext({ ...serverTlsOptions, cert: leaf.certificatePem, key: leaf.keyPem })
  const notBefore = mintedAt - smallStepMs
  return {
    context,
    notBefore,
    renewAt: mintedAt + ((leaf.notAfter - mintedAt) * 2) / 3,
    notAfter: leaf.notAfter,
  }
}

/** Caches one TLS context for each host: minted once, renewed in the background at two thirds of its life. */
export function createLeafCache(options: LeafCacheOptions): LeafCache {
  const { minter, clock, maxEntries = 2000 } = options
  const cache = new LRUCache<string, Entry>({ max: maxEntries })
  const making = new Map<string, Promise<Entry>>()
  let authority = options.authority

  async function make(key: string, host: string): Promise<Entry> {
    const mintedBy = authority
    try {
      const mintedAt = clock.now()
      const entry = toEntry(await minter.mint(mintedBy, host), mintedAt)
      if (mintedBy.fingerprint === authority.fingerprint) cache.set(key, entry)
      return entry
    } finally {
      making.delete(key)
    }
  }

  function makeOnce(key: string, host: string): Promise<Entry> {
    let entry = making.get(key)
    if (!entry) {
      entry = make(key, host)
      making.set(key, entry)
    }
    return entry
  }

  async function contextFor(host: string): Promise<SecureContext> {
    const { fingerprint } = authority
    const key = `${fingerprint} ${host}`
    const now = clock.now()
    const cached = cache.get(key)
    // A clock that was ahead and is set right leaves leaves behind that begin in years.
    if (cached && now >= cached.notBefore && now < cached.notAfter) {
      // A renewal that fails is tried again by the next request, and is an error for it once the leaf has expired.
      if (now >= cached.renewAt) makeOnce(key, host).catch(() => undefined)
      return cached.context
    }
    const entry = await makeOnce(key, host)
    return fingerprint === authority.fingerprint ? entry.context : contextFor(host)
  }

  return {
    contextFor,
    get caFingerprint() {
      return authority.fingerprint
    },
    get size() {
      return cache.size
    },
    replaceAuthority(next) {
      if (next.fingerprint === authority.fingerprint) return
      authority = next
      cache.clear()
    },
  }
}
