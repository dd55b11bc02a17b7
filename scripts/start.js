// `npm start`: installs if needed, then serves with the configuration of the checkout. More arguments go to `serve`.
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { nodeToUse, packageDir, runNode } from '../bin/node24.js'
import { installIfNeeded } from './install-if-needed.js'

await installIfNeeded()

const bin = join(packageDir, 'bin', 'octroi.js')
const extra = process.argv.slice(2)
const ownConfig = extra.some((arg) => arg === '--config' || arg.startsWith('--config='))
const config = ownConfig ? [] : ['--config', join(packageDir, 'config', 'octroi.yaml')]
const args = ['serve', ...config, ...extra]

const node = nodeToUse({ exact: true })
if (node === undefined) {
  process.argv.splice(1, process.argv.length, bin, ...args)
  await import(pathToFileURL(bin).href)
} else {
  process.exitCode = await runNode(node, [bin, ...args])
}
