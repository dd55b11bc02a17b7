import { dirname, resolve } from 'node:path'
import { assemble } from './assemble.ts'
import type { Parts } from './assemble.ts'
import { readDocument } from './document.ts'
import type { Document } from './document.ts'
import { includedFiles, readConfigFile, resolvePath } from './files.ts'
import { emptyMerged, isRecord, mergeSections } from './merge.ts'
import type { Merged } from './merge.ts'
import type { Config } from './model.ts'
import { inReadingOrder, problemAt } from './problem.ts'
import type { Place, Problem } from './problem.ts'
import { schemaProblems } from './schema-problems.ts'
import { includedShell, mainShell } from './schema.ts'

/** A configuration in force, or everything that is wrong with the files. Warnings are shown and change nothing. */
export type LoadResult =
  | { readonly ok: true; readonly config: Config; readonly warnings: readonly Problem[] }
  | { readonly ok: false; readonly problems: readonly Problem[]; readonly warnings: readonly Problem[] }

/** What the files are judged by. */
export interface LoadOptions {
  /** Variables that `{ env: NAME }` may name; only looked at for being set. */
  readonly env: Readonly<Record<string, string | undefined>>
  /** `ms` since the epoch, for dates that have passed. */
  readonly now: number
}

/**
 * Reads a configuration file and what it includes. Executes nothing and opens no secret; all or nothing, with every
 * problem at its place. A missing file is a problem like any other.
 */
export function loadConfig(file: string, options: LoadOptions): LoadResult {
  const path = resolve(file)
  const main = readMain(path)
  const { shell, document } = main
  const problems = [...main.problems]
  if (document === undefined) return { ok: false, problems, warnings: [] }
  const root = resolvePath(dirname(path), shell.root ?? '.')
  const merged = emptyMerged()
  problems.push(...mergeSections(merged, document))
  const included = readIncluded({ shell, document, root, merged })
  problems.push(...included.problems)
  const place: Place = { source: document, path: [] }
  const { files, includes } = included
  const { config, ...found } = assemble({
    shell,
    place,
    root,
    merged,
    files: [path, ...files],
    includes,
    ...options,
  })
  problems.push(...found.problems)
  const warnings = inReadingOrder(found.warnings)
  return problems.length > 0
    ? { ok: false, problems: inReadingOrder(problems), warnings }
    : { ok: true, config, warnings }
}

type Shell = Parts['shell']

function readMain(path: string): { shell: Shell; document?: Document; problems: Problem[] } {
  const document = openDocument(path)
  const place: Place = { source: document, path: [] }
  const { value } = document
  if (value === undefined && document.problems.length > 0)
    return { shell: {}, problems: [...document.problems] }
  if (value === null || value === undefined) {
    const message = 'the file is empty; `octroi init` writes a first one'
    return { shell: {}, problems: [problemAt(place, message)] }
  }
  const parsed = mainShell.safeParse(value)
  if (parsed.success) return { shell: parsed.data, document, problems: [...document.problems] }
  const found = schemaProblems({ place, value, schema: mainShell }, parsed.error.issues)
  const problems = [...document.problems, ...found]
  return isRecord(value) ? { shell: wellFormed(value), document, problems } : { shell: {}, problems }
}

/** The keys of the main file that fit on their own, so that one wrong key does not hide problems of the rest. */
function wellFormed(value: Record<string, unknown>): Shell {
  const shape = mainShell.partial().strip()
  const kept = Object.entries(value).filter(([key, part]) => shape.safeParse({ [key]: part }).success)
  const parsed = shape.safeParse(Object.fromEntries(kept))
  return parsed.success ? parsed.data : {}
}

function openDocument(path: string): Document {
  const read = readConfigFile(path)
  if (read.ok) return readDocument(path, read.text)
  const problems: Problem[] = [{ file: path, line: 1, column: 1, path: '', message: read.problem }]
  return { file: path, value: undefined, problems, locate: () => ({ line: 1, column: 1 }) }
}

interface Including {
  readonly shell: Shell
  readonly document: Document
  readonly root: string
  readonly merged: Merged
}

/** Reads the files of `include` and adds their sections to `merged`. */
function readIncluded(input: Including): { files: string[]; includes: string[]; problems: Problem[] } {
  const { shell, document, root, merged } = input
  const problems: Problem[] = []
  const files = new Set<string>()
  const includes = (shell.include ?? []).map((pattern) => resolvePath(root, pattern))
  includes.forEach((pattern, index) => {
    const found = includedFiles(pattern)
    if (found.missing) {
      problems.push(problemAt({ source: document, path: ['include', index] }, `there is no file ${pattern}`))
    }
    for (const file of found.files) if (file !== document.file) files.add(file)
  })
  for (const file of files) {
    const included = openDocument(file)
    problems.push(...included.problems, ...shellProblems(included), ...mergeSections(merged, included))
  }
  return { files: [...files], includes, problems }
}

function shellProblems(document: Document): Problem[] {
  const { value } = document
  if (value === undefined || value === null) return []
  const place: Place = { source: document, path: [] }
  const parsed = includedShell.safeParse(value)
  if (parsed.success) return []
  const elsewhere = isRecord(value) ? Object.keys(value).filter((key) => isMainKey(key)) : []
  const misplaced = elsewhere.map((key) =>
    problemAt({ source: document, path: [key] }, `\`${key}\` belongs in the main file`, { part: 'key' }),
  )
  const others = schemaProblems({ place, value, schema: includedShell }, parsed.error.issues)
  return [...misplaced, ...others.filter((problem) => !elsewhere.includes(problem.path))]
}

const isMainKey = (key: string): boolean => key in mainShell.shape && !(key in includedShell.shape)
