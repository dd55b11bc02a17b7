/** Mutations of the corpus `response-head` at the full count; `OCTROI_PROOF_COUNT` sets another. */
process.env['OCTROI_PROOF_COUNT'] ??= '1000000'
await import('../fuzz/response-head.test.ts')
