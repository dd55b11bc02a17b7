import { readdirSync, readFileSync } from 'node:fs'
import { basename } from 'node:path'
import { describe, expect, it } from 'vitest'
import { proofCount, runSeed } from '../helpers/proof-count.ts'
import { seeded, type Seeded } from '../helpers/seeded.ts'
import { mutated } from './mutate.ts'

/** A parser of untrusted bytes, and what must hold for any input. */
export interface FuzzTarget {
  /** Name of the test file and of the folder in `corpus/`. */
  readonly name: string
  /** Inputs in CI, and in the proof. */
  readonly inCi: number
  readonly full: number
  /** Texts (latin1) that mean something here. */
  readonly dictionary: readonly string[]
  /** Longest input, bytes; default 2,048. */
  readonly maxBytes?: number
  /** Least part of the inputs that must be taken, so that more than refusals is tested; default 0.005. */
  readonly leastTaken?: number
  /**
   * Throws where an invariant does not hold. Returns what became of the input: `taken` or `refused`, perhaps with more
   * behind a colon, since an input with a new outcome is mutated on. `random` follows from the input alone, so that an
   * input is all it takes to see a failure again.
   */
  check(input: Buffer, random: Seeded): string | Promise<string>
}

const corpus = new URL('./corpus/', import.meta.url)
const replay = process.env['OCTROI_FUZZ_INPUT']
const maxPool = 400

function filesOf(name: string): { file: string; bytes: Buffer }[] {
  const folder = new URL(`${name}/`, corpus)
  return readdirSync(folder).map((file) => ({ file, bytes: readFileSync(new URL(file, folder)) }))
}

/** FNV-1a. */
function hashOf(bytes: Buffer): number {
  let hash = 0x811c9dc5
  for (const byte of bytes) hash = Math.imul(hash ^ byte, 0x01000193)
  return hash >>> 0
}

const run = async (target: FuzzTarget, input: Buffer): Promise<string> =>
  target.check(input, seeded(hashOf(input)))

const failureOf = async (target: FuzzTarget, input: Buffer): Promise<unknown> => {
  try {
    await run(target, input)
    return undefined
  } catch (error) {
    return error
  }
}

/** A smaller input that fails too: parts are left out, half of it first. */
async function shrunk(target: FuzzTarget, input: Buffer): Promise<Buffer> {
  let smallest = input
  let tries = 400
  for (let size = input.length >> 1; size > 0; size >>= 1) {
    for (let at = 0; at < smallest.length && tries > 0; tries--) {
      const candidate = Buffer.concat([smallest.subarray(0, at), smallest.subarray(at + size)])
      if ((await failureOf(target, candidate)) === undefined) at += size
      else smallest = candidate
    }
  }
  return smallest
}

/** The failure with everything it takes to see it again. */
async function artifact(target: FuzzTarget, input: Buffer, about: string): Promise<Error> {
  const small = await shrunk(target, input)
  const cause = (await failureOf(target, small)) ?? (await failureOf(target, input))
  const reason = cause instanceof Error ? cause.message : String(cause)
  const lines = [
    `${target.name}, ${about}: ${reason}`,
    `input: ${JSON.stringify(small.toString('latin1'))}`,
    `again: OCTROI_FUZZ_INPUT=${small.toString('base64')} npm test -- test/fuzz/${target.name}.test.ts`,
  ]
  return new Error(lines.join('\n'), { cause })
}

/** Declares the tests of a target: its corpus as it is, then mutations of it. */
export function fuzz(target: FuzzTarget): void {
  const { name, dictionary, maxBytes = 2_048 } = target
  const seed = runSeed()
  const count = proofCount(target.inCi, target.full)
  const files = filesOf(name)

  if (replay !== undefined) {
    it(`${name}: holds for the input of OCTROI_FUZZ_INPUT`, async () => {
      console.info(`${name}: ${await run(target, Buffer.from(replay, 'base64'))}`)
    })
    return
  }

  describe(`${name} under mutation, OCTROI_SEED=${seed}`, () => {
    it.each(files)('takes or refuses $file as its name says', async ({ file, bytes }) => {
      const outcome = await run(target, bytes)
      expect([file, outcome]).toEqual([file, expect.stringMatching(`^${basename(file).split('-')[0] ?? ''}`)])
    })

    it(`holds for ${count} mutations`, { timeout: 4 * 3_600_000 }, async () => {
      const random = seeded(seed)
      const pool = files.map(({ bytes }) => bytes)
      const outcomes = new Map<string, number>()
      for (let number = 0; number < count; number++) {
        const input = mutated({ pool, dictionary, maxBytes }, random)
        let outcome: string
        try {
          const found = target.check(input, seeded(hashOf(input)))
          outcome = typeof found === 'string' ? found : await found
        } catch {
          throw await artifact(target, input, `OCTROI_SEED=${seed}, input ${number}`)
        }
        const times = outcomes.get(outcome) ?? 0
        outcomes.set(outcome, times + 1)
        if (times === 0 && pool.length < maxPool) pool.push(input)
      }
      const sum = (kind: string): number =>
        [...outcomes].reduce(
          (total, [outcome, times]) => (outcome.startsWith(kind) ? total + times : total),
          0,
        )
      // A target that takes nothing, or everything, has tested little.
      expect(sum('taken')).toBeGreaterThanOrEqual(count * (target.leastTaken ?? 0.005))
      expect(sum('refused')).toBeGreaterThan(count / 200)
    })
  })
}

/** The piece of `bytes` cut at random places, all of it together. */
export function inPieces(bytes: Buffer, random: Seeded): Buffer[] {
  const longest = random.pick([1, 2, 7, 64, 1_024])
  const pieces: Buffer[] = []
  for (let at = 0; at < bytes.length;) {
    const size = 1 + random.below(longest)
    pieces.push(bytes.subarray(at, at + size))
    at += size
  }
  return pieces
}

/** Fails unless the two are the same; quicker than `expect` where they mostly are. */
export function same(found: unknown, expected: unknown, what: string): void {
  if (found === expected) return
  const texts = [found, expected].map((value) => JSON.stringify(value))
  if (texts[0] !== texts[1]) expect.fail(`${what}: ${texts[0]} is not ${texts[1]}`)
}

/** Fails unless it holds. */
export function holds(isTrue: boolean, what: string): void {
  if (!isTrue) expect.fail(what)
}
