import { join, relative } from 'node:path'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { getDefaultEnvironment, StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { packageDir } from '../../bin/node24.js'

/** @typedef {import('./stage.js').Stage} Stage */

const server = 'node_modules/@modelcontextprotocol/server-everything/dist/index.js'

/**
 * What an MCP client is configured with to start the server, from the root of the checkout.
 * @param {boolean} isIsolated
 * @returns {{ command: string, args: string[] }}
 */
export function serverCommand(isIsolated) {
  const path = join(packageDir, server)
  if (!isIsolated) {
    const script = `eval "$(npm run -s octroi -- env --sandbox tools)"; exec node ${server}`
    return { command: 'sh', args: ['-c', script] }
  }
  const seen = ['--ro', join(packageDir, 'node_modules')]
  return {
    command: 'npm',
    args: ['run', '-s', 'octroi', '--', 'run', '--sandbox', 'tools', ...seen, '--', 'node', path],
  }
}

/**
 * Drives the reference server with the official client, and says what was asked and answered, a line each.
 * @param {Stage} stage
 * @returns {Promise<string>}
 */
export async function driveServer(stage) {
  const client = new Client({ name: 'octroi-tour', version: '1.0.0' })
  await client.connect(
    new StdioClientTransport({
      ...serverCommand(stage.isIsolated),
      cwd: packageDir,
      env: { ...getDefaultEnvironment(), OCTROI_CONFIG: stage.configFile },
      stderr: 'ignore',
    }),
  )
  /** @type {string[]} */
  const lines = []
  try {
    const { name, version } = client.getServerVersion() ?? { name: '', version: '' }
    lines.push(`initialize                 ${name} ${version}`)
    const { tools } = await client.listTools()
    lines.push(
      `tools/list                 ${tools.length} tools: ${tools
        .slice(0, 3)
        .map((tool) => tool.name)
        .join(', ')} …`,
    )
    lines.push(`echo                       ${await call(client, 'echo', { message: 'hello' })}`)
    lines.push(`get-env                    ${environment(await call(client, 'get-env', {}))}`)
    const url = `https://api.tour.test:${stage.ports.upstream}/echo/tool`
    for (const data of [url, 'https://evil.example/', 'http://169.254.169.254/latest/meta-data/'])
      lines.push(
        `gzip-file-as-resource      ${data}`,
        `                           ${await fetched(client, data)}`,
      )
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
  const text = await call(client, 'gzip-file-as-resource', { name: 'x.gz', data }).catch((error) =>
    String(error.message),
  )
  return text === 'resource_link' ? 'fetched' : text
}

/** @param {string} json what the server says its environment is */
function environment(json) {
  const all = /** @type {Record<string, string>} */ (JSON.parse(json))
  const { HTTPS_PROXY, API_TOKEN, HOME } = all
  return `${Object.keys(all).length} variables; HOME=${HOME} HTTPS_PROXY=${HTTPS_PROXY} API_TOKEN=${API_TOKEN}`
}

/** The server's path as the reader of a checkout would write it. */
export const shownServer = relative(packageDir, join(packageDir, server))
