import { randomBytes } from 'node:crypto'
import { describe, expect, it, vi } from 'vitest'
import { createHolder } from '../../src/identity/holder.ts'
import { configFolder } from '../helpers/config-files.ts'
import { manualClock } from '../helpers/manual-clock.ts'
import { memorySeal, memoryStore } from '../helpers/memory-store.ts'

const yaml = 'version: 1\nsandboxes:\n  s: { agent: a }\n'

async function setUp(text = yaml) {
  const files = configFolder(text)
  const store = memoryStore()
  const clock = manualClock()
  const warn = vi.fn<(lines: readonly string[]) => void>()
  const load = () => files.load({ now: clock.now() })
  const holder = await createHolder({
    load,
    store,
    seal: memorySeal(),
    random: randomBytes,
    clock,
    env: {},
    warn,
  })
  return { files, store, clock, warn, holder }
}

describe('the holder of the snapshot', () => {
  it('has one from the beginning', async () => {
    const { holder } = await setUp()
    expect([...holder.current().sandboxes.keys()]).toEqual(['s'])
    expect(holder.config().sandboxes.get('s')?.agent).toBe('a')
  })

  it('does not begin with a wrong configuration, and lists every problem', async () => {
    const failed = setUp('version: 1\nbogus: 1\nsandboxes:\n  s: { colour: red }\n')
    await expect(failed).rejects.toMatchObject({ name: 'OperatorError', exitCode: 2 })
    await expect(failed).rejects.toThrow(/octroi\.yaml:2:1: bogus[^]*octroi\.yaml:4:8: sandboxes\.s\.colour/)
  })

  it('swaps whole when the files change, and tells before the reload is answered', async () => {
    const { files, holder } = await setUp()
    const before = holder.current()
    const seen: string[][] = []
    holder.onChange((snapshot) => seen.push([...snapshot.sandboxes.keys()]))
    files.write('octroi.yaml', 'version: 1\nsandboxes:\n  s: {}\n  t: {}\n')
    const reloaded = await holder.reload()
    expect(reloaded).toEqual({ ok: true, hash: holder.current().hash })
    expect(seen).toEqual([['s', 't']])
    expect([...before.sandboxes.keys()]).toEqual(['s'])
    expect(holder.current().hash).not.toBe(before.hash)
  })

  it('keeps the old snapshot, and destroys nothing, when the new files are wrong', async () => {
    const { files, store, holder } = await setUp()
    const before = holder.current()
    const writes = store.writes.length
    files.write('octroi.yaml', 'version: 1\nsandboxes:\n  t: { colour: red }\n')
    expect(await holder.reload()).toMatchObject({ ok: false, problems: [{ line: 3, column: 8 }] })
    expect(holder.current()).toBe(before)
    expect(holder.config().sandboxes.has('s')).toBe(true)
    expect(store.writes.length).toBe(writes)
  })

  it('keeps the old snapshot when the store fails, and recovers at the next try', async () => {
    const { files, store, holder } = await setUp()
    const before = holder.current()
    files.write('octroi.yaml', 'version: 1\nsandboxes:\n  s: {}\n  t: {}\n')
    store.failWrites = /./
    await expect(holder.reload()).rejects.toThrow('cannot write')
    expect(holder.current()).toBe(before)
    store.failWrites = undefined
    expect((await holder.reload()).ok).toBe(true)
    expect(holder.current().sandboxes.has('t')).toBe(true)
  })

  it('sees a change of the store at a refresh', async () => {
    const { store, clock, holder } = await setUp()
    const [record] = await store.sandboxes()
    if (record === undefined) throw new TypeError('no record')
    await store.putSandbox({ ...record, pausedAt: clock.now() })
    expect(holder.current().sandboxes.get('s')?.paused).toBe(false)
    await holder.refresh()
    expect(holder.current().sandboxes.get('s')?.paused).toBe(true)
  })

  it('works on one thing at a time', async () => {
    const { files, holder } = await setUp()
    files.write('octroi.yaml', 'version: 1\nsandboxes:\n  s: {}\n  t: {}\n')
    await Promise.all([
      holder.refresh(),
      holder.reload(),
      holder.refresh(),
      holder.reload(),
      holder.refresh(),
    ])
    expect([...holder.current().sandboxes.keys()]).toEqual(['s', 't'])
  })

  it('stops telling a listener that left', async () => {
    const { holder } = await setUp()
    const listener = vi.fn()
    const leave = holder.onChange(listener)
    await holder.refresh()
    leave()
    await holder.refresh()
    expect(listener).toHaveBeenCalledTimes(1)
  })

  it('shows warnings when the files are read, not at each refresh', async () => {
    const { holder, warn } = await setUp(
      'version: 1\ncredentials: { c: { issuer: static, value: { env: NOT_SET } } }\n',
    )
    await holder.refresh()
    expect(warn).toHaveBeenCalledTimes(1)
    expect(warn.mock.calls[0]?.[0]).toEqual([expect.stringContaining('`c` is dead')])
    await holder.reload()
    expect(warn).toHaveBeenCalledTimes(2)
  })
})
