import { join } from 'node:path'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { getDefaultEnvironment, StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { packageDir } from '../../bin/node24.js'

/** @typedef {import('./stage.js').Stage} Stage */

const server = '@modelcontextprotocol/server-everything/dist/index.js'

/**
 * What an MCP client is configured with to start the server. The server's files are shown to it, and nothing else of
 * the home.
 * @param {{ configFile: string, isIsolated: boolean }} stage
 * @param {string} [checkout] where the checkout is
 * @returns {{ command: string, args: string[] }}
 */
export function serverCommand({ configFile, isIsolated }, checkout = packageDir) {
  const octroi = join(checkout, 'bin', 'octroi.js')
  const modules = join(checkout, 'node_modules')
  const start = ['node', join(modules, server)]
  const [config, sandbox] = [
    ['--config', configFile],
    ['--sandbox', 'tools'],
  ]
  if (isIsolated)
    return { command: 'node', args: [octroi, 'run', ...config, ...sandbox, '--ro', modules, '--', ...start] }
  // Node follows proxy variables from 24 on; an older one would go straight out.
  const env = [process.execPath, octroi, 'env', ...config, ...sandbox].join(' ')
  return {
    command: 'sh',
    args: ['-c', `eval "$(${env})"; exec ${process.execPath} ${start.slice(1).join(' ')}`],
  }
}

/**
 * Drives the reference server with the official client, and says what was asked and answered, a line each.
 * @param {Stage} stage
 * @returns {Promise<string>}
 */
export async function driveServer(stage) {
  const client = new Client({ name: 'octroi-tour', version: '1.0.0' })
  const env = { ...getDefaultEnvironment(), OCTROI_CONFIG: stage.configFile }
  await client.connect(new StdioClientTransport({ ...serverCommand(stage), env, stderr: 'ignore' }))
  /** @type {string[]} */
  const lines = []
  try {
    const { name, version } = client.getServerVersion() ?? { name: '', version: '' }
    lines.push(`initialize              ${name} ${version}`)
    const { tools } = await client.listTools()
    const some = tools.slice(0, 3).map((tool) => tool.name)
    lines.push(`tools/list              ${tools.length} tools: ${some.join(', ')} …`)
    lines.push(`echo                    ${await call(client, 'echo', { message: 'hello' })}`)
    lines.push(...environment(await call(client, 'get-env', {})))
    const url = `https://api.tour.test:${stage.ports.upstream}/echo/tool`
    for (const data of [url, 'https://evil.example/', 'http://169.254.169.254/latest/meta-data/']) {
      lines.push(`gzip-file-as-resource   ${data}`, `                        ${await fetched(client, data)}`)
    }
  } finally {
    await client.close()
  }
  return lines.join('\n')
}

/** @param {Client} client @param {string} name @param {Record<string, unknown>} args */
async function call(client, name, args) {
  const result = await client.callTool({ name, arguments: args })
  const [first] = /** @type {{ type: string, text?: string }[]} */ (result.content)
  return first?.text ?? first?.type ?? 'nothing'
}

/** @param {Client} client @param {string} data */
async function fetched(client, data) {
  const args = { name: 'x.gz', data }
  const text = await call(client, 'gzip-file-as-resource', args).catch((error) => String(error))
  return text === 'resource_link' ? 'fetched' : text
}

/** @param {string} json what the server says its environment is */
function environment(json) {
  const all = /** @type {Record<string, string>} */ (JSON.parse(json))
  const shown = ['HOME', 'HTTPS_PROXY', 'API_TOKEN'].map((name) => `${name}=${all[name]}`)
  return [
    `get-env                 ${Object.keys(all).length} variables, among them`,
    ...shown.map((each) => `                        ${each}`),
  ]
}
