/** Mutations of the corpus `address` at the full count; `OCTROI_PROOF_COUNT` sets another. */
process.env['OCTROI_PROOF_COUNT'] ??= '1000000'
await import('../fuzz/address.test.ts')
