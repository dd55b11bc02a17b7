/** ClientHellos read by OpenSSL as well, at the full count; `OCTROI_PROOF_COUNT` sets another. */
process.env['OCTROI_PROOF_COUNT'] ??= '100000'
await import('../differential/client-hello.test.ts')
