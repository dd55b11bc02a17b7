import { spawn } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { constants } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

/** Root of the package or checkout: the folder above `bin/`. */
export const packageDir = dirname(dirname(fileURLToPath(import.meta.url)))

const wantedMajor = 24
const forwardedSignals = /** @type {const} */ (['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGUSR2'])

/** @param {string} version `v24.1.0` or `24.1.0` */
const majorOf = (version) => Number.parseInt(version.replace(/^v/, ''), 10)

/**
 * Path of the Node 24 that the package brings along as an optional dependency, in its own `node_modules` or in one
 * further up (hoisted); `undefined` when it is not installed or is of another major.
 * @param {string} [from] folder to start at
 * @returns {string | undefined}
 */
export function bundledNode(from = packageDir) {
  const name = `node-${process.platform}-${process.arch}`
  for (let dir = from; ; dir = dirname(dir)) {
    const home = join(dir, 'node_modules', name)
    const binary = join(home, 'bin', 'node')
    if (existsSync(binary) && majorOf(versionIn(home)) === wantedMajor) return binary
    if (dir === dirname(dir)) return undefined
  }
}

/** @param {string} home folder of an installed package */
function versionIn(home) {
  try {
    const { version } = JSON.parse(readFileSync(join(home, 'package.json'), 'utf8'))
    return typeof version === 'string' ? version : ''
  } catch {
    return ''
  }
}

/**
 * The Node to run under: this process where it qualifies (`undefined`), else the bundled binary. Ends the process with
 * code 2 and says what to install when there is neither.
 * @param {{ exact: boolean }} options `exact`: 24 and no other major; otherwise 24 or newer
 * @returns {string | undefined}
 */
export function nodeToUse({ exact }) {
  const own = majorOf(process.version)
  if (exact ? own === wantedMajor : own >= wantedMajor) return undefined
  const binary = bundledNode()
  if (binary !== undefined) return binary
  const orNewer = exact ? '' : ' or newer'
  const remedy = existsSync(join(packageDir, 'src'))
    ? 'run `npm ci --include=optional` in the checkout, which brings it for Linux on x64 and arm64'
    : 'install the package again with its optional dependencies, which bring it for Linux on x64 and arm64'
  process.stderr.write(
    `octroi: needs Node.js ${wantedMajor}${orNewer}, but this is ${process.version} for ${process.platform}-${process.arch} ` +
      `and the package's own copy is missing.\noctroi: install Node.js ${wantedMajor} and put it first in PATH, or ${remedy}.\n`,
  )
  process.exit(2)
}

/**
 * Runs a Node program with this process's stdio, passes signals on to it, and resolves with its exit code, `128 + n`
 * when signal `n` ended it, or 2 when the binary cannot be started.
 * @param {string} node path of the Node binary
 * @param {readonly string[]} args
 * @param {NodeJS.ProcessEnv} [env]
 * @returns {Promise<number>}
 */
export function runNode(node, args, env = process.env) {
  return new Promise((resolve) => {
    const child = spawn(node, args, { stdio: 'inherit', env })
    // A terminal sends SIGINT to the whole foreground group; passing it on too would count as the second, impatient one.
    const fromTerminal = process.stdin.isTTY || process.stdout.isTTY || process.stderr.isTTY
    for (const signal of forwardedSignals) {
      process.on(signal, () => {
        if (signal !== 'SIGINT' || !fromTerminal) child.kill(signal)
      })
    }
    child.on('error', (error) => {
      process.stderr.write(`octroi: cannot start ${node}: ${error.message}\n`)
      resolve(2)
    })
    child.on('exit', (code, signal) => {
      resolve(code ?? 128 + (signal === null ? 0 : constants.signals[signal]))
    })
  })
}

/** Keeps `ExperimentalWarning` lines of early 24.x releases (type stripping, SQLite) out of stderr. */
export function silenceExperimentalWarnings() {
  const emitWarning = process.emitWarning.bind(process)
  /** @type {(warning: string | Error, ...rest: unknown[]) => void} */
  const quiet = (warning, ...rest) => {
    const [second] = rest
    const type = typeof second === 'object' && second !== null && 'type' in second ? second.type : second
    if (type !== 'ExperimentalWarning') Reflect.apply(emitWarning, process, [warning, ...rest])
  }
  process.emitWarning = quiet
}
