import type { Clock } from '../core/clock.ts'

/** Which runs use this broker, and when a private one may end. */
export interface Attachments {
  readonly isPrivate: boolean
  /** Runs that use the broker now. */
  readonly count: number
  /** Counts a run until the returned function is called; `undefined` when the broker is about to end. */
  attach(): (() => void) | undefined
  /** Ends a private broker that no run uses. */
  handOver(): 'stopping' | 'in_use' | 'permanent'
  /** Resolves when a private broker should end; never for others. */
  readonly idle: Promise<void>
  close(): void
}

/** What attachments are counted with. */
export interface AttachmentsOptions {
  readonly clock: Clock
  /** How long a private broker waits for a run before it ends, `ms`; `undefined` for a broker that never does. */
  readonly idleExitMs: number | undefined
  /** Are there exchanges that no run stands for, such as those of a run that was killed? */
  readonly isBusy: () => boolean
}

/** Counts runs; the idle time of a private broker begins at once. */
export function createAttachments({ clock, idleExitMs, isBusy }: AttachmentsOptions): Attachments {
  const idle = Promise.withResolvers<void>()
  let count = 0
  let isEnding = false
  let cancel = (): void => undefined

  function end(): void {
    isEnding = true
    cancel()
    idle.resolve()
  }

  function waitForRuns(): void {
    cancel()
    if (idleExitMs === undefined || count > 0 || isEnding) return
    cancel = clock.after(idleExitMs, () => (isBusy() ? waitForRuns() : end()))
  }

  waitForRuns()
  return {
    isPrivate: idleExitMs !== undefined,
    get count() {
      return count
    },
    attach() {
      if (isEnding) return undefined
      count += 1
      cancel()
      let isAttached = true
      return () => {
        if (!isAttached) return
        isAttached = false
        count -= 1
        waitForRuns()
      }
    },
    handOver() {
      if (idleExitMs === undefined) return 'permanent'
      if (count > 0 || isBusy()) return 'in_use'
      end()
      return 'stopping'
    },
    idle: idle.promise,
    close() {
      isEnding = true
      cancel()
    },
  }
}
