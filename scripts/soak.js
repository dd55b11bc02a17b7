// Mixed good, hostile and aborted traffic against a broker in a process of its own, for a while:
//   npm run soak                         half an hour, to watch it
//   npm run soak -- --minutes 3          less
//   npm run soak -- --write --note TEXT  to record it in docs/soak.md, with what else the machine was doing
// At its end memory and descriptors must be flat, every decision in the log, and the chain whole; else it exits with 1.
import { readFileSync, readdirSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { packageDir } from '../bin/node24.js'
import { verifyEvents, visitEvents } from '../src/audit/query.ts'
import { runSeed } from '../test/helpers/proof-count.ts'
import { seeded } from '../test/helpers/seeded.ts'
import { Acts } from './soak/acts.js'
import { flatness, report } from './soak/report.js'
import { kinds, setStage } from './soak/stage.js'

const clients = 8
/** Longest pause of a client between two acts, `ms`. */
const pauseMs = 60
const sampleMs = 2_000
/** After the load: long enough for idle connections, held refusals and their upkeep to end, `ms`. */
const settleMs = 15_000

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '30' },
    write: { type: 'boolean', default: false },
    note: { type: 'string', default: '' },
  },
})
const minutes = Number(values.minutes)
if (!(minutes > 0)) {
  console.error('usage: npm run soak -- [--minutes N] [--write] [--note TEXT]')
  process.exit(2)
}

const seed = runSeed()
const stage = await setStage()
/** @type {import('./soak/report.js').Sample[]} */
const samples = []
/** @type {import('./soak/report.js').Tally} */
const tally = { good: 0, hostile: 0, aborted: 0, nobody: 0 }
/** @type {Map<string, number>} */
const failures = new Map()
let acts = 0
try {
  console.log(`${clients} clients for ${minutes} min, OCTROI_SEED=${seed}`)
  const stopSampling = sample()
  const idle = observe()
  await load()
  await stopSampling()
  await sleep(settleMs)
  const after = observe()
  const exit = await stage.stop()
  const text = report({
    ...{ minutes, clients, acts, seed, samples, idle, after, exit, tally, failures },
    ...{ logged: countLogged(), chain: verifyEvents(stage.stateFolder) },
    machine: `${availableParallelism()} cores, Node ${process.version}`,
    note: values.note,
    date: new Date().toISOString().slice(0, 10),
  })
  console.log(text.body)
  if (values.write) await writeFile(join(packageDir, 'docs', 'soak.md'), text.page)
  process.exitCode = text.isGood ? 0 : 1
} finally {
  await stage.clear()
}

/** Clients that pick acts at random until the time is over. */
async function load() {
  const all = new Acts(stage).all
  const end = performance.now() + minutes * 60_000
  const client = async (/** @type {number} */ number) => {
    const random = seeded(seed + number)
    while (performance.now() < end) {
      // Half of it is good, as on a bad day.
      const kind = random.pick(/** @type {const} */ (['good', 'good', 'hostile', 'aborted']))
      const [name, act] = random.pick(Object.entries(all[kind]))
      try {
        const { decisions, nobody } = await act()
        tally[nobody === true ? 'nobody' : kind] += decisions
        acts++
      } catch (error) {
        const what = `${kind}, ${name}: ${String(error)
          .replaceAll(/ id=\w+/g, '')
          .slice(0, 160)}`
        failures.set(what, (failures.get(what) ?? 0) + 1)
      }
      await sleep(random.below(pauseMs))
    }
  }
  await Promise.all(Array.from({ length: clients }, (_, number) => client(number)))
}

/** Memory that is the broker's own, in MB, and its descriptors. */
function observe() {
  const folder = `/proc/${stage.broker.pid}`
  const anonymous = /RssAnon:\s+(\d+) kB/.exec(readFileSync(`${folder}/status`, 'utf8'))?.[1]
  return { rss: Number(anonymous) / 1024, descriptors: readdirSync(`${folder}/fd`).length }
}

/** Looks at the broker every two seconds, and prints a line each half minute; returns what ends it. */
function sample() {
  let lag = { p50: 0, p99: 0, max: 0 }
  let heap = 0
  stage.broker.on('message', (/** @type {{ lag: typeof lag, heap: number }} */ told) => {
    heap = told.heap / 1024 / 1024
    lag = { p50: told.lag.p50, p99: told.lag.p99, max: Math.max(lag.max, told.lag.max) }
  })
  const started = performance.now()
  let before = 0
  const timer = setInterval(() => {
    const seconds = (performance.now() - started) / 1_000
    samples.push({ seconds, ...observe(), heap, lag, acts: acts - before })
    before = acts
    lag = { ...lag, max: 0 }
    if (samples.length % 15 === 0) console.log(flatness(samples).line)
  }, sampleMs)
  return async () => clearInterval(timer)
}

/** Decisions in the log by sandbox, folded ones by their count. */
function countLogged() {
  /** @type {import('./soak/report.js').Tally} */
  const logged = { good: 0, hostile: 0, aborted: 0, nobody: 0 }
  visitEvents(stage.stateFolder, { kind: 'exchange' }, ({ sandbox, count }) => {
    logged[kinds.find((kind) => kind === sandbox) ?? 'nobody'] += count ?? 1
  })
  return logged
}
