import { readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { describe, expect, it } from 'vitest'
import { EventWriter } from '../../src/audit/event-writer.ts'
import { runProgram } from '../../src/cli/program.ts'
import { registerVerify } from '../../src/cli/verify.ts'
import { memoryIo } from '../helpers/memory-io.ts'
import { stateFolder } from '../helpers/state-folder.ts'

function setup() {
  const folder = stateFolder()
  const writer = new EventWriter(folder, 'normal')
  for (let n = 1; n <= 9; n += 1) writer.write([{ id: `E${n}`, ts: n, kind: 'exchange' }])
  writer.close()
  const tamper = (sql: string) => {
    const database = new DatabaseSync(join(folder, 'events.db'))
    database.exec(sql)
    database.close()
  }
  const run = async (...argv: string[]) => {
    const { io, out, err } = memoryIo({ env: { OCTROI_CONFIG: '/etc/o.yaml' }, cwd: folder })
    const access = { stateFolder: () => Promise.resolve(folder) }
    const code = await runProgram(['verify', ...argv], { io, groups: [registerVerify(access)] })
    return { code, text: [...out, ...err].join('\n') }
  }
  return { folder, run, tamper }
}

describe('octroi verify', () => {
  it('says that a good chain is good, and what it has not proved', async () => {
    const { code, text } = await setup().run()
    expect(code).toBe(0)
    expect(text).toMatch(/good: 9 events \(1 to 9\)/)
    expect(text).toMatch(/a cut tail can go unseen/)
  })

  it('names the first bad row and fails', async () => {
    const { run, tamper } = setup()
    tamper(`UPDATE events SET body = replace(body, 'E4', 'E7') WHERE seq = 4`)
    expect(await run()).toMatchObject({ code: 1, text: expect.stringMatching(/^BAD at event 4: /) })
  })

  it('finds a tail cut with care by the head it exported', async () => {
    const { folder, run, tamper } = setup()
    expect((await run('--export-head', 'head.json')).code).toBe(0)
    expect(statSync(join(folder, 'head.json')).mode & 0o777).toBe(0o600)
    expect(await run('--head', 'head.json')).toMatchObject({
      code: 0,
      text: expect.stringMatching(/exported head is part of the chain/),
    })
    tamper(`DELETE FROM events WHERE seq > 7;
      UPDATE chain SET seq = 7, hash = (SELECT lower(hex(hash)) FROM events WHERE seq = 7)`)
    expect((await run()).code).toBe(0)
    expect(await run('--head', 'head.json')).toMatchObject({
      code: 1,
      text: expect.stringMatching(/BAD at event 8/),
    })
  })

  it('exports no head of a chain that is bad', async () => {
    const { folder, run, tamper } = setup()
    writeFileSync(join(folder, 'head.json'), 'before')
    tamper('DELETE FROM events WHERE seq = 4')
    expect((await run('--export-head', 'head.json')).code).toBe(1)
    expect(readFileSync(join(folder, 'head.json'), 'utf8')).toBe('before')
  })

  it('refuses a head that is none with exit code 2', async () => {
    const { folder, run } = setup()
    for (const content of ['', '{}', '{"seq":"1","hash":"a"}', '[]']) {
      writeFileSync(join(folder, 'bad.json'), content)
      expect((await run('--head', 'bad.json')).code).toBe(2)
    }
    expect((await run('--head', 'absent.json')).code).toBe(2)
  })
})
