import { inspect } from 'node:util'

const marker = '[REDACTED]'

/**
 * A value that must not be printed. Every way of turning it into text (template strings, JSON, `util.inspect`,
 * `util.format`, pino) yields a marker; `reveal()` is the one way out, and the architecture test lists who may call it.
 */
export class Secret {
  readonly #value: string

  constructor(value: string) {
    this.#value = value
  }

  /** The plain text. Callers are listed in `test/architecture.test.ts`. */
  reveal(): string {
    return this.#value
  }

  toString(): string {
    return marker
  }

  toJSON(): string {
    return marker
  }

  [Symbol.toPrimitive](): string {
    return marker
  }

  [inspect.custom](): string {
    return marker
  }
}
