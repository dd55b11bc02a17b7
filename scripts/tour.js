// Plays the tour of the README against a broker that it starts, in a temporary folder and on free ports:
//   node scripts/with-node24.js scripts/tour.js            to watch it
//   node scripts/with-node24.js scripts/tour.js --write    to record it in docs/tour.md and the README
import { spawn } from 'node:child_process'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { format, resolveConfig } from 'prettier'
import { packageDir } from '../bin/node24.js'
import { driveServer, serverCommand } from './tour/mcp.js'
import { Recorder } from './tour/recorder.js'
import { setStage } from './tour/stage.js'

/** Between lines like these the README has the short version. */
const marks = /** @type {const} */ ({ end: '<!-- end of the recording -->', parts: ['shipped', 'swap'] })

const stage = await setStage()
const recorder = new Recorder(stage)
/** @type {import('node:child_process').ChildProcess | undefined} */
let broker
try {
  recorder.section(
    'The configuration',
    'Three sandboxes, one access. `.test` names belong to nobody; the upstream runs on this machine.',
  )
  recorder.say(stage.registry.explanation)
  recorder.block('yaml', stage.configText)
  broker = await start()
  await install()
  await refusals()
  await swap()
  await mcp()
  await breakOut()
  await review()
} finally {
  const ended = broker && new Promise((resolve) => broker?.once('exit', resolve))
  broker?.kill('SIGTERM')
  await ended
  await stage.clear()
}
if (process.argv.includes('--write')) await write()

/** In a sandbox, or with its variables set where nothing can be isolated. @param {string} name @param {string} command */
function within(name, command) {
  if (stage.isIsolated) return `octroi run --sandbox ${name} -- ${command}`
  return `(eval "$(octroi env --sandbox ${name})"; ${command})`
}

