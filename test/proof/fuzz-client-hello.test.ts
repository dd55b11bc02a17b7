/** Mutations of the corpus `client-hello` at the full count; `OCTROI_PROOF_COUNT` sets another. */
process.env['OCTROI_PROOF_COUNT'] ??= '1000000'
await import('../fuzz/client-hello.test.ts')
