import ts from 'typescript'
import { parse, walk } from './source.ts'
import type { Tree } from './source.ts'
import { emptyWords, impureGlobals, maxFileLines, maxFunctionLines, mayReveal, pureFiles } from './table.ts'

/** Runs `check` on every node of every file; what it returns is a complaint about that line. */
function eachNode(tree: Tree, check: (node: ts.Node, path: string) => string | undefined): string[] {
  const found: string[] = []
  for (const [path, text] of tree) {
    const file = parse(path, text)
    walk(file, (node) => {
      const problem = check(node, path)
      if (problem === undefined) return
      found.push(`${path}:${file.getLineAndCharacterOfPosition(node.getStart()).line + 1}: ${problem}`)
    })
  }
  return found
}

/** Globals of time, randomness and the world in pure files. */
export function impureNames(tree: Tree): string[] {
  return eachNode(tree, (node, path) => {
    if (!pureFiles.test(path)) return undefined
    if (ts.isPropertyAccessExpression(node) && node.getText() === 'Math.random') return 'uses Math.random'
    if (!ts.isIdentifier(node) || !impureGlobals.includes(node.text) || namesProperty(node)) return undefined
    return `mentions ${node.text}`
  })
}

/** Is the identifier the name of a property, and so not of a global? */
function namesProperty(node: ts.Identifier): boolean {
  const { parent } = node
  if (ts.isPropertyAccessExpression(parent) || ts.isQualifiedName(parent)) {
    return node === (ts.isQualifiedName(parent) ? parent.right : parent.name)
  }
  const named =
    ts.isPropertyAssignment(parent) ||
    ts.isPropertySignature(parent) ||
    ts.isPropertyDeclaration(parent) ||
    ts.isMethodDeclaration(parent) ||
    ts.isMethodSignature(parent)
  return named && parent.name === node
}

/** Places outside the list where a `Secret` is opened. */
export function strayReveals(tree: Tree): string[] {
  return eachNode(tree, (node, path) => {
    if (mayReveal.test(path)) return undefined
    const access =
      (ts.isPropertyAccessExpression(node) && node.name.text === 'reveal') ||
      (ts.isElementAccessExpression(node) && /^['"`]reveal['"`]$/.test(node.argumentExpression.getText())) ||
      (ts.isBindingElement(node) && (node.propertyName ?? node.name).getText() === 'reveal')
    return access ? 'opens a Secret' : undefined
  })
}

/** Errors without a type: `new Error(…)` and `Error(…)`. */
export function plainErrors(tree: Tree): string[] {
  return eachNode(tree, (node) => {
    const makes =
      (ts.isNewExpression(node) || ts.isCallExpression(node)) && node.expression.getText() === 'Error'
    return makes ? 'makes a plain Error' : undefined
  })
}

/** Default exports: one thing, one name. */
export function defaultExports(tree: Tree): string[] {
  return eachNode(tree, (node) => {
    const modifier =
      ts.canHaveModifiers(node) && ts.getModifiers(node)?.some((m) => m.kind === ts.SyntaxKind.DefaultKeyword)
    return modifier === true || ts.isExportAssignment(node) ? 'has a default export' : undefined
  })
}

/** Files longer than the limit. */
export function longFiles(tree: Tree): string[] {
  return [...tree].flatMap(([path, text]) => {
    const lines = text.replace(/\n$/, '').split('\n').length
    return lines > maxFileLines ? [`${path}: ${lines} lines`] : []
  })
}

/** Functions longer than the limit, from signature to closing brace. */
export function longFunctions(tree: Tree): string[] {
  return eachNode(tree, (node) => {
    if (!ts.isFunctionLike(node) || !('body' in node) || node.body === undefined) return undefined
    const file = node.getSourceFile()
    const lineAt = (position: number): number => file.getLineAndCharacterOfPosition(position).line
    const lines = lineAt(node.getEnd()) - lineAt(node.getStart()) + 1
    return lines > maxFunctionLines ? `function of ${lines} lines` : undefined
  })
}

/** File names that are not kebab-case or hold a word that says nothing. */
export function badFileNames(tree: Tree): string[] {
  return [...tree.keys()].flatMap((path) => {
    const name = path.split('/').at(-1)?.replace(/\.ts$/, '') ?? ''
    const folders = path.split('/').slice(0, -1)
    const words = [...name.split('-'), ...folders].filter((word) => emptyWords.includes(word))
    if (words.length > 0) return [`${path}: "${words.join('", "')}" says nothing`]
    return /^[a-z0-9]+(-[a-z0-9]+)*$/.test(name) ? [] : [`${path}: not kebab-case`]
  })
}

/** Statements that export a declaration of their own, with the declared names. */
function exportedDeclarations(file: ts.SourceFile): { statement: ts.Statement; names: string[] }[] {
  const apart = file.statements.flatMap((statement) =>
    ts.isExportDeclaration(statement) && !statement.moduleSpecifier && statement.exportClause !== undefined
      ? ts.isNamedExports(statement.exportClause)
        ? statement.exportClause.elements.map((element) => (element.propertyName ?? element.name).text)
        : []
      : [],
  )
  return file.statements.flatMap((statement) => {
    const names = declaredNames(statement)
    const marked =
      ts.canHaveModifiers(statement) &&
      ts.getModifiers(statement)?.some((m) => m.kind === ts.SyntaxKind.ExportKeyword)
    return names.length > 0 && (marked === true || names.some((name) => apart.includes(name)))
      ? [{ statement, names }]
      : []
  })
}

function declaredNames(statement: ts.Statement): string[] {
  if (ts.isVariableStatement(statement)) {
    return statement.declarationList.declarations.map((declaration) => declaration.name.getText())
  }
  const named =
    ts.isFunctionDeclaration(statement) ||
    ts.isClassDeclaration(statement) ||
    ts.isInterfaceDeclaration(statement) ||
    ts.isTypeAliasDeclaration(statement)
  return named ? [statement.name?.text ?? 'default'] : []
}

/** Exported declarations without a doc comment; of overloads the first has to have one. */
export function undocumentedExports(tree: Tree): string[] {
  return [...tree].flatMap(([path, text]) => {
    const documented = new Set<string>()
    return exportedDeclarations(parse(path, text)).flatMap(({ statement, names }) => {
      const comments = ts.getLeadingCommentRanges(text, statement.getFullStart()) ?? []
      const last = comments.at(-1)
      if (last !== undefined && text.startsWith('/**', last.pos))
        for (const name of names) documented.add(name)
      return names
        .filter((name) => !documented.has(name))
        .map((name) => `${path}: ${name} has no doc comment`)
    })
  })
}

/** Exported types whose last word says nothing. */
export function emptyTypeNames(tree: Tree): string[] {
  return [...tree].flatMap(([path, text]) =>
    exportedDeclarations(parse(path, text)).flatMap(({ statement, names }) => {
      if (ts.isVariableStatement(statement) || ts.isFunctionDeclaration(statement)) return []
      const empty = names.filter((name) =>
        emptyWords.includes(/[A-Z][a-z0-9]*$/.exec(name)?.[0]?.toLowerCase() ?? ''),
      )
      return empty.map((name) => `${path}: the name ${name} says nothing`)
    }),
  )
}
