import { pino, stdTimeFunctions, type DestinationStream, type Logger as PinoLogger } from 'pino'

/** The operator's log. Parts take it as an argument and never import this file; only the composition root makes one. */
export type Logger = PinoLogger

/** From which severity on lines are written. */
export type LogLevel = 'fatal' | 'error' | 'warn' | 'info' | 'debug' | 'silent'

/** How the log is written; every field has a default. */
export interface LoggerOptions {
  /** Default `info`. */
  readonly level?: LogLevel
  /** `json`: one object per line (default). `text`: for a terminal. */
  readonly format?: 'json' | 'text'
  /** Where lines go; default standard error, because standard output may belong to a protocol or a command's data. */
  readonly destination?: { write(line: string): void }
}

/**
 * Header fields whose values may be logged, lower case. An allowlist, because credentials travel in fields nobody has
 * heard of; everything else is logged by name only.
 */
export const loggableHeaders: ReadonlySet<string> = new Set([
  'accept',
  'accept-encoding',
  'accept-ranges',
  'age',
  'allow',
  'cache-control',
  'connection',
  'content-encoding',
  'content-language',
  'content-length',
  'content-type',
  'date',
  'expect',
  'host',
  'keep-alive',
  'proxy-status',
  'retry-after',
  'server',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'user-agent',
  'vary',
  'via',
])

const hidden = '[not logged]'

/** A header record with the value of every field that is not allowlisted replaced. */
export function headersForLog(headers: unknown): Record<string, unknown> {
  if (typeof headers !== 'object' || headers === null) return {}
  return Object.fromEntries(
    Object.entries(headers).map(([name, value]: [string, unknown]) => [
      name,
      loggableHeaders.has(name.toLowerCase()) ? value : hidden,
    ]),
  )
}

/** Makes the one logger of a process. */
export function createLogger(options: LoggerOptions = {}): Logger {
  const target = options.destination ?? pino.destination({ fd: 2, sync: true })
  const destination: DestinationStream = options.format === 'text' ? textDestination(target) : target
  return pino(
    {
      level: options.level ?? 'info',
      base: null,
      timestamp: stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      // Request and response objects carry headers, sockets and bodies: they are never serialized whole.
      serializers: {
        err: errorForLog,
        error: errorForLog,
        headers: headersForLog,
        req: () => hidden,
        res: () => hidden,
        request: () => hidden,
        response: () => hidden,
      },
    },
    destination,
  )
}

/** Named fields only: libraries hang whole requests, with their credentials, on error objects. */
function errorForLog(error: unknown, depth = 0): unknown {
  if (!(error instanceof Error)) return typeof error === 'string' ? error : hidden
  const fields: Record<string, unknown> = { type: error.name, message: error.message }
  for (const key of ['code', 'reason', 'detail', 'syscall'])
    if (key in error) {
      const value: unknown = Reflect.get(error, key)
      if (typeof value === 'string' || typeof value === 'number') fields[key] = value
    }
  if (error.stack !== undefined) fields['stack'] = error.stack
  if (error.cause !== undefined && depth < 4) fields['cause'] = errorForLog(error.cause, depth + 1)
  return fields
}

function textDestination(target: { write(line: string): void }): DestinationStream {
  return {
    write(line) {
      target.write(`${textLine(JSON.parse(line) as Record<string, unknown>)}\n`) // pino wrote it: an object
    },
  }
}

function textLine(record: Record<string, unknown>): string {
  const { time, level, msg, ...rest } = record
  const fields = Object.entries(rest).map(([key, value]) => `${key}=${fieldText(key, value)}`)
  return [String(time).slice(11, 19), String(level), printable(typeof msg === 'string' ? msg : ''), ...fields]
    .filter((part) => part !== '')
    .join(' ')
}

function fieldText(key: string, value: unknown): string {
  if ((key === 'err' || key === 'error') && typeof value === 'object' && value !== null)
    return JSON.stringify(errorText(value))
  return typeof value === 'string' && /^[\w.:/@+-]+$/.test(value) ? value : printable(JSON.stringify(value))
}

function errorText(error: object): string {
  const message: unknown = Reflect.get(error, 'message')
  const cause: unknown = Reflect.get(error, 'cause')
  const text = typeof message === 'string' ? message : ''
  return typeof cause === 'object' && cause !== null ? `${text}: ${errorText(cause)}` : text
}

/** Host names and paths come from sandboxes: control and bidirectional characters must not reach a terminal (CWE-150). */
function printable(text: string): string {
  return text.replace(
    /[\p{Cc}\p{Cf}\u2028\u2029]/gu,
    (c) => `\\u${(c.codePointAt(0) ?? 0).toString(16).padStart(4, '0')}`,
  )
}
