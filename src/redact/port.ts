/**
 * Told of each run of a value that was found without the whole: the id of its entry, and which run of which form. Equal runs
 * have equal texts.
 */
export type PartSeen = (entryId: string, run: string) => void

/** Incremental redactor of one body: output for any way of cutting the input equals the output for one chunk. */
export interface Redactor {
  /** Bytes that are certain to hold no part of a secret; holds back a possible partial match. */
  push(chunk: Uint8Array): Uint8Array
  flush(): Uint8Array
  /** Matches replaced so far. */
  readonly hits: number
}

/** Incremental scanner: releases only what is clean, stops for good at a match. */
export interface Scanner {
  /** `undefined` when a secret was found: nothing more may be released. */
  push(chunk: Uint8Array): Uint8Array | undefined
  flush(): Uint8Array | undefined
}
