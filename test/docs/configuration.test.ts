import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { rootCertificates } from 'node:tls'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { unbuilt } from '../../src/config/unbuilt.ts'
import { configFolder } from '../helpers/config-files.ts'

const root = fileURLToPath(new URL('../../', import.meta.url))
const page = readFileSync(`${root}docs/configuration.md`, 'utf8')
const schema = JSON.parse(readFileSync(`${root}config/octroi.schema.json`, 'utf8')) as Node

interface Node {
  readonly $ref?: string
  readonly $defs?: Record<string, Node>
  readonly properties?: Record<string, Node>
  readonly additionalProperties?: Node | boolean
  readonly items?: Node
  readonly anyOf?: Node[]
  readonly oneOf?: Node[]
  readonly allOf?: Node[]
  readonly enum?: unknown[]
  readonly const?: unknown
}

/** Every key and every word that a value may be, with where it stands. */
function words(given: Node, path: readonly string[] = []): [path: string, word: string][] {
  const name = given.$ref?.split('/').at(-1)
  const node = name === undefined ? given : (schema.$defs?.[name] ?? {})
  const found: [string, string][] = []
  for (const value of [...(node.enum ?? []), ...(node.const === undefined ? [] : [node.const])])
    found.push([path.join('.'), String(value)])
  for (const [key, value] of Object.entries(node.properties ?? {}))
    found.push([[...path, key].join('.'), key], ...words(value, [...path, key]))
  const { additionalProperties: others } = node
  if (typeof others === 'object') found.push(...words(others, [...path, '*']))
  const parts = [node.items, ...(node.anyOf ?? []), ...(node.oneOf ?? []), ...(node.allOf ?? [])]
  return [...found, ...parts.flatMap((part) => (part === undefined ? [] : words(part, path)))]
}

/** The part of the page under a heading, up to the next of its kind. */
function section(heading: string): string {
  const start = page.indexOf(`\n${heading}\n`)
  const level = `${heading.split(' ')[0] ?? ''} `
  const end = page.indexOf(`\n${level}`, start + heading.length)
  return start < 0 ? '' : page.slice(start, end < 0 ? undefined : end)
}

const headings: Readonly<Record<string, string>> = {
  listen: '### `listen`',
  resolver: '### `resolver`',
  trust: '### `trust`',
  audit: '### `audit`',
  credentials: '## `credentials`',
  access: '## `access`',
  templates: '## `templates` and `sandboxes`',
  sandboxes: '## `templates` and `sandboxes`',
}

/** Named as a code span, alone or inside one: `{ host: NAME }`. */
function isNamed(text: string, word: string): boolean {
  const spans = [...text.matchAll(/`([^`]+)`/g)].map(([, span = '']) => span)
  return spans.some((span) => span.split(/[^\w*-]+/).includes(word))
}

describe('docs/configuration.md', () => {
  const all = [...new Map(words(schema).map((entry) => [entry.join(' '), entry])).values()]

  it('has something to compare with', () => {
    expect(all.length).toBeGreaterThan(80)
    expect(isNamed('a `{ host: NAME }` b', 'host')).toBe(true)
    expect(isNamed('a host b `hosts`', 'host')).toBe(false)
  })

  it.each(all)('names %s: %s where it belongs', (path, word) => {
    const heading = headings[path.split('.')[0] ?? '']
    const text = heading === undefined || !path.includes('.') ? section('## The main file') : section(heading)
    expect(isNamed(text, word)).toBe(true)
  })

  it('calls nothing unbuilt that the schema knows', () => {
    const known = new Set(all.map(([path]) => path))
    const spans = [...section('## Not built yet').matchAll(/`([\w.]+)`/g)].map(([, span = '']) => span)
    expect(spans.length).toBeGreaterThan(15)
    for (const span of spans) {
      const places = [
        span,
        ...['sandboxes.*.', 'sandboxes.*.allow.', 'access.*.', 'access.*.slot.', 'sandboxes.*.limits.'].map(
          (place) => `${place}${span}`,
        ),
      ]
      const refused = places.some(
        (place) => unbuilt(place.replace('allow.', 'allow.0.').split('.')) !== undefined,
      )
      expect([span, refused || span === 'static' || known.has(span)]).toEqual([span, true])
    }
  })
})

describe('the configurations in the README', () => {
  const readme = readFileSync(`${root}README.md`, 'utf8')
  const blocks = [...readme.matchAll(/```yaml\n([^]*?)```/g)].map(([, block = '']) => block)

  it.each(blocks)('load: %s', (block) => {
    const files = configFolder(block.startsWith('version:') ? block : `version: 1\n${block}`)
    mkdirSync(files.path('certs'))
    writeFileSync(files.path('certs/company-root.pem'), rootCertificates[0] ?? '')
    const loaded = files.load()
    expect(loaded.ok ? loaded.warnings : loaded.problems).toEqual([])
  })

  it('are two', () => expect(blocks).toHaveLength(2))
})
