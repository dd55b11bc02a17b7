import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { startBrokerBench, type Bench } from './bench.ts'
import { plainCases } from './cases.ts'
import { refusesAndCloses } from './flow-cases.ts'
import { leavesNothingOpen } from './leaving-cases.ts'

describe('the relay contract', () => {
  let bench: Bench

  beforeAll(async () => {
    bench = await startBrokerBench({ limits: { halfCloseMs: 300 } })
  })
  afterEach(() => bench.reset())
  afterAll(() => bench.stop())

  it.each(plainCases)('$name', (row) => row.run(bench))

  it('leaves no upstream connection open when 200 clients go away in the middle of a download', () =>
    leavesNothingOpen(bench, 200))

  it('never loses an early 413 to the reset that follows it', async () => {
    const statuses = new Set<number>()
    for (let round = 0; round < 25; round++) statuses.add(await refusesAndCloses(bench))
    expect([...statuses]).toEqual([413])
  })
})
