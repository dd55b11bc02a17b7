import { describe, expect, it } from 'vitest'
import { judge } from '../../src/policy/address.ts'
import { decide } from '../../src/policy/decide.ts'
import { compilePolicy } from '../../src/policy/rules.ts'
import { proofCount, runSeed } from '../helpers/proof-count.ts'
import { seeded } from '../helpers/seeded.ts'
import { anyAddress, anyPolicy, anyRequest } from './random-policy.ts'
import { readRange } from './second-reading-address.ts'
import { readDecision, readGuard } from './second-reading.ts'

const seed = runSeed()
const count = proofCount(60_000, 1_000_000)
const requestsPerPolicy = 10

describe(`policies and requests read twice, OCTROI_SEED=${seed}`, () => {
  it(`dials nothing without an allow of both readings, over ${count} pairs`, { timeout: 3_600_000 }, () => {
    const random = seeded(seed)
    const tally = { allow: 0, deny: 0, splice: 0, access: 0 }
    for (let number = 0; number < count;) {
      const policy = anyPolicy(random)
      const compiled = compilePolicy(policy)
      for (let each = 0; each < requestsPerPolicy; each++, number++) {
        const request = anyRequest(random, policy)
        const decision = decide(compiled, request)
        const reading = readDecision(policy, request)
        const shown = (): string => JSON.stringify({ number, policy, request, decision, reading })
        if (decision.verdict !== reading.verdict) expect.fail(`verdicts differ: ${shown()}`)
        if (decision.verdict === 'deny' || reading.verdict === 'deny') {
          tally.deny++
          continue
        }
        tally.allow++
        if (decision.tls === 'splice') tally.splice++
        if (decision.access !== undefined) tally.access++
        const same =
          (decision.access === undefined
            ? reading.access.length === 0
            : reading.access.includes(decision.access)) &&
          (decision.tls === 'splice') === reading.maySplice &&
          (decision.ownCredentials === 'refuse') === reading.refusesOwn &&
          setOf(decision.addresses.map(({ text }) => text)) === setOf(reading.addresses) &&
          setOf(decision.schemes) === setOf(reading.schemes)
        if (!same) expect.fail(`allowed in another way: ${shown()}`)
        const address = request.destination.ip === 0 ? anyAddress(random) : request.destination.host
        const isDialled = judge(address, decision.addresses).allowed
        if (isDialled !== (readGuard(address, reading.addresses.map(readRange)) === 'pass'))
          expect.fail(`dials ${address}: ${shown()}`)
      }
    }
    for (const [name, times] of Object.entries(tally))
      expect([name, times > count / 200]).toEqual([name, true])
  })
})

const setOf = (items: readonly string[]): string => [...new Set(items)].sort().join(' ')
