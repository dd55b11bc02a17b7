import { describe, expect, it } from 'vitest'
import { lifecycleBench } from '../helpers/lifecycle-bench.ts'

const hour = 3_600_000

describe('life cycle: create', () => {
  it('makes a sandbox from a template, with its tenant, and shows the token once', async () => {
    const bench = lifecycleBench()
    const made = await bench.lifecycle.create({ template: 'coder', agent: 'agent-7', run: 'r1', ttlMs: hour })
    expect(made.sandbox).toMatchObject({
      state: 'active',
      origin: 'runtime',
      tenant: 'web',
      template: 'coder',
      agent: 'agent-7',
      run: 'r1',
      created_at: '2030-01-01T00:00:00.000Z',
      expires_at: '2030-01-01T01:00:00.000Z',
      tokens: 1,
    })
    expect(made.sandbox.name).toMatch(/^coder-[a-z2-9]{8}$/)
    expect(made.token).toMatch(/^[\w-]{43}$/)
    expect(await bench.accepts(made.sandbox.name, made.token)).toBe(true)
    const [record] = await bench.store.tokens()
    expect(await bench.seal.open(record?.sealed ?? '')).toBe(made.token)
    const kept = [...(await bench.store.tokens()), ...(await bench.store.sandboxes()), bench.events]
    expect(JSON.stringify([kept, await bench.lifecycle.list()])).not.toContain(made.token)
  })

  it('is durable and compiled into the snapshot before it answers', async () => {
    const bench = lifecycleBench()
    await bench.lifecycle.create({ template: 'coder' })
    expect(bench.changes).toEqual([bench.store.writes.length])
    expect(bench.events).toMatchObject([{ action: 'create', tenant: 'web', template: 'coder' }])
  })

  it('gives the longest life of the template when none is asked for, and no end where the template has none', async () => {
    const { lifecycle } = lifecycleBench()
    const capped = await lifecycle.create({ template: 'coder' })
    expect(capped.sandbox.expires_at).toBe('2030-01-01T04:00:00.000Z')
    expect((await lifecycle.create({ template: 'endless' })).sandbox.expires_at).toBeUndefined()
  })

  it.each([
    [
      'a longer life than the template allows',
      { template: 'coder', ttlMs: 4 * hour + 1 },
      'refused',
      '14400 s at most',
    ],
    ['less than a second', { template: 'coder', ttlMs: 999 }, 'invalid', 'at least 1s'],
    ['a life that is not a number', { template: 'coder', ttlMs: NaN }, 'invalid', 'at least 1s'],
    ['an unknown template', { template: 'coder2' }, 'not_found', 'did you mean coder?'],
    ['a name that a file uses', { template: 'coder', name: 'coder-1' }, 'conflict', 'exists already'],
    ['a name with a colon', { template: 'coder', name: 'a:b' }, 'invalid', 'a sandbox name has'],
    ['a name that climbs', { template: 'coder', name: '../x' }, 'invalid', 'a sandbox name has'],
    ['a name of 64 characters', { template: 'coder', name: 'a'.repeat(64) }, 'invalid', 'a sandbox name has'],
    ['a template not like any', { template: 'zzz' }, 'not_found', 'there are: coder, endless'],
    ['an agent with a line break', { template: 'coder', agent: 'a\nb' }, 'invalid', 'agent: '],
    ['a run with an escape', { template: 'coder', run: '\u001b[2J' }, 'invalid', 'run: '],
  ])('refuses %s and writes nothing', async (...[, request, fault, text]) => {
    const { lifecycle, store, events } = lifecycleBench()
    await expect(lifecycle.create(request)).rejects.toMatchObject({
      fault,
      message: expect.stringContaining(text) as string,
    })
    expect(store.writes).toEqual([])
    expect(events).toEqual([])
  })

  it('lets one of two creations of a name win', async () => {
    const { lifecycle } = lifecycleBench()
    const both = await Promise.allSettled(
      [1, 2].map(() => lifecycle.create({ template: 'coder', name: 'twin' })),
    )
    expect(both.map(({ status }) => status)).toEqual(['fulfilled', 'rejected'])
    expect(await lifecycle.list()).toHaveLength(1)
  })

  it('does not repeat the name of a template that is not there', async () => {
    const { lifecycle } = lifecycleBench()
    await expect(lifecycle.create({ template: '\u001b]0;pwned\u0007' })).rejects.toThrow(
      'no template has that name; there are: coder, endless',
    )
  })

  it('makes nothing when the event cannot be written', async () => {
    const bench = lifecycleBench()
    bench.auditDown = true
    await expect(bench.lifecycle.create({ template: 'coder' })).rejects.toThrow('not done: the event log')
    expect(bench.store.writes).toEqual([])
  })
})

