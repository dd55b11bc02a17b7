import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  hostileStream,
  readByOurs,
  readByPython,
  startLlhttp,
  type Llhttp,
  type Parsed,
} from '../differential/http1-parsers.ts'
import { readMessages } from '../differential/reference-http1.ts'
import { proofCount, runSeed } from '../helpers/proof-count.ts'
import { seeded } from '../helpers/seeded.ts'

/**
 * Whatever this reader takes, every other parser must read as the same requests, or refuse. They may take more, since they
 * forgive what is refused here.
 */
const count = proofCount(8_000, 1_000_000)
const seed = runSeed()
/** Python is asked about so many at most. */
const mostForPython = 100_000

let llhttp: Llhttp

beforeAll(() => void (llhttp = startLlhttp()))
afterAll(() => llhttp.close())

/** What the other parser made of the same place; nothing where it had refused something before. */
function expectSame(
  bytes: Buffer,
  parser: string,
  [ours, theirs]: readonly [Parsed, Parsed | undefined],
): boolean {
  if (theirs === undefined) return false
  const isSame =
    ours.method === theirs.method &&
    ours.target === theirs.target &&
    JSON.stringify(ours.fields) === JSON.stringify(theirs.fields) &&
    (!ours.isWhole || (theirs.isWhole ? ours.body === theirs.body : ours.body.startsWith(theirs.body)))
  if (!isSame) {
    const input = bytes.toString('latin1')
    expect({ seed, parser, input, ...ours }).toEqual({ seed, parser, input, ...theirs })
  }
  return true
}

describe(`the reader of requests beside other parsers, OCTROI_SEED=${seed}`, () => {
  it(
    `reads no request otherwise than a strict reading of the RFC, over ${count} streams`,
    { timeout: 3_600_000 },
    () => {
      const random = seeded(seed)
      let compared = 0
      for (let i = 0; i < count; i++) {
        const bytes = hostileStream(random)
        const reference = readMessages(bytes)
        readByOurs(bytes).forEach((ours, n) => {
          const read = reference[n]
          const input = bytes.toString('latin1')
          if (read === undefined || read.kind === 'broken') {
            // A cut body may go on to break; what is whole must be whole for both.
            if (ours.isWhole) expect.fail(`${JSON.stringify({ seed, input, ours, read })}`)
            return
          }
          compared++
          const theirs: Parsed = { ...read, isWhole: read.kind === 'whole' }
          expectSame(bytes, 'reference', [ours, theirs])
          expect([input, ours.isWhole]).toEqual([input, theirs.isWhole])
        })
      }
      expect(compared).toBeGreaterThan(count / 4)
    },
  )

  it(`reads no request otherwise than llhttp, over ${count} streams`, { timeout: 3_600_000 }, async () => {
    const random = seeded(seed + 1)
    let compared = 0
    for (let i = 0; i < count; i++) {
      const bytes = hostileStream(random)
      const ours = readByOurs(bytes)
      if (ours.length === 0) continue
      const theirs = await llhttp.read(bytes)
      ours.forEach((each, n) => {
        if (expectSame(bytes, 'llhttp', [each, theirs[n]])) compared++
      })
    }
    expect(compared).toBeGreaterThan(count / 4)
  })

  it(`reads no head otherwise than Python does`, { timeout: 3_600_000 }, (context) => {
    const random = seeded(seed + 2)
    const streams = Array.from({ length: Math.min(count, mostForPython) }, () =>
      hostileStream(random),
    ).filter((bytes) => readByOurs(bytes).length > 0)
    const answers = readByPython(streams)
    if (answers === undefined) {
      context.skip('there is no python3')
      return
    }
    let compared = 0
    streams.forEach((bytes, n) => {
      const [ours] = readByOurs(bytes)
      const theirs = answers[n]
      if (ours === undefined || theirs === undefined) return
      compared++
      expectSame(bytes, 'http.server', [
        { ...ours, isWhole: false },
        { ...theirs, body: '', isWhole: false },
      ])
    })
    expect(compared).toBeGreaterThan(streams.length / 4)
  })
})
