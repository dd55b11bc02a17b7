import type { Shape } from './model.ts'
import { isPrefix, minRandomChars, placeholderMarker } from './placeholder.ts'

/**
 * Shapes that client libraries accept where they check what a key looks like; `generic` is the default. Prefix and
 * total length follow the real keys, so that a library's own check passes and nothing is truncated.
 */
export const shapePresets = {
  generic: { prefix: '', length: 40 },
  github: { prefix: 'ghp_', length: 40 },
  openai: { prefix: 'sk-', length: 51 },
  anthropic: { prefix: 'sk-ant-api03-', length: 108 },
  slack: { prefix: 'xoxb-', length: 57 },
  stripe: { prefix: 'sk_test_', length: 107 },
} as const satisfies Record<string, Shape>

/** Longest placeholder, characters: what environment variables and header limits of every client carry. */
export const maxShapeLength = 256

/** Longest prefix, characters. */
export const maxPrefixLength = 64

/** A shape, or why there is none. */
export type ParsedShape =
  { readonly ok: true; readonly shape: Shape } | { readonly ok: false; readonly problem: string }

const refuse = (problem: string): ParsedShape => ({ ok: false, problem })

/**
 * The shape that a configuration value means: the name of a preset, `{ prefix, length }`, or `generic` when absent.
 * `problem` is a sentence for the operator that names what would do.
 */
export function parseShape(value: unknown): ParsedShape {
  if (value === undefined) return { ok: true, shape: shapePresets.generic }
  if (typeof value === 'string') return parsePreset(value)
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    return refuse('a shape is the name of a preset or { prefix, length }')
  }
  const unknown = Object.keys(value).find((key) => key !== 'prefix' && key !== 'length')
  if (unknown !== undefined) return refuse(`unknown key "${unknown}"; a shape has prefix and length`)
  const prefix: unknown = 'prefix' in value ? value.prefix : ''
  const length: unknown = 'length' in value ? value.length : undefined
  return parseCustom(prefix, length)
}

function parsePreset(name: string): ParsedShape {
  const entry = Object.entries(shapePresets).find(([preset]) => preset === name)
  if (entry !== undefined) return { ok: true, shape: entry[1] }
  return refuse(`no shape is called "${name}"; the presets are ${Object.keys(shapePresets).join(', ')}`)
}

function parseCustom(prefix: unknown, length: unknown): ParsedShape {
  if (typeof prefix !== 'string' || !isPrefix(prefix)) {
    return refuse('prefix may only hold letters, digits, "_" and "-", which no encoding changes')
  }
  if (prefix.length > maxPrefixLength) return refuse(`prefix may have at most ${maxPrefixLength} characters`)
  // The marker must occur once, at a known place, or a placeholder could not be told from its neighbours.
  if (prefix.toLowerCase().includes(placeholderMarker))
    return refuse(`prefix may not contain "${placeholderMarker}"`)
  const least = prefix.length + placeholderMarker.length + minRandomChars
  if (typeof length !== 'number' || !Number.isInteger(length) || length < least || length > maxShapeLength) {
    return refuse(`length must be a whole number from ${least} (128 random bits) to ${maxShapeLength}`)
  }
  return { ok: true, shape: { prefix, length } }
}
