#!/usr/bin/env node
// Plain JavaScript for any Node that still runs: finds Node 24, then starts the program proper under it.
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { nodeToUse, packageDir, runNode, silenceExperimentalWarnings } from './node24.js'

const source = join(packageDir, 'src', 'main.ts')
const main = existsSync(source) ? source : join(packageDir, 'dist', 'main.js')

if (!existsSync(main)) {
  process.stderr.write(`octroi: ${main} is missing; run \`npm run build\` or install the package again.\n`)
  process.exit(2)
}

const node = nodeToUse({ exact: false })
if (node === undefined) {
  silenceExperimentalWarnings()
  await import('./compile-cache.js')
  await import(pathToFileURL(main).href)
} else {
  process.exitCode = await runNode(node, [
    '--disable-warning=ExperimentalWarning',
    ...process.execArgv,
    `--import=${new URL('compile-cache.js', import.meta.url).href}`,
    main,
    ...process.argv.slice(2),
  ])
}
