/** Mutations of the corpus `chunked-body` at the full count; `OCTROI_PROOF_COUNT` sets another. */
process.env['OCTROI_PROOF_COUNT'] ??= '1000000'
await import('../fuzz/chunked-body.test.ts')
