import { globSync, readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { configJsonSchema } from '../../src/config/json-schema.ts'

const read = (path: string): string => readFileSync(new URL(`../../config/${path}`, import.meta.url), 'utf8')

describe('the JSON Schema', () => {
  it('in config/octroi.schema.json is the one that the code checks with', () => {
    expect(JSON.parse(read('octroi.schema.json'))).toEqual(JSON.parse(JSON.stringify(configJsonSchema())))
  })

  it('closes every mapping, so that an editor underlines an unknown key too', () => {
    const open: string[] = []
    const visit = (node: unknown, path: string): void => {
      if (typeof node !== 'object' || node === null) return
      if ('properties' in node && !('additionalProperties' in node)) open.push(path)
      for (const [key, inner] of Object.entries(node)) visit(inner, `${path}/${key}`)
    }
    visit(configJsonSchema(), '')
    expect(open).toEqual([])
  })

  it('is named in every shipped file, for editors', () => {
    const files = [
      'octroi.yaml',
      ...globSync('samples/*.yaml', { cwd: new URL('../../config/', import.meta.url) }),
    ]
    expect(files.length).toBeGreaterThan(1)
    for (const file of files) {
      expect(read(file)).toMatch(/^# yaml-language-server: \$schema=(\.|\.\.)\/octroi\.schema\.json\n/)
    }
  })
})