describe('life cycle: pause and resume', () => {
  it('pauses and resumes a sandbox of either origin, and repeating is no error and no event', async () => {
    const bench = lifecycleBench()
    await bench.addConfigSandbox()
    expect((await bench.lifecycle.pause('coder-1')).state).toBe('paused')
    bench.clock.advance(1000)
    expect((await bench.lifecycle.pause('coder-1')).paused_at).toBe('2030-01-01T00:00:00.000Z')
    expect((await bench.lifecycle.resume('coder-1')).state).toBe('active')
    expect(bench.events.map(({ action }) => action)).toEqual(['pause', 'resume'])
    expect(bench.changes).toHaveLength(2)
  })

  it('pauses with the event log down, says so, and does not resume until the log is back', async () => {
    const bench = lifecycleBench()
    await bench.addConfigSandbox()
    bench.auditDown = true
    await expect(bench.lifecycle.pause('coder-1')).rejects.toThrow('done (paused), but the event log')
    await expect(bench.lifecycle.resume('coder-1')).rejects.toThrow('not done')
    expect((await bench.lifecycle.show('coder-1')).state).toBe('paused')
  })

  it('does not repeat an unknown name, and names the nearest there is', async () => {
    const { lifecycle } = lifecycleBench()
    await expect(lifecycle.pause('sk-live-secret')).rejects.toThrow(
      /^no sandbox has that name; there is none$/,
    )
    await lifecycle.create({ template: 'coder', name: 'builder' })
    await expect(lifecycle.pause('biulder')).rejects.toThrow(
      /^no sandbox has that name; did you mean builder\?$/,
    )
  })
})

describe('life cycle: destroy', () => {
  it('ends the token and the placeholders, and the same name again inherits neither', async () => {
    const bench = lifecycleBench()
    const first = await bench.lifecycle.create({ template: 'coder', name: 's1' })
    const handle = await bench.addHandle('s1', 'openai')
    await bench.lifecycle.destroy('s1')
    expect(await bench.lifecycle.list()).toEqual([])
    const second = await bench.lifecycle.create({ template: 'coder', name: 's1' })
    expect(second.sandbox.id).not.toBe(first.sandbox.id)
    expect(await bench.accepts('s1', first.token)).toBe(false)
    expect(second.sandbox.handles).toEqual([])
    const kept = (await bench.store.handles()).find(({ id }) => id === handle.id)
    expect(kept).toMatchObject({ sandboxId: first.sandbox.id, revokedAt: bench.clock.now() })
  })

  it('leaves a sandbox of the configuration to the file, and says so', async () => {
    const bench = lifecycleBench()
    await bench.addConfigSandbox()
    const before = bench.store.writes.length
    await expect(bench.lifecycle.destroy('coder-1')).rejects.toMatchObject({
      fault: 'refused',
      message: expect.stringContaining('defined in the configuration: remove it there and reload') as string,
    })
    expect(bench.store.writes).toHaveLength(before)
  })

  it.each([0, 1, 2, 3])(
    'leaves nothing usable after the sweep when the process dies before write %i',
    async (cut) => {
      const bench = lifecycleBench()
      const made = await bench.lifecycle.create({ template: 'coder', name: 's1' })
      await bench.addHandle('s1', 'openai')
      await bench.addHandle('s1', 'github')
      bench.store.failAt = bench.store.writes.length + cut
      await expect(bench.lifecycle.destroy('s1')).rejects.toThrow('cannot write')
      if (cut === 0) return expect(await bench.accepts('s1', made.token)).toBe(true)
      await bench.lifecycle.expire()
      expect(await bench.lifecycle.list()).toEqual([])
      expect(await bench.store.tokens()).toEqual([])
      expect((await bench.store.handles()).every(({ revokedAt }) => revokedAt !== undefined)).toBe(true)
    },
  )
})

