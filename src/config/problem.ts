/** One thing wrong with the configuration, at its place. */
export interface Problem {
  readonly file: string
  /** From 1. */
  readonly line: number
  /** From 1. */
  readonly column: number
  /** Keys from the root of the file, such as `sandboxes.coder-1.allow.0.host`; empty for the file itself. */
  readonly path: string
  readonly message: string
  /** The nearest spelling that works. */
  readonly suggestion?: string | undefined
}

/** Keys and indices from the root of a document. */
export type Path = readonly (string | number)[]

/** A document that can say where the value (or the key) of a path stands. */
export interface Locator {
  readonly file: string
  locate(path: Path, part: 'key' | 'value'): { line: number; column: number }
}

/** A value's place: which file, which keys. */
export interface Place {
  readonly source: Locator
  readonly path: Path
}

/** The place one or more keys further down. */
export function below(place: Place, ...keys: (string | number)[]): Place {
  return { source: place.source, path: [...place.path, ...keys] }
}

/** A problem at a place; `part` says whether the key or the value is marked. */
export function problemAt(
  place: Place,
  message: string,
  options: { suggestion?: string | undefined; part?: 'key' | 'value' } = {},
): Problem {
  const { source, path } = place
  const { line, column } = source.locate(path, options.part ?? 'value')
  const found = { file: source.file, line, column, path: path.join('.'), message }
  return options.suggestion === undefined ? found : { ...found, suggestion: options.suggestion }
}

/** `FILE:LINE:COLUMN` of a place, to name a second one in a message. */
export function describePlace(place: Place): string {
  const { line, column } = place.source.locate(place.path, 'key')
  return `${place.source.file}:${line}:${column}`
}

/** A problem as one line: `FILE:LINE:COLUMN: PATH: MESSAGE; did you mean SUGGESTION?` */
export function formatProblem(problem: Problem): string {
  const where = `${problem.file}:${problem.line}:${problem.column}: `
  const path = problem.path === '' ? '' : `${problem.path}: `
  const hint = problem.suggestion === undefined ? '' : `; did you mean \`${problem.suggestion}\`?`
  return `${where}${path}${problem.message}${hint}`
}

/** Problems in reading order: by file as first seen, then line, then column. */
export function inReadingOrder(problems: readonly Problem[]): Problem[] {
  const files = [...new Set(problems.map((problem) => problem.file))]
  return problems.toSorted(
    (a, b) => files.indexOf(a.file) - files.indexOf(b.file) || a.line - b.line || a.column - b.column,
  )
}

/** The candidate that was meant: a slip of the pen by edit distance, else one with the same beginning. */
export function nearest(text: string, candidates: Iterable<string>): string | undefined {
  const wanted = text.toLowerCase()
  let best: string | undefined
  let bestDistance = Math.max(1, Math.floor(text.length / 3)) + 1
  for (const candidate of candidates) {
    const distance = editDistance(wanted, candidate.toLowerCase(), bestDistance)
    if (distance < bestDistance) {
      best = candidate
      bestDistance = distance
    }
  }
  return best ?? [...candidates].find((candidate) => sharesStem(wanted, candidate.toLowerCase()))
}

// `allowed_domain` is too far from `allow` to be a slip, but means it.
function sharesStem(a: string, b: string): boolean {
  return Math.min(a.length, b.length) >= 4 && (a.startsWith(b) || b.startsWith(a))
}

/** Optimal string alignment: insertion, deletion, substitution and the swap of two neighbours each count 1. */
function editDistance(a: string, b: string, limit: number): number {
  if (Math.abs(a.length - b.length) >= limit) return limit
  let before: number[] = []
  let previous = Array.from({ length: b.length + 1 }, (_, index) => index)
  for (let i = 1; i <= a.length; i++) {
    const row = [i]
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1]
      let cost = Math.min(
        (previous[j] ?? 0) + 1,
        (row[j - 1] ?? 0) + 1,
        (previous[j - 1] ?? 0) + (same ? 0 : 1),
      )
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) {
        cost = Math.min(cost, (before[j - 2] ?? 0) + 1)
      }
      row.push(cost)
    }
    before = previous
    previous = row
  }
  return previous[b.length] ?? limit
}
