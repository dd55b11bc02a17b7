import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'

const root = fileURLToPath(new URL('../../', import.meta.url))
const page = readFileSync(`${root}CONTRIBUTING.md`, 'utf8')

describe('CONTRIBUTING.md', () => {
  const named = [...page.matchAll(/`((?:src|test|docs|bin|scripts|config|\.ci)\/[\w./-]*)`/g)].map(
    ([, path = '']) => path,
  )

  it.each([...new Set(named)])('names %s, which exists', (path) => {
    expect(existsSync(`${root}${path}`)).toBe(true)
  })

  it('has a place for every folder of src/', () => {
    const folders = readdirSync(`${root}src`, { withFileTypes: true }).filter((entry) => entry.isDirectory())
    expect(
      folders.map(({ name }) => name).filter((name) => !page.includes(`src/${name}/`) && name !== 'core'),
    ).toEqual([])
  })
})

describe('docs/decisions/', () => {
  const records = readdirSync(`${root}docs/decisions`)
    .filter((name) => name !== 'README.md')
    .toSorted()

  it('are numbered without a gap and titled by their number', () => {
    expect(records.map((name) => Number(name.slice(0, 4)))).toEqual(records.map((_, index) => index + 1))
    for (const name of records) {
      const text = readFileSync(`${root}docs/decisions/${name}`, 'utf8')
      expect(text).toMatch(new RegExp(`^# ${name.slice(0, 4)} \\S`))
    }
  })

  it.each(records)('keep %s to half a page', (name) => {
    expect(readFileSync(`${root}docs/decisions/${name}`, 'utf8').split('\n').length).toBeLessThan(40)
  })
})
