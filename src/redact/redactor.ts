import { findMatches } from './find.ts'
import type { Match } from './match.ts'
import type { Patterns } from './forms.ts'
import { Continuation } from './continuation.ts'
import { isOpen, neighbourStart, openStart } from './hold.ts'
import { longestRun } from './needles.ts'
import type { PartSeen, Redactor, Scanner } from './port.ts'
import { isWhole, regionsOf, type Region } from './regions.ts'
import { replacementOf } from './replacement.ts'

/** The placeholder that a client may see for an entry; undefined for none, then it gets a marker. */
export type ReplacementFor = (entryId: string) => string | undefined

/** Long chunks are searched in pieces of this size, bytes, so that the working set stays in the cache. */
const pieceSize = 65_536

/** Bytes held back that are searched again with every chunk; more are only once the match in them has ended. */
const longestRescan = 256

const nothing = new Uint8Array(0)

/** A redactor of one body. Only what may still become a match is held back, and only until it cannot. */
export function createRedactor(
  patterns: Patterns,
  replacementFor: ReplacementFor,
  partSeen?: PartSeen,
): Redactor {
  return new StreamRedactor(patterns, replacementFor, partSeen)
}

/** A scanner of one body: releases what is clean, and nothing from the first match on. */
export function createScanner(patterns: Patterns, partSeen?: PartSeen): Scanner {
  return new StreamScanner(patterns, partSeen)
}

/** Redacts one finished text of a head: a field value or a reason phrase, one byte per character (latin1). */
export function redactText(
  patterns: Patterns,
  text: string,
  replacementFor: ReplacementFor,
): { text: string; hits: number } {
  return redactWhole(createRedactor(patterns, replacementFor), text)
}

/** The same with a redactor that is used for this text alone. */
export function redactWhole(redactor: Redactor, text: string): { text: string; hits: number } {
  const clean = Buffer.concat([redactor.push(Buffer.from(text, 'latin1')), redactor.flush()])
  return redactor.hits === 0 ? { text, hits: 0 } : { text: clean.toString('latin1'), hits: redactor.hits }
}

/** Do these bytes, complete, hold a secret in any form that is looked for? */
export function containsSecret(patterns: Patterns, bytes: Uint8Array, partSeen?: PartSeen): boolean {
  const scanner = new StreamScanner(patterns, partSeen)
  return scanner.push(bytes) === undefined || scanner.flush() === undefined
}

/** Shortest run of a value that is taken for a piece of it where nothing stands around it. */
const shortestPiece = 4

/**
 * Are these bytes, complete, nothing but a run of a secret, in any form that is looked for but escapes? A part that an
 * upstream was asked for may be so short that `containsSecret` does not know it.
 */
export function isWithinSecret(patterns: Patterns, bytes: Uint8Array): boolean {
  const { lane, index } = patterns
  lane.fill(bytes, true)
  if (lane.length < shortestPiece) return false
  const text = Buffer.from(lane.text.buffer, 0, lane.length)
  return index.needles.some((needle) => {
    const at = Buffer.from(needle.text.buffer, needle.text.byteOffset, needle.text.length).indexOf(text)
    return at >= 0 && longestRun(needle.core, at, at + text.length) >= Math.min(text.length, needle.minRun)
  })
}

class StreamRedactor implements Redactor {
  hits = 0
  readonly #patterns: Patterns
  readonly #replacementFor: ReplacementFor
  readonly #partSeen: PartSeen | undefined
  /** Bytes that may begin a match, and how many of them are already written. */
  #held: Uint8Array = nothing
  #done = 0
  /** What only carries on an open match; not searched until something else comes. */
  readonly #continuation = new Continuation()

  constructor(patterns: Patterns, replacementFor: ReplacementFor, partSeen: PartSeen | undefined) {
    this.#patterns = patterns
    this.#replacementFor = replacementFor
    this.#partSeen = partSeen
  }

