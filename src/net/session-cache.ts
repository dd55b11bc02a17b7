import type { Clock } from '../core/clock.ts'

/** TLS sessions to resume, the newest for each key. */
export interface SessionCache {
  /** Gives a session away: RFC 8446 appendix C.4 asks that a ticket is used once. */
  take(key: string): Buffer | undefined
  put(key: string, session: Buffer): void
}

const maxSessions = 1000

/** Beyond it the upstream has to prove its certificate again, `ms`. */
const maxAgeMs = 3_600_000

/** Holds at most 1,000 sessions, each for an hour at most; the oldest makes room. */
export function createSessionCache(clock: Clock): SessionCache {
  const sessions = new Map<string, { session: Buffer; until: number }>()
  return {
    take(key) {
      const found = sessions.get(key)
      sessions.delete(key)
      return found && clock.monotonic() < found.until ? found.session : undefined
    },
    put(key, session) {
      sessions.delete(key)
      sessions.set(key, { session, until: clock.monotonic() + maxAgeMs })
      const oldest = sessions.size > maxSessions ? sessions.keys().next() : undefined
      if (oldest?.value !== undefined) sessions.delete(oldest.value)
    },
  }
}
