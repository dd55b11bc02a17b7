import { it } from 'vitest'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { startTestBroker } from '../../helpers/broker.ts'
import { createTestCa } from '../../helpers/test-ca.ts'
import { openShell } from './kit.ts'
import { send, startUpstream } from './upstream.ts'
it('x', async () => {
  const ca = await createTestCa()
  const big = Buffer.alloc(6e6, 'x')
  const up = await startUpstream(({ target }, response) => send(response, 'text/plain', target.includes('big') ? big : 'hi'), { ca, names: ['a.good.test'] })
  const b = await startTestBroker({ files: { 'root.pem': ca.cert }, yaml: `
resolver: { hosts: { a.good.test: [127.0.0.1] } }
trust: { system: false, ca: [root.pem] }
sandboxes: { s1: { allow: [{ host: a.good.test, ports: [${up.port}], methods: [GET, PUT], addresses: [127.0.0.0/8] }] } }
` })
  const s = await openShell(b, 's1')
  await writeFile(join(s.home, 'up'), big)
  const many = (n: number, p: string) => Array.from({ length: n }, (_, i) => `https://a.good.test:${up.port}/${p}${i}`)
  const log = (name: string, r: { code: number | null; stderr: string }) => process.stderr.write(`${name} ${r.code} ${r.stderr.slice(0, 300)}\n`)
  log('small', await s.run('curl', ['-sS', ...many(40, 's')]))
  log('big', await s.run('curl', ['-sS', '-o', '/dev/null', ...many(10, 'big')]))
  log('slow', await s.run('sh', ['-c', `curl -sS --limit-rate 3M https://a.good.test:${up.port}/big1 >/dev/null`]))
  log('put', await s.run('curl', ['-sS', ...many(12, 'p').flatMap((u) => ['-T', 'up', u])]))
  log('putc', await s.run('curl', ['-sS', '-H', 'Transfer-Encoding: chunked', ...many(12, 'p').flatMap((u) => ['-T', 'up', u])]))
  log('post', await s.run('curl', ['-sS', ...many(30, 'refused').flatMap((u) => ['-d', 'x', u])]))
  log('Z', await s.run('curl', ['-sS', '-Z', ...many(40, 's')]))
  log('abort', await s.run('sh', ['-c', `for i in 1 2 3 4 5 6 7 8; do curl -sS -m 0.05 -T up https://a.good.test:${up.port}/p$i; done`]))
  await s.stop(); await b.stop(); await up.stop()
}, 120000)
