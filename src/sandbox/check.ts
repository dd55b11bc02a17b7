/** What a check found: `MISS` is a known gap that nobody promised to close, `SKIP` a check that could not be made. */
export type CheckStatus = 'PASS' | 'FAIL' | 'SKIP' | 'MISS'

/** One line of `octroi doctor`. */
export interface Check {
  readonly status: CheckStatus
  readonly name: string
  readonly detail: string
}
