import { Resolver as DnsResolver } from 'node:dns/promises'
import { isIP } from 'node:net'
import { LRUCache } from 'lru-cache'
import type { Clock } from '../core/clock.ts'
import { OperatorError, Refusal } from '../core/errors.ts'
import { isMetadataName } from '../policy/address.ts'
import { readHosts } from './hosts-file.ts'
import type { Resolver } from './port.ts'

/** Addresses of one absolute name, and how long they may be kept. */
export interface Answer {
  readonly addresses: readonly string[]
  /** `ms`. */
  readonly ttlMs: number
}

/** Where names are asked for, and for how long. */
export interface ResolverOptions {
  /** `['system']` (hosts file and the servers of resolv.conf), or addresses of DNS servers as `ip`, `ip:port` or `[ip6]:port`. */
  readonly servers: readonly string[]
  /** Fixed answers by canonical name; they are judged like any other. */
  readonly hosts: ReadonlyMap<string, readonly string[]>
  readonly clock: Clock
  /** Bound on one resolution, `ms`. Default 5,000. */
  readonly timeoutMs?: number
  /** Longest time an answer is kept, `ms`; `0` keeps none. Default 10,000, never more than 30,000. Failures are not kept. */
  readonly cacheMs?: number
  /** Hosts file that `system` reads first. Default `/etc/hosts`. */
  readonly hostsFile?: string
  /** Asks for one name instead of `servers`; for tests. */
  readonly ask?: (host: string) => Promise<Answer>
}

const maxCacheMs = 30_000
const maxCacheEntries = 10_000

const hostsFileTtlMs = 1_000

/** How long addresses of one family wait for the other, `ms`: some servers never answer AAAA (RFC 8305 section 3). */
const otherFamilyDelayMs = 250

interface RecordWithTtl {
  readonly address: string
  readonly ttl: number
}

interface Asked {
  readonly timeoutMs: number
  readonly clock: Clock
}

const codeOf = (error: unknown): string =>
  error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : 'unknown error'

/** c-ares codes for "no answer came" as against "the answer is no". */
const timeouts = new Set(['ETIMEOUT', 'ETIMEDOUT', 'ECANCELLED'])

function toRefusal(host: string, error: unknown): Refusal {
  if (error instanceof Refusal) return error
  const code = codeOf(error)
  return new Refusal(timeouts.has(code) ? 'dns_timeout' : 'dns_failed', {
    detail: `${host}: ${code}`,
    cause: error,
  })
}

/**
 * A and AAAA at once, from these servers only (`undefined`: those of resolv.conf). c-ares asks for the name as it is, with
 * no search list. getaddrinfo would block a thread for every name whose servers are silent, and a sandbox that may reach
 * `*.example.com` could then stop all file and name work of the broker with four such names.
 */
async function askServers(
  host: string,
  servers: readonly string[] | undefined,
  asked: Asked,
): Promise<Answer> {
  // Tried again every second or so, so that a server that comes back is noticed by those who wait.
  const dns = new DnsResolver({ timeout: 1000, tries: Math.ceil(asked.timeoutMs / 1000), maxTimeout: 1000 })
  if (servers) dns.setServers([...servers])
  const families = [dns.resolve6(host, { ttl: true }), dns.resolve4(host, { ttl: true })]
  const records: RecordWithTtl[] = []
  const failures: unknown[] = []
  await new Promise<void>((resolve) => {
    let left = families.length
    const onAnswer = (): void => {
      left -= 1
      if (left === 0) resolve()
      else if (records.length > 0) asked.clock.after(otherFamilyDelayMs, resolve)
    }
    for (const family of families) {
      family.then(
        (found) => {
          records.push(...found)
          onAnswer()
        },
        (failure: unknown) => {
          failures.push(failure)
          onAnswer()
        },
      )
    }
  })
  dns.cancel()
  if (records.length > 0) {
    const ttlMs = 1000 * Math.min(...records.map(({ ttl }) => ttl))
    return { addresses: records.map(({ address }) => address), ttlMs }
  }
  // A name without addresses of one family answers ENODATA for it; what went wrong for the other family says more.
  throw failures.find((failure) => codeOf(failure) !== 'ENODATA') ?? failures[0]
}

