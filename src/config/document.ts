import { LineCounter, isAlias, isMap, isPair, isScalar, isSeq, parseDocument } from 'yaml'
import type { Node, Pair, YAMLMap, YAMLParseError, YAMLWarning } from 'yaml'
import type { Locator, Path, Problem } from './problem.ts'

/** Largest configuration file, bytes. */
export const maxFileBytes = 1_000_000

/** Most values that aliases add to those that the text itself can hold: what an alias bomb runs into. */
const maxAliased = 100_000

/** Deepest nesting; the schema needs 8. */
const maxDepth = 40

/** A parsed YAML file: plain values, and the place of each. */
export interface Document extends Locator {
  /** `undefined` or `null` for an empty file; `undefined` where the text could not be read as values. */
  readonly value: unknown
  readonly problems: readonly Problem[]
}

/**
 * Parses YAML without executing or resolving anything: no custom tags, no merge keys, no second document. Duplicate
 * keys, `__proto__`, deep nesting and alias bombs are problems with their place, found in bounded time.
 */
export function readDocument(file: string, text: string): Document {
  const refused = (message: string): Document => ({
    file,
    value: undefined,
    locate: () => ({ line: 1, column: 1 }),
    problems: [{ file, line: 1, column: 1, path: '', message }],
  })
  if (Buffer.byteLength(text) > maxFileBytes) {
    return refused('the file is larger than 1 MB; split it with `include:`')
  }
  if (text.includes('\0') || text.includes('\ufffd')) return refused('the file is not UTF-8 text')
  if (isNestedTooDeeply(text)) return refused(tooDeep)
  const lines = new LineCounter()
  // The package compares every key with every other one (60,000 keys took a minute): `convert` does it with a set.
  const document = parseDocument(text, { lineCounter: lines, uniqueKeys: false, prettyErrors: false })
  const at = (offset: number): { line: number; column: number } => {
    const { line, col } = lines.linePos(offset)
    return { line: Math.max(1, line), column: Math.max(1, col) }
  }
  const problems: Problem[] = [...document.errors, ...document.warnings]
    .slice(0, 20)
    .map((error) => ({ file, ...at(error.pos[0]), path: '', message: describe(error) }))
  const anchors = new Map<string, Node>()
  const locate = locator(document.contents, anchors, at)
  if (problems.length > 0) return { file, value: undefined, locate, problems }
  const walk = { file, at, anchors, problems, left: maxAliased + text.length / 2, exhausted: false }
  const value = convert(document.contents, [], walk)
  return { file, value: walk.exhausted ? undefined : value, locate, problems }
}

const tooDeep = 'the file is nested too deeply'

// Before the parser, which recurses: a megabyte of brackets or of `- - -` would keep it busy for seconds.
function isNestedTooDeeply(text: string): boolean {
  let depth = 0
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i)
    if (code === 0x5b || code === 0x7b) depth++
    else if ((code === 0x5d || code === 0x7d) && depth > 0) depth--
    if (depth > 200) return true
  }
  return /^ *(?:(?:[-?]|[^ \n]{1,19}:) ){40}/m.test(text)
}

function describe(error: YAMLParseError | YAMLWarning): string {
  if (error.code === 'RESOURCE_EXHAUSTION') return tooDeep
  if (error.code === 'MULTIPLE_DOCS') return 'a file holds one YAML document; remove the `---` line'
  return `not valid YAML: ${error.message}`
}

interface Walk {
  readonly file: string
  readonly at: (offset: number) => { line: number; column: number }
  /** The latest node of each anchor so far, as YAML 1.2 section 7.1 has it. */
  readonly anchors: Map<string, Node>
  readonly problems: Problem[]
  left: number
  /** A bound was met: what was converted so far means nothing. */
  exhausted: boolean
}

