import { spawn } from 'node:child_process'
import { networkInterfaces } from 'node:os'
import { packageDir } from '../../bin/node24.js'

/** @typedef {import('./stage.js').Stage} Stage */

/** In the text of the tour; the real ports are free ones. */
const shownPorts = { proxy: 18080, admin: 18081, upstream: 18443 }

/**
 * Plays commands and keeps what they print, as text to read: what belongs to the machine is replaced, what is long and
 * random is cut.
 */
export class Recorder {
  /** @type {string[]} */
  #page = []
  /** Lines for the README: what a reader can do with the shipped configuration, and what only the tour has. */
  #brief = { shipped: /** @type {string[]} */ ([]), swap: /** @type {string[]} */ ([]) }

  /** @param {Stage} stage */
  constructor(stage) {
    this.stage = stage
    this.env = { ...process.env, OCTROI_CONFIG: stage.configFile, API_KEY: stage.apiKey }
  }

  /** @param {string} title @param {string} text */
  section(title, text) {
    process.stdout.write(`\n## ${title}\n`)
    this.#page.push(`## ${title}`, text)
  }

  /** @param {string} text */
  say(text) {
    if (text !== '') this.#page.push(text)
  }

  /** @param {string} language @param {string} text @param {'shipped' | 'swap'} [brief] */
  block(language, text, brief) {
    const shown = this.clean(text).trimEnd()
    process.stdout.write(`${shown}\n`)
    if (brief !== undefined) this.#brief[brief].push(shown)
    this.#page.push(`\`\`\`${language}\n${shown}\n\`\`\``)
  }

  /**
   * Runs a command line as it will be read, in the root of the checkout, and keeps it with its output. `want` is the exit
   * code; another one ends the tour. `brief` says where in the README it goes, and `only` which of its lines.
   * @param {string} line
   * @param {{ want?: number, brief?: 'shipped' | 'swap', only?: RegExp }} [options]
   * @returns {Promise<string>}
   */
  async command(line, { want = 0, brief, only = /^/ } = {}) {
    const shownLine = this.clean(line)
    process.stdout.write(`$ ${shownLine}\n`)
    const { code, output } = await this.#run(line)
    const lines = this.clean(output).trimEnd().split('\n')
    process.stdout.write(`${lines.join('\n')}\n`)
    if (code !== want) throw new TypeError(`exit code ${code}, not ${want}: ${line}\n${output}`)
    this.#page.push(['```console', `$ ${shownLine}`, ...lines, '```'].join('\n'))
    if (brief !== undefined)
      this.#brief[brief].push(`$ ${shownLine}`, ...lines.filter((each) => only.test(each)))
    return output
  }

  /** @param {string} line @returns {Promise<{ code: number | null, output: string }>} */
  #run(line) {
    const script = `octroi() { npm run -s octroi -- "$@"; }\n${this.#expand(line)}`
    return new Promise((resolve, reject) => {
      const child = spawn('sh', ['-c', script], {
        cwd: packageDir,
        env: this.env,
        stdio: ['ignore', 'pipe', 'pipe'],
      })
      let output = ''
      const add = (/** @type {Buffer} */ chunk) => (output += chunk.toString('utf8'))
      child.stdout.on('data', add)
      child.stderr.on('data', add)
      child.once('error', reject)
      child.once('close', (code) => resolve({ code, output }))
    })
  }

  /** @param {string} line */
  #expand(line) {
    return line
      .replaceAll(`.test:${shownPorts.upstream}`, `.test:${this.stage.ports.upstream}`)
      .replaceAll(/(?<![\w/.-])tour\//g, `${this.stage.folder}/`)
  }

  /** @param {string} text */
  clean(text) {
    const { stage } = this
    let clean = text.replaceAll(stage.folder, 'tour').replaceAll(`${packageDir}/`, '')
    for (const key of /** @type {const} */ (['proxy', 'admin', 'upstream']))
      clean = clean.replaceAll(new RegExp(`\\b${stage.ports[key]}\\b`, 'g'), String(shownPorts[key]))
    for (const address of ownAddresses()) clean = inColumns(clean, escaped(address), 'ADDRESS')
    return inColumns(clean, escaped(stage.registry.host), 'the npm registry')
      .replaceAll(/(addresses: \[)"[^\]]*"\]/g, '$1"ADDRESS/32"]')
      .replaceAll(stage.apiKey, `${stage.apiKey.slice(0, 10)}…`)
      .replaceAll(/\boctroi[A-Za-z0-9]{20,}/g, (placeholder) => `${placeholder.slice(0, 12)}…`)
      .replaceAll(/\b01[0-9A-HJKMNP-TV-Z]{24}\b/g, (id) => `${id.slice(0, 10)}…`)
      .replaceAll(/\b[0-9a-f]{64}\b/g, (hash) => `${hash.slice(0, 12)}…`)
      .replaceAll(/[ \t\r]+$/gm, '')
  }

  /** The whole record. */
  page() {
    return this.#page.join('\n\n')
  }

  /** @param {'shipped' | 'swap'} part */
  brief(part) {
    return ['```console', ...this.#brief[part], '```'].join('\n')
  }
}

/**
 * Puts other words in the place of what a pattern finds; what stands behind it in a table stays in its column.
 * @param {string} text @param {string} pattern @param {string} words
 */
function inColumns(text, pattern, words) {
  const cell = new RegExp(`(?<![\\w.:])${pattern}(?![\\w.])(\\S*)( *)`, 'g')
  return text.replaceAll(cell, (all, rest, spaces) => {
    const cell = `${words}${rest}`
    return spaces.length > 1 ? `${cell}  `.padEnd(all.length) : `${cell}${spaces}`
  })
}

/** @param {string} text */
const escaped = (text) => text.replaceAll(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`)

function ownAddresses() {
  return Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .filter(({ internal, address }) => !internal && !address.startsWith('fe80:'))
    .map(({ address }) => address)
}
