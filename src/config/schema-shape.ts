import { z } from 'zod'

/** What a schema looks like inside its wrappers (optional, nullable, transformed). */
function bare(schema: unknown): unknown {
  if (schema instanceof z.ZodOptional || schema instanceof z.ZodNullable) return bare(schema.unwrap())
  return schema instanceof z.ZodPipe ? bare(schema.in) : schema
}

const asSchema = (schema: unknown): z.ZodType | undefined =>
  schema instanceof z.ZodType ? schema : undefined

/** The schema of the value at a path, `undefined` below an unknown key. */
export function schemaAt(schema: z.ZodType, path: readonly PropertyKey[]): z.ZodType | undefined {
  let here: unknown = bare(schema)
  for (const step of path) {
    if (here instanceof z.ZodObject) here = bare(Reflect.get(here.shape, step))
    else if (here instanceof z.ZodRecord) here = bare(here.valueType)
    else if (here instanceof z.ZodArray) here = bare(here.element)
    else return undefined
  }
  return asSchema(here)
}

/** The keys that a schema knows; of a union, those of the alternative that knows most keys of the value. */
export function keysOf(schema: z.ZodType | undefined, value: unknown): string[] {
  if (schema instanceof z.ZodObject) return Object.keys(schema.shape)
  const given = typeof value === 'object' && value !== null ? Object.keys(value) : []
  const ranked = optionsOf(schema)
    .map((option) => keysOf(option, undefined))
    .map((keys) => ({ keys, known: given.filter((key) => keys.includes(key)).length }))
    .toSorted((a, b) => b.known - a.known)
  return ranked[0]?.keys ?? []
}

/** The alternatives of a union, in order. */
export function optionsOf(schema: z.ZodType | undefined): z.ZodType[] {
  if (!(schema instanceof z.ZodUnion)) return []
  return schema.options.flatMap((option) => asSchema(bare(option)) ?? [])
}

/** What a schema takes, in words: `{ env }`, `a list`, `generated`. */
export function nounOf(schema: z.ZodType): string {
  if (schema instanceof z.ZodObject) {
    const required = Object.entries(schema.shape).filter(([, inner]) => !(inner instanceof z.ZodOptional))
    return `{ ${required.map(([key]) => key).join(', ')} }`
  }
  if (schema instanceof z.ZodArray) return 'a list'
  if (schema instanceof z.ZodLiteral) return [...schema.values].join(' or ')
  if (schema instanceof z.ZodEnum) return schema.options.join(' or ')
  return schema instanceof z.ZodNumber ? 'a number' : 'text'
}
