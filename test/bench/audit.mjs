// Prints how many events a second become durable, how long one waits, and what an event costs the main thread.
// Usage: node test/bench/audit.mjs [seconds] [full|normal]
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createEventIds } from '../../src/audit/event-id.ts'
import { openEventLog } from '../../src/audit/sink.ts'

const seconds = Number(process.argv[2] ?? 3)
const sync = process.argv[3] === 'normal' ? 'normal' : 'full'
const folder = mkdtempSync(join(tmpdir(), 'octroi-bench-'))
const log = await openEventLog({ folder, sync })
const newId = createEventIds()

const event = (kind) => ({
  id: newId(),
  ts: Date.now(),
  kind,
  tenant: 'web',
  agent: 'agent-7',
  sandbox: 'coder-1',
  template: 'coder',
  method: 'GET',
  scheme: 'https',
  host: 'api.github.com',
  port: 443,
  path: '/repos/acme/web/issues',
  address: '140.82.121.6',
  verdict: 'allow',
  reason: 'access',
  rule: 'access:github',
  policy: '3f2a9c1b77aa',
  access: 'github',
  handle: 'h_01JD8Z',
  lease: 'static:github:3',
  tls: { mode: 'terminate', version: 'TLSv1.3', alpn: 'http/1.1' },
})

async function measure(name, waiters) {
  const waits = []
  let written = 0
  const end = performance.now() + seconds * 1000
  const cpu = process.cpuUsage()
  const thread = process.threadCpuUsage()
  const one = async () => {
    while (performance.now() < end) {
      const start = performance.now()
      await log.appendDurable(event('exchange'))
      waits.push(performance.now() - start)
      written += 1
    }
  }
  await Promise.all(Array.from({ length: waiters }, one))
  const all = process.cpuUsage(cpu)
  const main = process.threadCpuUsage(thread)
  waits.sort((a, b) => a - b)
  const at = (share) => waits[Math.floor(waits.length * share)].toFixed(2)
  const micros = (usage) => ((usage.user + usage.system) / written).toFixed(1)
  console.log(
    `${name}: ${Math.round(written / seconds)} durable events/s, wait p50 ${at(0.5)} ms, p99 ${at(0.99)} ms, ` +
      `CPU per event ${micros(all)} µs, of which main thread ${micros(main)} µs`,
  )
}

await measure('1 waiter   ', 1)
await measure('16 waiters ', 16)
await measure('64 waiters ', 64)
await measure('512 waiters', 512)
await log.close()
rmSync(folder, { recursive: true, force: true })
