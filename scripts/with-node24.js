// Runs a JavaScript file under Node 24: node scripts/with-node24.js FILE [ARGS…]. Relative to the current folder.
import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { nodeToUse, runNode, silenceExperimentalWarnings } from '../bin/node24.js'
import { installIfNeeded } from './install-if-needed.js'

const [file, ...args] = process.argv.slice(2)
if (file === undefined) {
  process.stderr.write('usage: node scripts/with-node24.js FILE [ARGS...]\n')
  process.exit(2)
}

await installIfNeeded()
const path = resolve(file)
if (!existsSync(path)) {
  process.stderr.write(`octroi: ${path} is missing.\n`)
  process.exit(2)
}

const node = nodeToUse({ exact: true })
if (node === undefined) {
  silenceExperimentalWarnings()
  process.argv.splice(1, process.argv.length, path, ...args)
  await import(pathToFileURL(path).href)
} else {
  process.exitCode = await runNode(node, ['--disable-warning=ExperimentalWarning', path, ...args])
}