  push(chunk: Uint8Array): Uint8Array {
    if (chunk.length <= pieceSize) return joined(this.#step(chunk, false))
    const output: Uint8Array[] = []
    for (let at = 0; at < chunk.length; at += pieceSize) {
      output.push(...this.#step(chunk.subarray(at, at + pieceSize), false))
    }
    return joined(output)
  }

  flush(): Uint8Array {
    return joined(this.#step(nothing, true))
  }

  #step(chunk: Uint8Array, isFinal: boolean): Uint8Array[] {
    if (!isFinal && this.#continuation.take(chunk, this.#patterns.lane)) return []
    const parts = [this.#held, ...this.#continuation.drain(), chunk]
    const source = this.#held.length === 0 ? chunk : Buffer.concat(parts)
    if (source.length === 0) return []
    const { lane, regionLimit } = this.#patterns
    lane.fill(source, isFinal)
    const matches = findMatches(this.#patterns, lane)
    const regions =
      matches.length === 0 ? [] : regionsOf(matches, lane, { done: this.#done, limit: regionLimit })
    const open = isFinal ? source.length : openStart(this.#patterns, lane)
    const { keep, write } = isFinal ? { keep: open, write: open } : this.#keepFrom(regions, open)
    const closed = regions.filter(({ begin }) => begin < write)
    const output = this.#write(closed, source, write)
    this.#held = new Uint8Array(source.subarray(keep))
    this.#done -= keep
    if (!isFinal && this.#held.length > longestRescan) {
      const tail = this.#held.subarray(lane.tail - keep)
      this.#continuation.start(
        matches.filter(({ placeEnd }) => placeEnd === lane.length),
        tail,
        lane.endsInBreak,
      )
    }
    return output
  }

  /** Offsets from which source is kept and up to which it may be written, so that no region is cut. */
  #keepFrom(regions: readonly Region[], open: number): { keep: number; write: number } {
    let keep = open
    let write = open
    let next: Region | undefined
    for (const region of regions.toReversed()) {
      const isJoinable = next === undefined || next.to - region.begin <= this.#patterns.regionLimit
      const mayGrow = region.to > write || (region.whole === undefined && region.to === write && isJoinable)
      if (!mayGrow && !region.matches.some((match) => isOpen(match, this.#patterns.lane))) continue
      const neighbour = neighbourStart(region, this.#patterns.lane)
      keep = Math.min(keep, region.heldFrom, neighbour)
      write = Math.min(write, region.begin, neighbour)
      next = region
    }
    return { keep, write }
  }

  /** Writes source up to an offset with the regions in it replaced; leaves in `#done` how far it got. */
  #write(regions: readonly Region[], source: Uint8Array, to: number): Uint8Array[] {
    const output: Uint8Array[] = []
    const { lane, marker } = this.#patterns
    for (const found of regions) {
      // The end of base64 before it may hold bits of what begins here, which is then a part.
      const isCut = found.start < this.#done
      const region = isCut ? { ...found, start: Math.min(this.#done, found.end), whole: undefined } : found
      const text = this.#textFor(region.whole)
      const from = { lane, bytes: source, floor: this.#done }
      const replacement = replacementOf(region, from, { text, marker })
      output.push(source.subarray(this.#done, replacement.start), replacement.bytes)
      this.#done = Math.max(this.#done, replacement.end)
      this.hits++
      tellParts(found.matches, this.#partSeen, ({ from, to }) => `${from}-${to}`)
    }
    if (to > this.#done) output.push(source.subarray(this.#done, to))
    this.#done = Math.max(this.#done, to)
    return output
  }

  #textFor(whole: Match | undefined): string | undefined {
    for (const id of whole?.needle.ids ?? []) {
      const text = this.#replacementFor(id)
      if (text !== undefined) return text
    }
    return undefined
  }
}

class StreamScanner implements Scanner {
  readonly #patterns: Patterns
  readonly #partSeen: PartSeen | undefined
  #held: Uint8Array = nothing
  #isFound = false

  constructor(patterns: Patterns, partSeen: PartSeen | undefined) {
    this.#patterns = patterns
    this.#partSeen = partSeen
  }

  push(chunk: Uint8Array): Uint8Array | undefined {
    const output: Uint8Array[] = []
    for (let at = 0; at < chunk.length && !this.#isFound; at += pieceSize) {
      output.push(this.#step(chunk.subarray(at, at + pieceSize), false))
    }
    return this.#isFound ? undefined : joined(output)
  }

  flush(): Uint8Array | undefined {
    const rest = this.#isFound ? nothing : this.#step(nothing, true)
    return this.#isFound ? undefined : rest
  }

  #step(chunk: Uint8Array, isFinal: boolean): Uint8Array {
    const source = this.#held.length === 0 ? chunk : Buffer.concat([this.#held, chunk])
    if (source.length === 0) return nothing
    const { lane } = this.#patterns
    lane.fill(source, isFinal)
    const matches = findMatches(this.#patterns, lane)
    this.#isFound = matches.length > 0
    // What follows in the next chunk is not waited for; a guess that may match or not begins at another place each time.
    if (this.#isFound) tellParts(matches, this.#partSeen, ({ from }) => `from ${from}`)
    const open = isFinal ? source.length : openStart(this.#patterns, lane)
    this.#held = new Uint8Array(source.subarray(open))
    return source.subarray(0, open)
  }
}

/** A whole value among them is no guess, and explains the runs of other forms around it. */
function tellParts(
  matches: readonly Match[],
  partSeen: PartSeen | undefined,
  place: (match: Match) => string,
): void {
  if (partSeen === undefined || matches.some(isWhole)) return
  for (const match of matches) {
    for (const id of match.needle.ids) partSeen(id, `${match.needle.form} ${place(match)}`)
  }
}

function joined(parts: readonly Uint8Array[]): Uint8Array {
  const filled = parts.filter(({ length }) => length > 0)
  return filled.length === 1 ? (filled[0] ?? nothing) : Buffer.concat(filled)
}
