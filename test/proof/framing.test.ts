/** The framing differential at its full count; `OCTROI_PROOF_COUNT` sets another. */
process.env['OCTROI_PROOF_COUNT'] ??= '1000000'
await import('../http1/differential.test.ts')
