import { z } from 'zod'
import { mainFile } from './schema.ts'

/** The JSON Schema of the main file, for editors; generated from the schema that `loadConfig` checks with. */
export function configJsonSchema(): Record<string, unknown> {
  return {
    title: 'Octroi configuration',
    ...z.toJSONSchema(mainFile, { io: 'input', reused: 'ref', unrepresentable: 'throw' }),
  }
}
