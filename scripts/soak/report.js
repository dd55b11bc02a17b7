/**
 * @typedef {object} Sample
 * @property {number} seconds
 * @property {number} rss anonymous memory, MB
 * @property {number} heap V8's heap and buffers, MB
 * @property {number} descriptors
 * @property {{ p50: number, p99: number, max: number }} lag of the event loop, `ms`
 * @property {number} acts since the sample before
 */

/** @typedef {{ good: number, hostile: number, aborted: number, nobody: number }} Tally */
/** @typedef {{ rss: number, descriptors: number }} Seen */

/**
 * @typedef {object} Run
 * @property {number} minutes
 * @property {number} clients
 * @property {number} acts
 * @property {number} seed
 * @property {readonly Sample[]} samples
 * @property {Seen} idle before the load
 * @property {Seen} after it, once everything has settled
 * @property {number} exit code of the broker
 * @property {Tally} tally decisions that clients brought about
 * @property {Tally} logged decisions in the log
 * @property {ReadonlyMap<string, number>} failures acts that did not go as they should
 * @property {{ ok: boolean }} chain
 * @property {string} machine
 * @property {string} note what else the machine was doing
 * @property {string} date
 */

/** Memory may move by so much over the second half, MB, or by a twentieth: V8 gives back late. */
const steadyRss = 8
/** Descriptors may differ by so many: one more or less of a pool. */
const steadyDescriptors = 4

/** Slope of a value over time by least squares, per second. @param {readonly Sample[]} samples @param {(sample: Sample) => number} value */
export function slopeOf(samples, value) {
  const mean = (/** @type {number[]} */ numbers) => numbers.reduce((sum, x) => sum + x, 0) / numbers.length
  const times = samples.map(({ seconds }) => seconds)
  const values = samples.map(value)
  const [time, middle] = [mean(times), mean(values)]
  const over = times.reduce((sum, t, i) => sum + (t - time) * ((values[i] ?? 0) - middle), 0)
  const under = times.reduce((sum, t) => sum + (t - time) ** 2, 0)
  return under === 0 ? 0 : over / under
}

/** How memory and descriptors went in the second half. @param {readonly Sample[]} samples */
export function flatness(samples) {
  const half = samples.slice(Math.floor(samples.length / 2))
  const span = (half.at(-1)?.seconds ?? 0) - (half[0]?.seconds ?? 0)
  const last = samples.at(-1)
  const mean = half.reduce((sum, { rss }) => sum + rss, 0) / Math.max(1, half.length)
  const rss = slopeOf(half, (sample) => sample.rss) * span
  const heap = slopeOf(half, (sample) => sample.heap) * span
  const descriptors = slopeOf(half, (sample) => sample.descriptors) * span
  const line =
    last === undefined
      ? ''
      : `${last.seconds.toFixed(0).padStart(5)} s  ${last.rss.toFixed(0)} MB  heap ${last.heap.toFixed(0)} MB  ${last.descriptors} descriptors  lag p99 ${last.lag.p99.toFixed(0)} ms`
  return {
    rss,
    heap,
    descriptors,
    mean,
    line,
    isFlat: rss < Math.max(steadyRss, mean / 20) && descriptors < steadyDescriptors,
  }
}

/** @param {Run} run @returns {{ body: string, page: string, isGood: boolean }} */
export function report(run) {
  const { samples, idle, after, tally, logged, failures } = run
  const flat = flatness(samples)
  const isCounted = Object.keys(tally).every(
    (kind) => tally[/** @type {keyof Tally} */ (kind)] === logged[/** @type {keyof Tally} */ (kind)],
  )
  const isSettled = after.descriptors - idle.descriptors < steadyDescriptors
  const isGood =
    flat.isFlat && isCounted && isSettled && run.chain.ok && run.exit === 0 && failures.size === 0
  const body = [
    table(
      ['Asked', 'Answer'],
      [
        [
          'Memory in the second half',
          `${signed(flat.rss)} MB of ${flat.mean.toFixed(0)} MB (heap ${signed(flat.heap)} MB)`,
        ],
        ['Descriptors in the second half', signed(flat.descriptors)],
        [
          'Idle before and after',
          `${idle.rss.toFixed(0)} and ${after.rss.toFixed(0)} MB, ${idle.descriptors} and ${after.descriptors} descriptors`,
        ],
        ['Chain of events', run.chain.ok ? 'whole' : 'BROKEN'],
        ['Exit code on SIGTERM', String(run.exit)],
        [
          'Acts that went otherwise than they should',
          String([...failures.values()].reduce((sum, n) => sum + n, 0)),
        ],
        ['Verdict', isGood ? 'good' : 'NOT GOOD'],
      ],
    ),
    table(
      ['Decisions', 'brought about', 'in the log'],
      Object.keys(tally).map((kind) => {
        const key = /** @type {keyof Tally} */ (kind)
        return [kind, String(tally[key]), String(logged[key])]
      }),
    ),
    table(
      ['Second', 'memory MB', 'heap MB', 'descriptors', 'lag p50 ms', 'p99', 'max', 'acts/s'],
      rowsOf(samples),
    ),
    ...(failures.size === 0
      ? []
      : [
          table(
            ['Act that went otherwise', 'times'],
            [...failures].map(([what, n]) => [what.replaceAll('|', '/'), String(n)]),
          ),
        ]),
  ].join('\n\n')
  const page = `# Soak\n\nWritten by \`npm run soak -- --minutes ${run.minutes} --write\`, never by hand: ${run.acts} acts of ${run.clients} clients, half of them
good, a quarter hostile, a quarter aborted, on ${run.date}, ${run.machine} shared with the clients and the upstreams${run.note === '' ? '' : `; ${run.note}`}.
Memory is anonymous memory of the broker; the lag of its event loop was measured in it. _nobody_ are requests that name no
sandbox.\n\n${body}\n`
  return { body: `\n${body}\n`, page, isGood }
}

/** About twelve rows, each for the samples since the one before. @param {readonly Sample[]} samples */
function rowsOf(samples) {
  const size = Math.max(1, Math.ceil(samples.length / 12))
  const groups = Array.from({ length: Math.ceil(samples.length / size) }, (_, i) =>
    samples.slice(i * size, (i + 1) * size),
  )
  let before = 0
  return groups.flatMap((group) => {
    const last = group.at(-1)
    if (last === undefined) return []
    const most = (/** @type {(sample: Sample) => number} */ value) => Math.max(...group.map(value))
    const rate = group.reduce((sum, { acts }) => sum + acts, 0) / (last.seconds - before)
    before = last.seconds
    return [
      [
        last.seconds.toFixed(0),
        last.rss.toFixed(0),
        last.heap.toFixed(0),
        String(last.descriptors),
        last.lag.p50.toFixed(1),
      ].concat([
        most(({ lag }) => lag.p99).toFixed(1),
        most(({ lag }) => lag.max).toFixed(0),
        rate.toFixed(0),
      ]),
    ]
  })
}

const signed = (/** @type {number} */ n) => `${n < 0 ? '' : '+'}${n.toFixed(1)}`

/** A Markdown table in columns, as Prettier sets it. @param {string[]} head @param {string[][]} rows */
function table(head, rows) {
  const widths = head.map((cell, i) => Math.max(3, cell.length, ...rows.map((row) => row[i]?.length ?? 0)))
  const line = (/** @type {string[]} */ cells) =>
    `| ${cells.map((cell, i) => cell.padEnd(widths[i] ?? 0)).join(' | ')} |`
  return [line(head), line(widths.map((width) => '-'.repeat(width))), ...rows.map(line)].join('\n')
}
