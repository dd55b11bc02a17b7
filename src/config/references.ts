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
export function checkReferences(merged: Merged): Problem[] {
  const missing = (section: SectionName, name: string, place: Place): Problem[] => {
    const known = merged.names[section]
    if (known.has(name)) return []
    const message = `there is no ${nouns[section]} \`${name}\``
    return [problemAt(place, message, { suggestion: nearest(name, known.keys()) })]
  }
  const lists = [...merged.templates.values(), ...merged.sandboxes.values()]
  return [
    ...[...merged.access.values()].flatMap(({ wire, place }) =>
      missing('credentials', wire.credential, below(place, 'credential')),
    ),
    ...lists.flatMap(({ wire, place }) =>
      (wire.access ?? []).flatMap((name, index) => missing('access', name, below(place, 'access', index))),
    ),
    ...[...merged.sandboxes.values()].flatMap(({ wire, place }) =>
      wire.template === undefined ? [] : missing('templates', wire.template, below(place, 'template')),
    ),
  ]
}
