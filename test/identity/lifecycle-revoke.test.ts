import { describe, expect, it } from 'vitest'
import { lifecycleBench } from '../helpers/lifecycle-bench.ts'

describe('revoke', () => {
  it('revokes a handle by its id or its placeholder, once, and says until when the value lives upstream', async () => {
    const bench = lifecycleBench()
    await bench.lifecycle.create({ template: 'coder', name: 's1', agent: 'agent-7' })
    const handle = await bench.addHandle('s1', 'openai')
    const other = await bench.addHandle('s1', 'github')
    const revoked = await bench.lifecycle.revoke({ kind: 'handle', target: handle.placeholder })
    expect(revoked).toMatchObject({ kind: 'handle', target: handle.id, handles: 1, tokens: 0 })
    expect(revoked.upstream).toContain(
      'openai-key is static and stays valid upstream until you rotate it there',
    )
    expect(bench.events.at(-1)).toMatchObject({
      ...{ action: 'revoke', sandbox: 's1', agent: 'agent-7' },
      ...{ access: 'openai', handle: handle.id },
    })
    expect(JSON.stringify([revoked, bench.events])).not.toContain(handle.placeholder)
    const [changes, events] = [bench.changes.length, bench.events.length]
    expect((await bench.lifecycle.revoke({ kind: 'handle', target: handle.id })).handles).toBe(0)
    expect([bench.changes.length, bench.events.length]).toEqual([changes, events])
    const states = (await bench.lifecycle.show('s1')).handles.map(({ id, state }) => [id, state])
    expect(states).toEqual([
      [handle.id, 'revoked'],
      [other.id, 'live'],
    ])
  })

  it('revokes a sandbox: paused, no token, no placeholder, also after a resume', async () => {
    const bench = lifecycleBench()
    await bench.addConfigSandbox()
    await bench.lifecycle.rotateToken('coder-1')
    await bench.addHandle('coder-1', 'openai')
    await bench.addHandle('coder-1', 'github')
    const revoked = await bench.lifecycle.revoke({ kind: 'sandbox', target: 'coder-1' })
    expect(revoked).toMatchObject({ target: 'coder-1', handles: 2, tokens: 1 })
    expect(revoked.upstream).toContain(
      'what was issued from github-app stays valid upstream until it expires',
    )
    expect(revoked.upstream).toContain('openai-key is static')
    const after = await bench.lifecycle.resume('coder-1')
    expect(after.tokens).toBe(0)
    expect(after.handles.map(({ state }) => state)).toEqual(['revoked', 'revoked'])
  })

  it('revokes a credential and a lease durably, before the snapshot is compiled', async () => {
    const bench = lifecycleBench()
    await bench.lifecycle.revoke({ kind: 'credential', target: 'openai-key' })
    expect(await bench.store.meta('revoked:credential:openai-key')).toBe('2030-01-01T00:00:00.000Z')
    expect(bench.changes).toEqual([1])
    await bench.lifecycle.revoke({ kind: 'lease', target: 'static:openai-key:3' })
    expect(await bench.store.meta('revoked:lease:static:openai-key:3')).toBeDefined()
    expect(bench.events.at(-1)).toMatchObject({ action: 'revoke', lease: 'static:openai-key:3' })
  })

  it('revokes with the event log down, and says that the event is missing', async () => {
    const bench = lifecycleBench()
    await bench.lifecycle.create({ template: 'coder', name: 's1' })
    const handle = await bench.addHandle('s1', 'openai')
    bench.auditDown = true
    await expect(bench.lifecycle.revoke({ kind: 'handle', target: handle.id })).rejects.toThrow(
      'done (handle revoked, access openai), but the event log cannot be written',
    )
    expect((await bench.lifecycle.show('s1')).handles[0]?.state).toBe('revoked')
  })

  it.each([
    ['handle', 'no handle has that id'],
    ['sandbox', 'no sandbox has that name'],
    ['credential', 'there are: github-app, openai-key'],
    ['lease', 'no lease has that id'],
  ] as const)('refuses an unknown %s without repeating it', async (kind, text) => {
    const { lifecycle, store } = lifecycleBench()
    const target = 'sk-live-7c1f SECRET'
    const error: unknown = await lifecycle.revoke({ kind, target }).catch((cause: unknown) => cause)
    expect(error).toMatchObject({ fault: 'not_found', message: expect.stringContaining(text) as string })
    expect(String(error)).not.toContain('sk-live')
    expect(store.writes).toEqual([])
  })
})

describe('taking back', () => {
  it('reinstates a credential and a lease, after the event is written', async () => {
    const bench = lifecycleBench()
    const targets = [
      { kind: 'credential', target: 'openai-key' },
      { kind: 'lease', target: 'static:openai-key:3' },
    ] as const
    for (const what of targets) {
      await bench.lifecycle.revoke(what)
      bench.auditDown = true
      await expect(bench.lifecycle.revoke({ ...what, undo: true })).rejects.toThrow('not done')
      expect(await bench.store.meta(`revoked:${what.kind}:${what.target}`)).toBeDefined()
      bench.auditDown = false
      expect((await bench.lifecycle.revoke({ ...what, undo: true })).upstream).toBe('Octroi sends it again.')
      expect(await bench.store.meta(`revoked:${what.kind}:${what.target}`)).toBeUndefined()
      expect(bench.events.at(-1)?.action).toBe('reinstate')
    }
  })

  it('grants a new placeholder in place of a revoked one; the old one stays dead', async () => {
    const bench = lifecycleBench()
    await bench.lifecycle.create({ template: 'coder', name: 's1' })
    const old = await bench.addHandle('s1', 'openai')
    await expect(bench.lifecycle.grant({ sandbox: 's1', access: 'openai' })).rejects.toMatchObject({
      fault: 'conflict',
    })
    await bench.lifecycle.revoke({ kind: 'handle', target: old.id })
    await bench.lifecycle.grant({ sandbox: 's1', access: 'openai' })
    const [first, second] = await bench.store.handles()
    expect(first).toMatchObject({ id: old.id, revokedAt: bench.clock.now() })
    expect(second).toMatchObject({ access: 'openai', sandbox: 's1', revokedAt: undefined })
    expect(second?.placeholder).toMatch(/^ph-octroi[0-9A-Za-z]{31}$/)
    expect(bench.events.at(-1)).toMatchObject({ action: 'grant', access: 'openai', handle: second?.id })
  })

  it('grants nothing above the ceiling of the files, and nothing without an event', async () => {
    const bench = lifecycleBench()
    await bench.lifecycle.create({ template: 'endless', name: 's1' })
    const above = bench.lifecycle.grant({ sandbox: 's1', access: 'openai' })
    await expect(above).rejects.toMatchObject({ fault: 'refused' })
    await bench.addConfigSandbox()
    bench.auditDown = true
    await expect(bench.lifecycle.grant({ sandbox: 'coder-1', access: 'openai' })).rejects.toThrow('not done')
    expect(await bench.store.handles()).toEqual([])
  })
})
