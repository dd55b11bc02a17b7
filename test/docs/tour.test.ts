import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { runCli } from '../../src/cli/wiring.ts'
import { memoryIo } from '../helpers/memory-io.ts'
import { commandsIn, type Shown } from './commands.ts'

const root = fileURLToPath(new URL('../../', import.meta.url))
const read = (path: string): string => readFileSync(join(root, path), 'utf8')
const pages = [
  ...readdirSync(root).filter((name) => name.endsWith('.md')),
  ...['certs/README.md', 'docs/decisions/README.md'],
  ...readdirSync(join(root, 'docs')).flatMap((name) => (name.endsWith('.md') ? [`docs/${name}`] : [])),
]
const tour = read('docs/tour.md')
const readme = read('README.md')

/** What `--help` of a command says; undefined when there is no such command. */
async function helpOf(words: readonly string[]): Promise<string | undefined> {
  const { io, out } = memoryIo()
  await runCli([...words, '--help'], io)
  const text = out.join('\n')
  // Commander answers an unknown command with the help of its parent.
  return text.includes(`Usage: octroi ${words.join(' ')} `) ? text : undefined
}

/** What is wrong with a command line that a page shows. */
async function problemOf({ line, words }: Shown): Promise<string | undefined> {
  const [command = '', second = ''] = words
  // `octroi sandbox …`, and sentences in which the program is the subject.
  if (!/^[a-z][a-z-]*$/.test(command)) return command.startsWith('--') ? undefined : `${line}: no command`
  const own = await helpOf([command])
  if (own === undefined) return `${line}: there is no command ${command}`
  const hasChildren = /\nCommands:\n/.test(own)
  const child = hasChildren && /^[a-z][a-z-]*$/.test(second) ? second : undefined
  const help = child === undefined ? own : await helpOf([command, child])
  if (help === undefined) return `${line}: there is no command ${command} ${String(child)}`
  const options = words.filter((word) => /^--[a-z]/.test(word)).map((word) => word.split('=')[0] ?? '')
  const unknown = options.find((option) => option !== '--config' && !new RegExp(`${option}\\b`).test(help))
  return unknown === undefined ? undefined : `${line}: ${command} has no ${unknown}`
}

describe('commands in the documents', () => {
  const shown = pages.flatMap((page) =>
    commandsIn(read(page)).map((each) => [page, each.line, each] as const),
  )

  it('are found in code, not in output and not in sentences', () => {
    const text =
      'Run `octroi logs --since 2h`.\n\n```console\n$ octroi verify | cat\n403 octroi host_denied a.test:443\n```\n'
    expect(commandsIn(text).map(({ words }) => words)).toEqual([['logs', '--since', '2h'], ['verify']])
    expect(shown.length).toBeGreaterThan(30)
  })

  it.each(shown)('%s: %s', async (_page, _line, each) => {
    expect(await problemOf(each)).toBeUndefined()
  })

  it.each(['octroi log', 'octroi secret put x', 'octroi logs --colour', 'octroi sandbox create --ttll 2h'])(
    'would not be %s',
    async (line) => {
      const [wrong] = commandsIn(`\`${line}\``)
      expect(wrong === undefined ? undefined : await problemOf(wrong)).toBeDefined()
    },
  )

  it('that npm runs are scripts of package.json', () => {
    const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> }
    const names = pages.flatMap((page) =>
      [...read(page).matchAll(/npm (?:run (?:-s )?)?([a-z:]+)/g)].map(([all, name = '']) =>
        /^npm run/.test(all) ? name : ['start', 'test'].includes(name) ? name : undefined,
      ),
    )
    const wanted = new Set(names.filter((name) => name !== undefined))
    expect(wanted.size).toBeGreaterThan(3)
    expect([...wanted].filter((name) => scripts[name] === undefined)).toEqual([])
  })
})

describe('links between the documents', () => {
  const links = pages.flatMap((page) =>
    [...read(page).matchAll(/\]\((?!https?:)([^)#]+)[^)]*\)/g)].map(([, link = '']) => [page, link] as const),
  )

  it.each(links)('%s leads to %s', (page, link) => {
    expect(existsSync(join(root, dirname(page), link))).toBe(true)
  })

  it('lead from the README to every document of docs/', () => {
    const documents = readdirSync(join(root, 'docs')).filter((name) => name.endsWith('.md'))
    expect(documents.filter((name) => !readme.includes(`docs/${name}`))).toEqual([])
  })
})

describe('docs/tour.md', () => {
  const headings = [...tour.matchAll(/^## (.*)$/gm)].map(([, heading = '']) => heading)

  it('has a section for each part of the tour', () => {
    expect(headings).toEqual([
      'The configuration',
      '1. Start',
      '2. Install a package',
      '3. A host that is not allowed',
      '4. The metadata service',
      '5. A credential that the sandbox does not hold',
      '6. An MCP server',
      '7. Breaking out',
      '8. Who contacted what',
      '9. The chain of events',
    ])
  })

  it('says when and where it was recorded', () => {
    expect(tour).toMatch(/^Recorded on \d{4}-\d\d-\d\d by `scripts\/tour\.js` on \w+ \w+ with Node v24\./m)
  })

  it.each([
    ['an install', /\$ octroi run --sandbox demo -- .*npm install[^]*?added 1 package/],
    ['a refused host', /403 octroi host_denied evil\.example:443/],
    ['a metadata attempt', /"reason":"metadata_denied"/],
    ['the placeholder that the client got', /^Authorization: Bearer octroi\w+…$/m],
    ['the credential that the upstream got', /^upstream got: Authorization: Bearer key_[\w-]+…$/m],
    ['a placeholder at the wrong host', /"reason":"handle_wrong_destination"/],
    ['a real MCP server', /initialize +mcp-servers\/everything [^]*echo +Echo: hello/],
    [
      'a refused fetch of the MCP server',
      /mcp-agent +tools +deny +CONNECT +169\.254\.169\.254:80 +403 +metadata_denied/,
    ],
    [
      'a reflected credential that is not one',
      /PASS +reflected-raw[^]*PASS +reflected-base64[^]*PASS +reflected-gzip/,
    ],
    ['a good chain', /\$ octroi verify\ngood: \d+ events/],
  ])('shows %s', (_name, pattern) => {
    expect(tour).toMatch(pattern)
  })

  it('shows no failed check, and the agents apart', () => {
    expect(tour).not.toMatch(/^FAIL/m)
    for (const agent of ['demo-agent', 'api-agent', 'mcp-agent'])
      expect(tour).toContain(`$ octroi domains --agent ${agent}`)
  })

  it('holds no whole id, placeholder or hash, and no path of a machine', () => {
    expect(tour).not.toMatch(/\b01[0-9A-HJKMNP-TV-Z]{24}\b|octroi[A-Za-z0-9]{20,}|\b[0-9a-f]{32,}\b/)
    expect(tour).not.toMatch(/\/(?:tmp|home|root|work)\//)
  })
})

describe('the recording in the README', () => {
  const blocks = [
    ...readme.matchAll(/<!-- recorded by scripts\/tour\.js: \w+ -->\n\n```console\n([^]*?)```/g),
  ]

  it('is of the tour: every line of it stands in docs/tour.md', () => {
    const lines = blocks.flatMap(([, block = '']) => block.trimEnd().split('\n'))
    expect(blocks).toHaveLength(2)
    expect(lines.length).toBeGreaterThan(15)
    expect(lines.filter((line) => !tour.includes(line))).toEqual([])
  })
})
