import { longestRun, type Needle } from './needles.ts'

/** Bytes of a gram, the unit that text is looked up by. */
export const gramSize = 8

/** Text is looked up at every fifth place: of any run of 12 characters one gram then begins at such a place. */
export const stride = 5

/** Needles that share a gram and this many bytes on either side of it share its index entry. */
const context = stride

/** Fields of an entry in `entries`: next entry of the chain, hash, position in the pool, needle. */
export const entryFields = 4

/** Index of all grams of the needles that match by runs. Positions are places in `pool`, where needles stand in a row. */
export interface GramIndex {
  readonly needles: readonly Needle[]
  /** Folded needles, each behind a 0, which occurs in none. */
  readonly pool: Uint8Array
  readonly starts: Int32Array
  readonly ends: Int32Array
  /** Bit set over hashes; most text ends here. */
  readonly bloom: Int32Array
  readonly bloomShift: number
  /** First entry of the chain of each hash, as a place in `entries`; 0 ends a chain. */
  readonly heads: Int32Array
  readonly headShift: number
  readonly entries: Int32Array
}

/** Hash of the gram at a place. */
export const gramHash = (view: DataView, place: number): number =>
  hashOf(view.getInt32(place, true), view.getInt32(place + 4, true))

/** Hash of a gram by its first and last four bytes, lowest first. */
export function hashOf(first: number, last: number): number {
  const mixed = Math.imul(first, 0x9e3779b1)
  return Math.imul(mixed ^ (mixed >>> 15) ^ last, 0x85ebca6b)
}

/** Can there be an entry of this hash? */
export function mayHave(index: GramIndex, hash: number): boolean {
  const bit = hash >>> index.bloomShift
  return ((index.bloom[bit >>> 5] ?? 0) & (1 << (bit & 31))) !== 0
}

/** Builds the index; needles that only match whole have no place in it. */
export function buildGramIndex(needles: readonly Needle[]): GramIndex {
  const total = needles.reduce((sum, { text }) => sum + text.length, 0)
  const pool = new Uint8Array(total + needles.length + gramSize)
  const starts = new Int32Array(needles.length)
  const ends = new Int32Array(needles.length)
  let place = 1
  for (const [i, { text }] of needles.entries()) {
    pool.set(text, place)
    starts[i] = place
    place += text.length
    ends[i] = place++
  }
  const bloomBits = powerOfTwo(total * 16, 13, 27)
  const headBits = powerOfTwo(total, 8, 24)
  const index: GramIndex = {
    needles,
    pool,
    starts,
    ends,
    bloom: new Int32Array(1 << (bloomBits - 5)),
    bloomShift: 32 - bloomBits,
    heads: new Int32Array(1 << headBits),
    headShift: 32 - headBits,
    entries: new Int32Array((total + 1) * entryFields),
  }
  fillIndex(index)
  return index
}

const powerOfTwo = (atLeast: number, low: number, high: number): number =>
  Math.min(high, Math.max(low, Math.ceil(Math.log2(Math.max(1, atLeast)))))

function fillIndex(index: GramIndex): void {
  const view = new DataView(index.pool.buffer)
  let count = 0
  for (const [owner, needle] of index.needles.entries()) {
    const start = index.starts[owner] ?? 0
    // With gaps between the grams a difference would not have enough entries of its own; see `hasTwin`.
    const mayShare = needle.form !== 'hex' && needle.core.every((flag) => flag === 1)
    for (const offset of gramOffsets(needle)) {
      const position = start + offset
      const hash = gramHash(view, position)
      const slot = hash >>> index.headShift
      if (mayShare && hasTwin(index, { slot, hash, position, owner })) continue
      count += entryFields
      index.entries[count] = index.heads[slot] ?? 0
      index.entries[count + 1] = hash
      index.entries[count + 2] = position
      index.entries[count + 3] = owner
      index.heads[slot] = count
      const bit = hash >>> index.bloomShift
      index.bloom[bit >>> 5] = (index.bloom[bit >>> 5] ?? 0) | (1 << (bit & 31))
    }
  }
}

/**
 * Places of the grams to look for: of every run of `minRun` core characters, `stride` grams in a row. With runs of 12
 * these are all grams; with longer ones there are gaps.
 */
function* gramOffsets(needle: Needle): Generator<number> {
  const period = needle.minRun - gramSize + 1 - (stride - 1)
  const { core } = needle
  let runStart = 0
  for (let i = 0; i <= core.length; i++) {
    if (core[i] === 1) continue
    if (i - runStart >= needle.minRun) {
      for (let offset = runStart; offset + gramSize <= i; offset++) {
        // Counted from either end too, so that the grams by which one needle is told from another are there.
        const isNearEnd = offset - runStart < stride || i - gramSize - offset < stride
        if (isNearEnd || (offset - runStart) % period < stride) yield offset
      }
    }
    runStart = i + 1
  }
}

/**
 * Is there an entry whose surroundings are equal? It then finds whatever this one would. A needle that differs anywhere
 * has `stride` entries of its own in a row around the difference, so the result does not depend on where the text
 * happens to be looked up.
 */
function hasTwin(
  index: GramIndex,
  candidate: { slot: number; hash: number; position: number; owner: number },
): boolean {
  const { position, owner } = candidate
  const from = Math.max(index.starts[owner] ?? 0, position - context)
  const to = Math.min(index.ends[owner] ?? 0, position + gramSize + context)
  const needle = index.needles[owner]
  for (let entry = index.heads[candidate.slot] ?? 0; entry !== 0; entry = index.entries[entry] ?? 0) {
    if (index.entries[entry + 1] !== candidate.hash) continue
    const other = index.entries[entry + 3] ?? 0
    const shift = (index.entries[entry + 2] ?? 0) - position
    if (index.needles[other]?.form !== needle?.form || index.needles[other]?.lead !== needle?.lead) continue
    if (Math.max(index.starts[other] ?? 0, position + shift - context) !== from + shift) continue
    if (Math.min(index.ends[other] ?? 0, position + shift + gramSize + context) !== to + shift) continue
    if (isMaskedAround(index, { other, from: from + shift, to: to + shift })) continue
    let i = from
    while (i < to && index.pool[i] === index.pool[i + shift]) i++
    if (i === to) return true
  }
  return false
}

function isMaskedAround(index: GramIndex, where: { other: number; from: number; to: number }): boolean {
  const start = index.starts[where.other] ?? 0
  const core = index.needles[where.other]?.core
  return core !== undefined && longestRun(core, where.from - start, where.to - start) < where.to - where.from
}