/** The hosts file of the machine, then its DNS servers. */
async function askSystem(host: string, hostsFile: string, asked: Asked): Promise<Answer> {
  const fixed = await readHosts(hostsFile, host)
  return fixed.length > 0 ? { addresses: fixed, ttlMs: hostsFileTtlMs } : askServers(host, undefined, asked)
}

function checkServers(servers: readonly string[]): void {
  if (servers.length === 1 && servers[0] === 'system') return
  if (servers.length === 0)
    throw new OperatorError('resolver.servers is empty: write `system` or addresses', { exitCode: 2 })
  if (servers.includes('system')) {
    const message = 'resolver.servers: `system` stands alone, without addresses beside it'
    throw new OperatorError(message, { exitCode: 2 })
  }
  try {
    new DnsResolver().setServers([...servers])
  } catch (cause) {
    const message = `resolver.servers: ${servers.join(', ')}: write each as IP, IP:PORT or [IPV6]:PORT`
    throw new OperatorError(message, { exitCode: 2, cause })
  }
}

/** Waits for a shared result no longer than the caller cares; the caller's reason is thrown when it aborts. */
function abortable<T>(shared: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(signal.reason as Error)
    if (signal.aborted) onAbort()
    signal.addEventListener('abort', onAbort, { once: true })
    shared.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort))
  })
}

/**
 * Resolves canonical names for the connector. `localhost` and names below it are loopback without asking anyone
 * (RFC 6761), metadata names are refused, and no search list is ever applied. An answer may be shared for a few
 * seconds; every use of it is judged and dialled as literals, so that rebinding gains nothing.
 */
export function createResolver(options: ResolverOptions): Resolver {
  const { servers, hosts, clock, timeoutMs = 5000, hostsFile = '/etc/hosts' } = options
  const cacheMs = Math.min(maxCacheMs, options.cacheMs ?? 10_000)
  const asked: Asked = { timeoutMs, clock }
  checkServers(servers)
  const ask =
    options.ask ??
    ((host: string) =>
      servers[0] === 'system' ? askSystem(host, hostsFile, asked) : askServers(host, servers, asked))
  const asking = new Map<string, Promise<readonly string[]>>()
  const cache = new LRUCache<string, readonly string[]>({
    max: maxCacheEntries,
    ttl: maxCacheMs,
    ttlResolution: 0,
    // The cache takes a start at 0 for an entry without a TTL.
    perf: { now: () => clock.monotonic() + 1 },
  })

  function withTimeout(host: string): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const refuse = (): void =>
        reject(new Refusal('dns_timeout', { detail: `${host}: no answer in ${timeoutMs} ms` }))
      const cancel = clock.after(timeoutMs, refuse)
      ask(host)
        .then(resolve, (error: unknown) => reject(toRefusal(host, error)))
        .finally(cancel)
    })
  }

  async function askOnce(host: string): Promise<readonly string[]> {
    const { addresses, ttlMs } = await withTimeout(host)
    const distinct = [...new Set(addresses)]
    if (distinct.length === 0) throw new Refusal('dns_failed', { detail: `${host}: no address` })
    const ttl = Math.min(cacheMs, ttlMs)
    if (ttl > 0) cache.set(host, distinct, { ttl })
    return distinct
  }

  function askShared(host: string): Promise<readonly string[]> {
    let shared = asking.get(host)
    if (!shared) {
      shared = askOnce(host).finally(() => asking.delete(host))
      asking.set(host, shared)
    }
    return shared
  }

  return {
    async resolve(host, signal) {
      signal.throwIfAborted()
      if (isMetadataName(host)) throw new Refusal('metadata_denied', { detail: host })
      const fixed = hosts.get(host)
      if (fixed) return fixed
      if (isIP(host) !== 0) return [host]
      if (host === 'localhost' || host.endsWith('.localhost')) return ['127.0.0.1', '::1']
      return cache.get(host) ?? abortable(askShared(host), signal)
    },
  }
}
