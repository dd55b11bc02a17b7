/** Addresses judged twice at the full count; `OCTROI_PROOF_COUNT` sets another. */
process.env['OCTROI_PROOF_COUNT'] ??= '10000000'
await import('../differential/addresses.test.ts')
