import type { Bench } from './bench.ts'

/** One row of the relay contract: a behaviour that every relay of HTTP/1.1 owes its clients and upstreams. */
export interface RelayCase {
  /** Short stable key, for the record of what other relays do. */
  readonly key: string
  /** The behaviour as a sentence. */
  readonly name: string
  run(bench: Bench): Promise<void>
}