async function start() {
  recorder.section('1. Start', 'The credential goes into the sealed store first; `API_KEY` holds it here.')
  await recorder.command('printf %s "$API_KEY" | octroi secret set tour')
  recorder.say(
    '`npm start` stays in the foreground; with `--config` it serves another configuration than `config/octroi.yaml`.',
  )
  const child = spawn('npm', ['start', '-s', '--', '--config', stage.configFile], {
    cwd: packageDir,
    env: recorder.env,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let output = ''
  await new Promise((resolve, reject) => {
    child.once('exit', (code) => reject(new TypeError(`the broker ended with ${code}: ${output}`)))
    child.stdout.on('data', (chunk) => {
      output += chunk
      if (/^paste .*after that|^paste .*placeholders$/m.test(output)) resolve(undefined)
    })
  })
  const lines = output.split('\n').filter((line) => !line.startsWith('note'))
  recorder.block('console', ['$ npm start -s -- --config tour/octroi.yaml', ...lines].join('\n'))
  return child
}

async function install() {
  recorder.section(
    '2. Install a package',
    'The sandbox `demo` may reach the npm registry to install, and nothing else.',
  )
  const command = `sh -c 'cd tmp && npm install --no-update-notifier ${stage.registry.install} && ls node_modules'`
  await recorder.command(
    within('demo', stage.isIsolated ? command : command.replace('tmp', '"$(mktemp -d)"')),
    { brief: 'shipped' },
  )
}

async function refusals() {
  recorder.section(
    '3. A host that is not allowed',
    'The status line carries the reason and the id of the event.',
  )
  const refused = within('demo', `curl -sSv https://evil.example/`)
  await recorder.command(`${refused} 2>&1 | grep '^< HTTP'`, { brief: 'shipped' })
  recorder.section('4. The metadata service', 'No setting opens it. The answer is for a program to act on.')
  const metadata = within('demo', 'curl -sS http://169.254.169.254/latest/meta-data/')
  await recorder.command(metadata, { brief: 'shipped' })
}

async function swap() {
  recorder.section(
    '5. A credential that the sandbox does not hold',
    'The sandbox `caller` has a placeholder in `API_TOKEN`. The upstream returns every request to its sender.',
  )
  const curl = `sh -c 'curl -sS -H "Authorization: Bearer $API_TOKEN" https://api.tour.test:18443/echo/'`
  const answer = await recorder.command(within('caller', curl), {
    brief: 'swap',
    only: /^(GET|[Aa]uthorization)/,
  })
  const got = stage.upstream.seen.at(-1)?.authorization ?? ''
  if (got !== `Bearer ${stage.apiKey}`) throw new TypeError('the upstream did not get the credential')
  if (answer.includes(stage.apiKey)) throw new TypeError('the credential came back')
  recorder.say('That is what the client got back. What the upstream got, by its own record:')
  recorder.block('text', `upstream got: Authorization: ${got}`, 'swap')
  recorder.say('The same placeholder elsewhere, though a rule allows the host:')
  const other = `sh -c 'curl -sS -H "Authorization: Bearer $API_TOKEN" https://other.tour.test:18443/'`
  await recorder.command(within('caller', other))
}

async function mcp() {
  recorder.section(
    '6. An MCP server',
    'The reference server `server-everything` from npm, started by `octroi run` and driven by the official SDK over stdio. ' +
      'An MCP client is configured with:',
  )
  const shown = serverCommand({ configFile: '/path/to/octroi.yaml', isIsolated: true }, '/path/to/octroi')
  recorder.block('json', JSON.stringify({ mcpServers: { everything: shown } }, null, 2))
  recorder.say(
    'What the client asked, and what came back. The last two are refused by the broker; `fetch` of Node tells its caller no ' +
      'more than that it failed, the log below holds the reason.',
  )
  recorder.block('text', await driveServer(stage))
}

async function breakOut() {
  recorder.section('7. Breaking out', 'Every way out that must be closed, tried from inside.')
  if (!stage.isIsolated)
    return recorder.say('Left out: there is no bubblewrap here that may make namespaces.')
  await recorder.command(
    `octroi doctor --inside --sandbox caller --reflect 'https://api.tour.test:18443/echo/{form}'`,
  )
}

async function review() {
  recorder.section('8. Who contacted what', 'Per sandbox, and per agent.')
  await recorder.command('octroi logs --sandbox demo', { brief: 'shipped' })
  await recorder.command('octroi logs --agent api-agent --verdict allow')
  await recorder.command('octroi logs --agent mcp-agent')
  await recorder.command('octroi domains --agent demo-agent', { brief: 'shipped' })
  await recorder.command('octroi domains --agent api-agent')
  await recorder.command('octroi domains --agent mcp-agent')
  recorder.section('9. The chain of events', 'Every event holds the hash of the one before it.')
  await recorder.command('octroi verify')
}

async function write() {
  const date = new Date().toISOString().slice(0, 10)
  const head = [
    '# The tour, recorded',
    `Recorded on ${date} by \`scripts/tour.js\` on ${process.platform} ${process.arch} with Node ${process.version}` +
      `${stage.isIsolated ? '' : ', without bubblewrap'}. Commands and output are what ran, with these changes: the ` +
      'temporary folder reads `tour`, the ports 18080, 18081 and 18443, addresses of the machine `ADDRESS`, the host of the ' +
      'npm registry "the npm registry"; ids, hashes, placeholders and the credential are cut at `…`; lines that note ' +
      "variables of the machine's environment are left out.",
    'To play it on your machine, in a temporary folder of its own:',
    '```sh\nnode scripts/with-node24.js scripts/tour.js\n```',
    'In a checkout, `octroi` stands for:',
    `\`\`\`sh\nalias octroi='npm run -s octroi --'\nexport OCTROI_CONFIG=tour/octroi.yaml\n\`\`\``,
  ]
  await writePage(join(packageDir, 'docs', 'tour.md'), [...head, recorder.page()].join('\n\n'))
  const readme = join(packageDir, 'README.md')
  let text = await readFile(readme, 'utf8')
  for (const part of marks.parts) {
    const begin = `<!-- recorded by scripts/tour.js: ${part} -->`
    const [at, end] = [text.indexOf(begin), text.indexOf(marks.end, text.indexOf(begin))]
    if (at < 0 || end < at) throw new TypeError(`README.md has no place for the recording: ${begin}`)
    text = `${text.slice(0, at + begin.length)}\n\n${recorder.brief(part)}\n\n${text.slice(end)}`
  }
  await writePage(readme, text)
}

/** @param {string} path @param {string} text */
async function writePage(path, text) {
  await writeFile(path, await format(text, { ...(await resolveConfig(path)), filepath: path }))
}
