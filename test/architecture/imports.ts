import ts from 'typescript'
import { importsOf, packageOf, parse, unitOf, walk } from './source.ts'
import type { Import, Tree } from './source.ts'
import { dialers, mayImport, mayNotDial, packageHomes, pureBuiltins, pureFiles } from './table.ts'

/** Runs `check` for every import of every file and collects what it complains about. */
function eachImport(tree: Tree, check: (path: string, imported: Import) => string | undefined): string[] {
  return [...tree].flatMap(([path, text]) =>
    importsOf(path, text).flatMap((imported) => {
      const problem = check(path, imported)
      return problem === undefined ? [] : [`${path}: ${problem}`]
    }),
  )
}

/** Imports between folders that the table does not list, and folders that it does not know. */
export function forbiddenImports(tree: Tree): string[] {
  const unknown = [...tree.keys()].filter((path) => mayImport[unitOf(path)] === undefined)
  return [
    ...unknown.map((path) => `${path}: ${unitOf(path)} is not in the import table`),
    ...eachImport(tree, (path, { specifier, target }) => {
      if (specifier === '(computed)') return 'imports what only the run time knows'
      if (target === undefined) return undefined
      if (target.startsWith('..')) return `imports ${specifier}, which is outside src/`
      const allowed = unitOf(target) === unitOf(path) || mayImport[unitOf(path)]?.includes(unitOf(target))
      return allowed ? undefined : `imports ${target}, which ${unitOf(path)} may not`
    }),
  ]
}

/** Packages outside their homes, packages without one, and built-in modules without their `node:`. */
export function homelessPackages(tree: Tree): string[] {
  return eachImport(tree, (path, { specifier, target }) => {
    if (target !== undefined || specifier === '(computed)') return undefined
    const name = packageOf(specifier)
    const home = packageHomes[name]
    if (home === undefined) return name.startsWith('node:') ? undefined : `imports ${name}, which has no home`
    return home.test(path) ? undefined : `imports ${name} outside its home`
  })
}

/** What pure files import of the world. */
export function impureImports(tree: Tree): string[] {
  return eachImport(tree, (path, { specifier, target, typeOnly, names }) => {
    if (!pureFiles.test(path) || typeOnly) return undefined
    if (target === 'core/clock.ts') return 'is pure and may take only types from core/clock.ts'
    if (!specifier.startsWith('node:')) return undefined
    const builtin = pureBuiltins[specifier]
    const fine = builtin?.files.test(path) === true && names.every((name) => builtin.names.includes(name))
    return fine ? undefined : `is pure and imports ${names.join(', ')} of ${specifier}`
  })
}

/** Ways round the connector: every dial and lookup of the data plane goes through `net/`. */
export function unguardedDials(tree: Tree): string[] {
  return [...tree].flatMap(([path, text]) => {
    if (!mayNotDial.test(path)) return []
    const found: string[] = []
    const complain = (what: string): unknown =>
      found.push(`${path}: ${what} opens a connection past the guard`)
    const namespaces = new Map<string, readonly string[]>()
    for (const { specifier, typeOnly, names, namespaces: local } of importsOf(path, text)) {
      const banned = dialers[specifier]
      if (banned === undefined || typeOnly) continue
      const direct = names.filter((name) => banned.includes(name) || banned.includes('*'))
      for (const name of direct) complain(`${name} of ${specifier}`)
      for (const name of local) namespaces.set(name, banned)
    }
    walk(parse(path, text), (node) => {
      if (ts.isCallExpression(node) && node.expression.getText() === 'fetch') complain('fetch')
      if (!ts.isPropertyAccessExpression(node) || !ts.isIdentifier(node.expression)) return
      if (namespaces.get(node.expression.text)?.includes(node.name.text) === true) complain(node.getText())
    })
    return found
  })
}

/** Files that import each other at run time, as `a -> b -> a`. */
export function importCycles(tree: Tree): string[] {
  const edges = new Map(
    [...tree].map(([path, text]) => [
      path,
      importsOf(path, text).flatMap(({ target, typeOnly }) =>
        target === undefined || typeOnly ? [] : [target],
      ),
    ]),
  )
  return cyclesIn(edges)
}

/** Cycles of a directed graph, one for each edge that closes one. */
export function cyclesIn(edges: ReadonlyMap<string, readonly string[]>): string[] {
  const cycles: string[] = []
  const done = new Set<string>()
  const visit = (node: string, trail: readonly string[]): void => {
    const seen = trail.indexOf(node)
    if (seen >= 0) cycles.push([...trail.slice(seen), node].join(' -> '))
    if (seen >= 0 || done.has(node)) return
    for (const next of edges.get(node) ?? []) visit(next, [...trail, node])
    done.add(node)
  }
  for (const node of edges.keys()) visit(node, [])
  return cycles
}

/** Files below `from` that reach a file below `to` through any chain of imports, types included. */
export function chainsBetween(tree: Tree, from: string, to: string): string[] {
  const next = (path: string): string[] =>
    importsOf(path, tree.get(path) ?? '').flatMap(({ target }) => (target === undefined ? [] : [target]))
  return [...tree.keys()]
    .filter((path) => unitOf(path) === from)
    .filter((start) => {
      const reached = new Set([start])
      for (const path of reached) for (const target of next(path)) reached.add(target)
      return [...reached].some((path) => unitOf(path) === to)
    })
}
