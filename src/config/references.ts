import { isRecord } from './merge.ts'
import type { Merged, SectionName } from './merge.ts'
import { below, nearest, problemAt } from './problem.ts'
import type { Place, Problem } from './problem.ts'

const nouns: Readonly<Record<SectionName, string>> = {
  credentials: 'credential',
  access: 'access',
  templates: 'template',
  sandboxes: 'sandbox',
}

/** Every name that one entry uses for another must be written somewhere. */
export function checkReferences({ names }: Pick<Merged, 'names'>): Problem[] {
  const missing = (section: SectionName, name: unknown, place: Place): Problem[] => {
    if (typeof name !== 'string' || names[section].has(name)) return []
    const message = `there is no ${nouns[section]} \`${name}\``
    return [problemAt(place, message, { suggestion: nearest(name, names[section].keys()) })]
  }
  const check = (from: SectionName, key: string, to: SectionName): Problem[] =>
    [...names[from].values()].flatMap(({ value, place }) => {
      const written = isRecord(value) ? value[key] : undefined
      const at = below(place, key)
      if (!Array.isArray(written)) return missing(to, written, at)
      return written.flatMap((name: unknown, index) => missing(to, name, below(at, index)))
    })
  return [
    ...check('access', 'credential', 'credentials'),
    ...check('templates', 'access', 'access'),
    ...check('sandboxes', 'access', 'access'),
    ...check('sandboxes', 'template', 'templates'),
  ]
}
