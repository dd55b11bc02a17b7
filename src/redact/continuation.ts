import type { Match } from './match.ts'
import type { Lane } from './lane.ts'

/**
 * Keeps a long match that arrives in small chunks from being searched from its start with each of them: as long as
 * chunks only carry it on, they are put aside.
 */
export class Continuation {
  #chunks: Uint8Array[] = []
  /** The folded rest of every needle that is being matched. */
  #expected: readonly Uint8Array[] = []
  /** Bytes of an escape that is not complete. */
  #tail: Uint8Array = new Uint8Array(0)

  /** Begins at matches that reach the end of what was searched; with none, nothing is put aside. */
  start(matches: readonly Match[], tail: Uint8Array, endsInBreak: boolean): void {
    // A second line end would make a blank line, which ends the match: that must be seen at once.
    this.#expected = endsInBreak ? [] : matches.map(({ needle, to }) => needle.text.subarray(to))
    this.#tail = tail
  }

  /** Puts a chunk aside if all of it carries on every match; false if it must be searched now. */
  take(chunk: Uint8Array, lane: Lane): boolean {
    if (this.#expected.length === 0) return false
    const source = Buffer.concat([this.#tail, chunk])
    lane.fill(source, false)
    const text = lane.text.subarray(0, lane.length)
    const isExpected = this.#expected.every((rest) => startsWith(rest, text))
    if (!isExpected || lane.endsInBreak) {
      this.#expected = []
      return false
    }
    this.#chunks.push(new Uint8Array(chunk))
    this.#expected = this.#expected.map((rest) => rest.subarray(text.length))
    this.#tail = source.subarray(lane.tail)
    return true
  }

  /** What was put aside, in order. */
  drain(): Uint8Array[] {
    const chunks = this.#chunks
    this.#chunks = []
    this.#expected = []
    return chunks
  }
}

/** More must be expected than comes, since a match that is complete may have to be written. */
function startsWith(rest: Uint8Array, text: Uint8Array): boolean {
  if (rest.length <= text.length) return false
  for (let i = 0; i < text.length; i++) if (rest[i] !== text[i]) return false
  return true
}
