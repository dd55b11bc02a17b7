import { globSync, readFileSync } from 'node:fs'
import { Ajv2020 } from 'ajv/dist/2020.js'
import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { configJsonSchema } from '../../src/config/json-schema.ts'
import rows from '../vectors/wrong-configs.json' with { type: 'json' }

const read = (path: string): string => readFileSync(new URL(`../../config/${path}`, import.meta.url), 'utf8')

describe('the JSON Schema', () => {
  it('in config/octroi.schema.json is the one that the code checks with', () => {
    expect(JSON.parse(read('octroi.schema.json'))).toEqual(JSON.parse(JSON.stringify(configJsonSchema())))
  })

  it('is named in every shipped file, for editors', () => {
    const files = ['octroi.yaml', ...globSync('samples/*.yaml', { cwd: new URL('../../config/', import.meta.url) })]
    expect(files.length).toBeGreaterThan(1)
    for (const file of files) {
      expect(read(file)).toMatch(/^# yaml-language-server: \$schema=(\.|\.\.)\/octroi\.schema\.json\n/)
    }
  })
})
