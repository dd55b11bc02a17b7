import { configDefaults, defineConfig } from 'vitest/config'

/** Counts too large for CI stand in `test/proof/` and run with `npm run proof` only. */
const isProof = process.env['OCTROI_PROOF'] === 'full'

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    exclude: [...configDefaults.exclude, ...(isProof ? [] : ['test/proof/**'])],
    testTimeout: 30_000,
    hookTimeout: 60_000,
    pool: 'forks',
    maxWorkers: 2,
  },
})
