import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { constants } from 'node:os'
import { basename, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { packageDir } from '../bin/node24.js'

/**
 * @typedef {{ version?: string, integrity?: string, optional?: boolean, os?: string | string[], cpu?: string | string[],
 *   optionalDependencies?: Record<string, string> }} LockEntry
 * @typedef {Record<string, LockEntry>} LockEntries
 */

/**
 * Installs the dependencies when `node_modules` is missing or was made from another lock file. The answer is kept in a
 * stamp in `node_modules`, so that the next call only hashes the lock file. Quiet unless it installs; ends the process
 * with npm's code, and with npm's output, when the installation fails.
 * @param {string} [root] folder of `package-lock.json`
 */
export async function installIfNeeded(root = packageDir) {
  const lock = readFileSync(join(root, 'package-lock.json'))
  const hash = createHash('sha256').update(lock).digest('hex')
  const stamp = join(root, 'node_modules', '.octroi-lock-sha256')
  if (read(stamp)?.trim() === hash) return
  if (!installedFrom(lock.toString('utf8'), root)) {
    process.stderr.write('octroi: installing dependencies (npm ci)\n')
    await install(root)
  }
  writeFileSync(stamp, `${hash}\n`)
}

/** @param {string} path */
function read(path) {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return undefined
  }
}

/**
 * Does npm's own record of what it installed agree with the lock file? True after a plain `npm install` or `npm ci`, so
 * that those need no second installation.
 * @param {string} lock
 * @param {string} root
 */
function installedFrom(lock, root) {
  const record = read(join(root, 'node_modules', '.package-lock.json'))
  if (record === undefined) return false
  const wanted = /** @type {LockEntries} */ (JSON.parse(lock).packages)
  const present = /** @type {LockEntries} */ (JSON.parse(record).packages)
  const required = Object.keys(wanted['']?.optionalDependencies ?? {}).map((name) => `node_modules/${name}`)
  for (const [path, entry] of Object.entries(wanted)) {
    if (path === '') continue
    const found = present[path]
    const maySkip = entry.optional === true && !(required.includes(path) && fitsHere(entry))
    if (
      found === undefined ? !maySkip : found.version !== entry.version || found.integrity !== entry.integrity
    ) {
      return false
    }
  }
  return Object.keys(present).every((path) => path in wanted)
}

/** @param {LockEntry} entry */
function fitsHere(entry) {
  const os = [entry.os ?? process.platform].flat()
  const cpu = [entry.cpu ?? process.arch].flat()
  return os.includes(process.platform) && cpu.includes(process.arch)
}

/**
 * Development and optional packages are asked for in words: `NODE_ENV=production` or an `omit` in an npmrc would leave
 * out the test tools or Node 24 itself.
 * @param {string} root
 */
async function install(root) {
  const args = ['ci', '--include=dev', '--include=optional', '--no-audit', '--no-fund', '--loglevel=error']
  const [command, ...before] = npmCommand()
  const child = spawn(command, [...before, ...args], { cwd: root, stdio: ['ignore', 'pipe', 'pipe'] })
  /** @type {Buffer[]} */
  const output = []
  child.stdout.on('data', (chunk) => output.push(chunk))
  child.stderr.on('data', (chunk) => output.push(chunk))
  /** @param {NodeJS.Signals} signal */
  const stop = (signal) => child.kill(signal)
  process.on('SIGTERM', stop)
  process.on('SIGINT', stop)
  const code = await new Promise((settle) => {
    child.on('error', (error) => {
      output.push(Buffer.from(`${error.message}\n`))
      settle(2)
    })
    child.on('close', (exit, signal) =>
      settle(exit ?? 128 + (signal === null ? 0 : constants.signals[signal])),
    )
  })
  process.off('SIGTERM', stop)
  process.off('SIGINT', stop)
  if (code === 0) return
  process.stderr.write(Buffer.concat(output))
  process.stderr.write(`octroi: installing dependencies failed (npm ci in ${root}, exit ${code})\n`)
  process.exit(code)
}

/**
 * The npm that runs this script, else the one in PATH. It runs under its own Node: the one in `node_modules` is about
 * to be replaced.
 * @returns {[string, ...string[]]}
 */
function npmCommand() {
  const { npm_execpath: cli, npm_node_execpath: node } = process.env
  if (cli !== undefined && basename(cli) === 'npm-cli.js') return [node ?? process.execPath, cli]
  return ['npm']
}

if (process.argv[1] !== undefined && resolve(process.argv[1]) === fileURLToPath(import.meta.url)) {
  await installIfNeeded()
}
