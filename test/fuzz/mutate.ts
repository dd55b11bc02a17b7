import type { Seeded } from '../helpers/seeded.ts'

/** What inputs are made of. */
export interface Mutation {
  /** Inputs so far; one is changed, and a part of another may go into it. */
  readonly pool: readonly Buffer[]
  /** Texts (latin1) that mean something to the target. */
  readonly dictionary: readonly string[]
  /** Longest input, bytes. */
  readonly maxBytes: number
}

type Change = (bytes: Buffer, random: Seeded, mutation: Mutation) => Buffer

const splice = (bytes: Buffer, at: number, removed: number, added: Uint8Array): Buffer =>
  Buffer.concat([bytes.subarray(0, at), added, bytes.subarray(at + removed)])

const place = (bytes: Buffer, random: Seeded): number => random.below(bytes.length + 1)

/** A part of the input, at most 64 bytes. */
function part(bytes: Buffer, random: Seeded): { at: number; length: number } {
  const at = place(bytes, random)
  return { at, length: random.below(Math.min(64, bytes.length - at) + 1) }
}

const telling = [
  0, 1, 9, 10, 13, 32, 37, 44, 45, 46, 47, 48, 58, 64, 91, 92, 93, 127, 128, 133, 173, 192, 255,
]

const changes: readonly Change[] = [
  // One bit, one byte.
  (bytes, random) => {
    const copy = Buffer.from(bytes)
    if (copy.length > 0) {
      const at = random.below(copy.length)
      copy.writeUInt8(copy.readUInt8(at) ^ (1 << random.below(8)), at)
    }
    return copy
  },
  (bytes, random) => splice(bytes, place(bytes, random), 1, Buffer.of(random.pick(telling))),
  (bytes, random) => splice(bytes, place(bytes, random), 0, Buffer.of(random.pick(telling))),
  (bytes, random) => splice(bytes, place(bytes, random), random.below(2), random.bytes(1 + random.below(3))),
  // A part left out, said twice, moved, or many times over.
  (bytes, random) => {
    const { at, length } = part(bytes, random)
    return splice(bytes, at, length, Buffer.alloc(0))
  },
  (bytes, random) => {
    const { at, length } = part(bytes, random)
    return splice(bytes, place(bytes, random), 0, bytes.subarray(at, at + length))
  },
  (bytes, random) => {
    const { at, length } = part(bytes, random)
    const copies = Array.from({ length: 2 ** random.below(9) }, () => bytes.subarray(at, at + length))
    return splice(bytes, at, 0, Buffer.concat(copies))
  },
  (bytes, random) => bytes.subarray(0, place(bytes, random)),
  // Words of the language, twice as likely.
  ...Array.from(
    { length: 4 },
    (): Change =>
      (bytes, random, { dictionary }) =>
        splice(bytes, place(bytes, random), random.below(4), Buffer.from(random.pick(dictionary), 'latin1')),
  ),
  // The other case.
  (bytes, random) => {
    const { at, length } = part(bytes, random)
    const text = bytes.toString('latin1', at, at + length)
    const other = text === text.toUpperCase() ? text.toLowerCase() : text.toUpperCase()
    return splice(bytes, at, length, Buffer.from(other, 'latin1'))
  },
  // A part of another input, in place of one of this or behind the beginning of this.
  (bytes, random, { pool }) => {
    const other = random.pick(pool)
    const { at, length } = part(other, random)
    return splice(bytes, place(bytes, random), random.below(length + 1), other.subarray(at, at + length))
  },
  (bytes, random, { pool }) => {
    const other = random.pick(pool)
    return Buffer.concat([bytes.subarray(0, place(bytes, random)), other.subarray(place(other, random))])
  },
]

/** One input of the pool with one to four changes. */
export function mutated(mutation: Mutation, random: Seeded): Buffer {
  let bytes = random.pick(mutation.pool)
  for (let times = 1 + random.below(4); times > 0; times--) {
    bytes = random.pick(changes)(bytes, random, mutation).subarray(0, mutation.maxBytes)
  }
  return bytes
}
