/** Mutations of the corpus `audit-line` at the full count; `OCTROI_PROOF_COUNT` sets another. */
process.env['OCTROI_PROOF_COUNT'] ??= '1000000'
await import('../fuzz/audit-line.test.ts')
