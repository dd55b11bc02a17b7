// `npm test`: installs if needed, runs the suite under Node 24, ends with `N passed, N failed, N skipped` on a line.
// `--proof` runs test/proof/ alone, with full counts (OCTROI_PROOF=full). Other arguments go to vitest.
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { nodeToUse, packageDir, runNode } from '../bin/node24.js'
import { installIfNeeded } from './install-if-needed.js'

const proofTimeoutMs = 2 * 3600 * 1000

await installIfNeeded()

const node = nodeToUse({ exact: true }) ?? process.execPath
const scratch = mkdtempSync(join(tmpdir(), 'octroi-test-'))
const report = join(scratch, 'report.json')
const given = process.argv.slice(2)
const proof = given.includes('--proof')
const others = given.filter((arg) => arg !== '--proof')
const vitest = join(packageDir, 'node_modules', 'vitest', 'vitest.mjs')

const code = await runNode(
  node,
  [
    vitest,
    'run',
    `--root=${packageDir}`,
    '--reporter=default',
    '--reporter=json',
    `--outputFile.json=${report}`,
    ...(proof ? [`--testTimeout=${proofTimeoutMs}`, `--hookTimeout=${proofTimeoutMs}`] : []),
    // vitest runs what any of its paths names, so that all of test/proof/ is named only where no part of it is.
    ...(proof && !others.some((arg) => arg.startsWith('test/proof/')) ? ['test/proof/'] : []),
    ...others,
  ],
  proof ? { ...process.env, OCTROI_PROOF: 'full' } : process.env,
)

const { passed, failed, skipped, why } = countTests()
rmSync(scratch, { recursive: true, force: true })
if (why !== undefined) process.stdout.write(`\noctroi: ${why}\n`)
process.stdout.write(`\n${passed} passed, ${failed} failed, ${skipped} skipped\n`)
process.exitCode = code !== 0 ? code : failed > 0 || passed === 0 ? 1 : 0

/**
 * Counts from vitest's report. A test file that could not be loaded holds no tests, and a crash or an error outside any
 * test leaves none behind either: each counts as a failure, so that the line never reads "0 failed" over a red run.
 * @returns {{ passed: number, failed: number, skipped: number, why?: string }}
 */
function countTests() {
  if (!existsSync(report)) {
    return { passed: 0, failed: 1, skipped: 0, why: `vitest ended with code ${code} and left no report` }
  }
  const run = JSON.parse(readFileSync(report, 'utf8'))
  const unloaded = run.testResults.filter(
    (/** @type {{ status: string, assertionResults: unknown[] }} */ file) =>
      file.status === 'failed' && file.assertionResults.length === 0,
  ).length
  const counts = {
    passed: run.numPassedTests,
    failed: run.numFailedTests + unloaded,
    skipped: run.numPendingTests + run.numTodoTests,
  }
  if (counts.passed + counts.failed === 0) return { ...counts, why: 'no test ran' }
  if (code !== 0 && counts.failed === 0) {
    return {
      ...counts,
      failed: 1,
      why: `vitest ended with code ${code} although every test passed: an error outside the tests`,
    }
  }
  return counts
}
