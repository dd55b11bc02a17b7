/** Policies and requests read twice at the full count; `OCTROI_PROOF_COUNT` sets another. */
process.env['OCTROI_PROOF_COUNT'] ??= '1000000'
await import('../differential/requests.test.ts')
