/** How often a counted case runs: `inCi` times, or `OCTROI_PROOF_COUNT` times but never more than `full`, the suite's own count. */
export function proofCount(inCi: number, full: number): number {
  const asked = Number(process.env['OCTROI_PROOF_COUNT'])
  return Number.isInteger(asked) && asked > 0 ? Math.min(asked, full) : inCi
}

/** A fresh seed for one run, to be shown in the test's name, so that `OCTROI_SEED` can bring a failure back. */
export function runSeed(): number {
  const given = Number(process.env['OCTROI_SEED'])
  return Number.isInteger(given) && given > 0 ? given : Math.floor(Math.random() * 1_000_000_000) + 1
}
