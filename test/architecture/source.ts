import { readdirSync, readFileSync } from 'node:fs'
import { join, posix } from 'node:path'
import ts from 'typescript'

/** Texts of files by path, with `/` and relative to the folder that was read. */
export type Tree = ReadonlyMap<string, string>

/** One import of a file, however it is spelled. */
export interface Import {
  /** As written. */
  readonly specifier: string
  /** Path within the tree for a relative specifier. */
  readonly target: string | undefined
  readonly typeOnly: boolean
  /** Imported names; `*` for a namespace, default, dynamic or side-effect import. */
  readonly names: readonly string[]
  /** Local names of a namespace or default import. */
  readonly namespaces: readonly string[]
}

/** All files below `dir` whose path passes `wanted`; folders that fail `enter` are not entered. */
export function readTree(
  dir: string,
  wanted: (path: string) => boolean,
  enter: (path: string) => boolean = () => true,
): Tree {
  const tree = new Map<string, string>()
  const walk = (folder: string): void => {
    for (const entry of readdirSync(join(dir, folder), { withFileTypes: true })) {
      const path = posix.join(folder, entry.name)
      if (entry.isDirectory() && enter(path)) walk(path)
      if (entry.isFile() && wanted(path)) tree.set(path, readFileSync(join(dir, path), 'utf8'))
    }
  }
  walk('')
  return tree
}

const parsed = new Map<string, ts.SourceFile>()

/** Syntax tree of a file; cached by content. */
export function parse(path: string, text: string): ts.SourceFile {
  const key = `${path}\0${text}`
  const file = parsed.get(key) ?? ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true)
  parsed.set(key, file)
  return file
}

/** Calls `visit` for every node below `node`. */
export function walk(node: ts.Node, visit: (node: ts.Node) => void): void {
  ts.forEachChild(node, (child) => {
    visit(child)
    walk(child, visit)
  })
}

/** Folder of `src/` that a file belongs to, or its name without `.ts` when it lies directly in it. */
export const unitOf = (path: string): string => path.split('/')[0]?.replace(/\.ts$/, '') ?? path

/** Everything that a file imports: statements, re-exports, `import()`, types by `import()`, worker files by URL. */
export function importsOf(path: string, text: string): Import[] {
  const found: Import[] = []
  const add = (specifier: ts.Node | undefined, rest: Partial<Import>): void => {
    const written = literalOf(specifier) ?? '(computed)'
    const target = written.startsWith('.') ? posix.join(posix.dirname(path), written) : undefined
    found.push({ specifier: written, target, typeOnly: false, names: ['*'], namespaces: [], ...rest })
  }
  walk(parse(path, text), (node) => {
    if (ts.isImportDeclaration(node)) add(node.moduleSpecifier, clauseOf(node.importClause))
    if (ts.isExportDeclaration(node) && node.moduleSpecifier) {
      add(node.moduleSpecifier, { typeOnly: node.isTypeOnly })
    }
    if (ts.isImportTypeNode(node)) {
      add(ts.isLiteralTypeNode(node.argument) ? node.argument.literal : undefined, { typeOnly: true })
    }
    if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword)
      add(node.arguments[0], {})
    if (isFileUrl(node)) add(node.arguments?.[0], {})
  })
  return found
}

/** Text of a literal, or of a template up to its first expression. */
function literalOf(node: ts.Node | undefined): string | undefined {
  if (node === undefined) return undefined
  if (ts.isTemplateExpression(node)) return node.head.text || undefined
  return ts.isStringLiteralLike(node) ? node.text : undefined
}

/** `new URL('./worker.ts', import.meta.url)`, also with an extension that is put together; data files are no imports. */
function isFileUrl(node: ts.Node): node is ts.NewExpression {
  if (!ts.isNewExpression(node) || node.expression.getText() !== 'URL') return false
  const [file, base] = node.arguments ?? []
  return base?.getText() === 'import.meta.url' && file !== undefined && !/\.json['"]$/.test(file.getText())
}

function clauseOf(clause: ts.ImportClause | undefined): Partial<Import> {
  if (clause === undefined) return {}
  const bindings = clause.namedBindings
  const named = bindings !== undefined && ts.isNamedImports(bindings) ? bindings.elements : []
  const whole = bindings !== undefined && ts.isNamespaceImport(bindings) ? [bindings.name.text] : []
  const namespaces = clause.name === undefined ? whole : [clause.name.text, ...whole]
  return {
    typeOnly:
      clause.isTypeOnly || (namespaces.length === 0 && named.length > 0 && named.every((n) => n.isTypeOnly)),
    names: [...named.map((n) => (n.propertyName ?? n.name).text), ...namespaces.map(() => '*')],
    namespaces,
  }
}

/** Package or built-in module of a bare specifier: `@scope/name/path` becomes `@scope/name`. */
export function packageOf(specifier: string): string {
  if (specifier.startsWith('node:')) return specifier
  return specifier.split('/', specifier.startsWith('@') ? 2 : 1).join('/')
}
