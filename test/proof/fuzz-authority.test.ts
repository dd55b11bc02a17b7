/** Mutations of the corpus `authority` at the full count; `OCTROI_PROOF_COUNT` sets another. */
process.env['OCTROI_PROOF_COUNT'] ??= '1000000'
await import('../fuzz/authority.test.ts')