function convert(node: unknown, path: Path, walk: Walk): unknown {
  if (walk.exhausted) return undefined
  if (--walk.left < 0) return giveUp(walk, { node, path }, 'the file has too many values or aliases')
  if (path.length > maxDepth) return giveUp(walk, { node, path }, tooDeep)
  if (isAlias(node)) {
    const target = walk.anchors.get(node.source)
    if (target === undefined)
      return complain(walk, { node, path }, `the alias *${node.source} is part of itself`)
    return convert(target, path, walk)
  }
  if (isMap(node)) {
    const value = convertMap(node, path, walk)
    if (node.anchor !== undefined) walk.anchors.set(node.anchor, node)
    return value
  }
  if (isSeq(node)) {
    const value = node.items.map((item, index) => convert(item, [...path, index], walk))
    if (node.anchor !== undefined) walk.anchors.set(node.anchor, node)
    return value
  }
  if (!isScalar(node)) return undefined
  if (node.anchor !== undefined) walk.anchors.set(node.anchor, node)
  return node.value
}

function convertMap(map: YAMLMap, path: Path, walk: Walk): Record<string, unknown> {
  const value: Record<string, unknown> = {}
  const seen = new Map<string, unknown>()
  for (const pair of map.items) {
    const key = keyOf(pair)
    if (key === undefined) {
      complain(walk, { node: pair.key, path }, 'a key must be plain text')
      continue
    }
    const first = seen.get(key)
    if (first !== undefined) {
      const { line, column } = walk.at(offsetOf(first))
      complain(
        walk,
        { node: pair.key, path: [...path, key] },
        `the key \`${key}\` is already at line ${line}, column ${column}`,
      )
    }
    seen.set(key, pair.key)
    if (key === '__proto__') {
      complain(walk, { node: pair.key, path: [...path, key] }, 'the key `__proto__` is not allowed')
      continue
    }
    value[key] = convert(pair.value, [...path, key], walk)
  }
  return value
}

// Numbers and booleans as keys are what a person meant as text: `1: …`, `true: …`.
function keyOf(pair: Pair): string | undefined {
  const key: unknown = pair.key
  if (!isScalar(key) || key.value === null || typeof key.value === 'object') return undefined
  return key.source ?? String(key.value)
}

interface Spot {
  readonly node: unknown
  readonly path: Path
}

function complain(walk: Walk, { node, path }: Spot, message: string): undefined {
  walk.problems.push({ file: walk.file, ...walk.at(offsetOf(node)), path: path.join('.'), message })
  return undefined
}

function giveUp(walk: Walk, { node, path }: Spot, message: string): undefined {
  walk.exhausted = true
  return complain(walk, { node, path: path.slice(0, 8) }, message)
}

function offsetOf(node: unknown): number {
  if (typeof node !== 'object' || node === null || !('range' in node) || !Array.isArray(node.range)) return 0
  const start: unknown = node.range[0]
  return typeof start === 'number' ? start : 0
}

function locator(root: unknown, anchors: Map<string, Node>, at: Walk['at']): Locator['locate'] {
  const tables = new WeakMap<YAMLMap, Map<string, Pair>>()
  const pairOf = (map: YAMLMap, key: string): Pair | undefined => {
    let table = tables.get(map)
    if (table === undefined) {
      table = new Map(map.items.flatMap((pair) => (isPair(pair) ? [[keyOf(pair) ?? '', pair] as const] : [])))
      tables.set(map, table)
    }
    return table.get(key)
  }
  return (path, part) => {
    let node: unknown = root
    let offset = offsetOf(root)
    for (const [index, step] of path.entries()) {
      if (isAlias(node)) node = anchors.get(node.source)
      const pair = isMap(node) ? pairOf(node, String(step)) : undefined
      const next: unknown = isSeq(node) ? node.items[Number(step)] : pair?.value
      const isLast = index === path.length - 1
      if (pair !== undefined && (next === null || next === undefined || (isLast && part === 'key'))) {
        return at(offsetOf(pair.key))
      }
      if (next === null || next === undefined) break
      // An empty value (`allow:`) has no text of its own: its key is the place to look at.
      offset = isEmpty(next) && pair !== undefined ? offsetOf(pair.key) : offsetOf(next)
      node = next
    }
    return at(offset)
  }
}

function isEmpty(node: unknown): boolean {
  return isScalar(node) && node.source === '' && node.value === null
}