describe('life cycle: rotate-token', () => {
  it('accepts the old token inside the overlap only', async () => {
    const bench = lifecycleBench()
    const { token: old } = await bench.lifecycle.create({ template: 'coder', name: 's1' })
    const rotated = await bench.lifecycle.rotateToken('s1')
    expect(rotated).toMatchObject({ old_valid_until: '2030-01-01T00:01:00.000Z', sandbox: { tokens: 2 } })
    bench.clock.advance(59_999)
    expect([await bench.accepts('s1', old), await bench.accepts('s1', rotated.token)]).toEqual([true, true])
    bench.clock.advance(1)
    expect([await bench.accepts('s1', old), await bench.accepts('s1', rotated.token)]).toEqual([false, true])
    await bench.lifecycle.expire()
    expect(await bench.store.tokens()).toHaveLength(1)
  })

  it('ends the old token at once with no overlap, and never lengthens an earlier overlap', async () => {
    const bench = lifecycleBench()
    const first = await bench.lifecycle.create({ template: 'coder', name: 's1' })
    const second = await bench.lifecycle.rotateToken('s1', 1000)
    await bench.lifecycle.rotateToken('s1', 60_000)
    bench.clock.advance(1000)
    expect(await bench.accepts('s1', first.token)).toBe(false)
    expect(await bench.accepts('s1', second.token)).toBe(true)
    await bench.lifecycle.rotateToken('s1', 0)
    expect(await bench.accepts('s1', second.token)).toBe(false)
  })

  it('stores the new token before it shortens the old one, so that a crash locks nobody out', async () => {
    const bench = lifecycleBench()
    const { token } = await bench.lifecycle.create({ template: 'coder', name: 's1' })
    bench.store.failAt = bench.store.writes.length
    await expect(bench.lifecycle.rotateToken('s1', 0)).rejects.toThrow('cannot write')
    expect(await bench.accepts('s1', token)).toBe(true)
  })

  it.each([-1, 1.5, 24 * hour + 1, Infinity])('refuses an overlap of %d ms', async (overlap) => {
    const bench = lifecycleBench()
    await bench.lifecycle.create({ template: 'coder', name: 's1' })
    await expect(bench.lifecycle.rotateToken('s1', overlap)).rejects.toMatchObject({ fault: 'invalid' })
  })
})

describe('life cycle: expire', () => {
  it('destroys what is over, once, and leaves the rest', async () => {
    const bench = lifecycleBench()
    await bench.lifecycle.create({ template: 'coder', name: 'short', ttlMs: hour })
    await bench.lifecycle.create({ template: 'endless', name: 'long' })
    await bench.addHandle('short', 'openai')
    bench.clock.advance(hour - 1)
    expect(await bench.lifecycle.expire()).toEqual({ sandboxes: [], tokens: 0, handles: 0 })
    bench.clock.advance(1)
    expect((await bench.lifecycle.show('short')).state).toBe('expired')
    expect(await bench.lifecycle.expire()).toEqual({ sandboxes: ['short'], tokens: 1, handles: 1 })
    const changes = bench.changes.length
    expect(await bench.lifecycle.expire()).toEqual({ sandboxes: [], tokens: 0, handles: 0 })
    expect(bench.changes).toHaveLength(changes)
    expect((await bench.lifecycle.list()).map(({ name }) => name)).toEqual(['long'])
    expect(bench.events.at(-1)).toMatchObject({ action: 'expire', sandbox: 'short' })
  })

  it('does not revive an expired sandbox when the clock steps back', async () => {
    const bench = lifecycleBench()
    await bench.lifecycle.create({ template: 'coder', name: 's1', ttlMs: hour })
    bench.clock.step(hour)
    await bench.lifecycle.expire()
    bench.clock.step(-2 * hour)
    await bench.lifecycle.expire()
    expect(await bench.lifecycle.list()).toEqual([])
  })

  it('destroys what is over by a `max_ttl` that a reload has lowered', async () => {
    const bench = lifecycleBench()
    await bench.lifecycle.create({ template: 'coder', name: 's1' })
    await bench.lifecycle.expire()
    const template = bench.config.templates.get('coder')
    if (template === undefined) throw new TypeError('no template')
    bench.config = { ...bench.config, templates: new Map([['coder', { ...template, maxTtlMs: hour }]]) }
    bench.clock.advance(hour - 1)
    expect((await bench.lifecycle.expire()).sandboxes).toEqual([])
    bench.clock.advance(1)
    expect((await bench.lifecycle.expire()).sandboxes).toEqual(['s1'])
  })

  it('reads the store again only when something may have ended', async () => {
    const bench = lifecycleBench()
    await bench.lifecycle.create({ template: 'coder', name: 's1', ttlMs: hour })
    await bench.lifecycle.expire()
    let reads = 0
    const { sandboxes } = bench.store
    bench.store.sandboxes = () => {
      reads += 1
      return sandboxes()
    }
    bench.clock.advance(hour - 1)
    for (let n = 0; n < 10; n++) await bench.lifecycle.expire()
    expect(reads).toBe(0)
    bench.clock.advance(1)
    expect((await bench.lifecycle.expire()).sandboxes).toEqual(['s1'])
  })
})

describe('life cycle: end of a run', () => {
  it('writes an event with the exit code and the labels of the sandbox', async () => {
    const bench = lifecycleBench()
    await bench.lifecycle.create({ template: 'coder', name: 's1', agent: 'agent-7', run: 'r1' })
    await bench.lifecycle.runEnded({ sandbox: 's1', exit: 3 })
    const last = { action: 'run', sandbox: 's1', agent: 'agent-7', run: 'r1', tenant: 'web', exit: 3 }
    expect(bench.events.at(-1)).toMatchObject(last)
    await expect(bench.lifecycle.runEnded({ sandbox: 's2', exit: 0 })).rejects.toMatchObject({
      fault: 'not_found',
    })
  })
})
