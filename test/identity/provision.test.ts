import { createHash } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { placeholderCore } from '../../src/handles/placeholder.ts'
import { identityBench } from '../helpers/identity-bench.ts'

const access = `
credentials: { c: { issuer: static, value: { secret: c } } }
access:
  a: { credential: c, destinations: [{ host: a.example.com }], shape: github, env: A_TOKEN }
  b: { credential: c, destinations: [{ host: b.example.com }], env: B_TOKEN }
`
const one = `version: 1\n${access}sandboxes: { s: { access: [a] } }\n`
const token = 'a-token-of-the-operator'

describe('provisioning', () => {
  it('gives a sandbox a record, a token and a placeholder, once', async () => {
    const { store, provision, tokens, seal } = await identityBench(one)
    const first = store.writes.length
    const [record] = await store.sandboxes()
    expect(record).toMatchObject({ name: 's', origin: 'config', tenant: 'default', destroyedAt: undefined })
    expect(record?.id).toMatch(/^[0-9a-f]{32}$/)
    const [handle] = await store.handles()
    expect(handle).toMatchObject({ sandboxId: record?.id, sandbox: 's', access: 'a', revokedAt: undefined })
    expect(handle?.placeholder).toMatch(/^ghp_octroi[0-9A-Za-z]{30}$/)
    expect(placeholderCore(handle?.placeholder ?? '')).toBeDefined()
    const [stored] = await store.tokens()
    const [plain = ''] = await tokens('s')
    expect(plain).toMatch(/^[\w-]{43}$/)
    expect(stored?.sha256).toBe(createHash('sha256').update(plain).digest('hex'))
    expect(await seal.open(stored?.sealed ?? '')).toBe(plain)
    await provision()
    await provision()
    expect(store.writes.length).toBe(first)
  })

  it('makes a placeholder for a new access and keeps those of an access that comes back', async () => {
    const { store, reconfigure } = await identityBench(one)
    const before = await store.handles()
    await reconfigure(one.replace('[a]', '[a, b]'))
    expect(await store.handles()).toHaveLength(2)
    await reconfigure(one.replace('[a]', '[]'))
    await reconfigure(one)
    const after = await store.handles()
    expect(after).toHaveLength(2)
    expect(after).toContainEqual(before[0])
  })

  it('never makes a placeholder in the place of one that was revoked', async () => {
    const { store, provision, clock, view } = await identityBench(one)
    const [handle] = await store.handles()
    if (handle === undefined) throw new TypeError('no handle')
    await store.putHandle({ ...handle, revokedAt: clock.now() })
    await provision()
    expect(await store.handles()).toHaveLength(1)
    expect((await view('s')).grants[0]?.handle.revokedAt).toBe(clock.now())
  })

  it('ends a sandbox that leaves the files, and makes a stranger of the next one of its name', async () => {
    const { store, clock, reconfigure, tokens } = await identityBench(one)
    const [old] = await store.sandboxes()
    const [oldHandle] = await store.handles()
    const [oldToken] = await tokens('s')
    await reconfigure(`version: 1\n${access}`)
    expect(await store.sandboxes()).toMatchObject([{ id: old?.id, destroyedAt: clock.now() }])
    expect(await store.tokens()).toEqual([])
    expect(await store.handles()).toMatchObject([{ id: oldHandle?.id, revokedAt: clock.now() }])
    await reconfigure(one)
    const living = (await store.sandboxes()).filter((record) => record.destroyedAt === undefined)
    expect(living).toHaveLength(1)
    expect(living[0]?.id).not.toBe(old?.id)
    const fresh = (await store.handles()).find((handle) => handle.sandboxId === living[0]?.id)
    expect(fresh?.placeholder).not.toBe(oldHandle?.placeholder)
    expect((await tokens('s'))[0]).not.toBe(oldToken)
  })

  it('follows a new agent and template without making another sandbox', async () => {
    const { store, reconfigure } = await identityBench(one)
    const [before] = await store.sandboxes()
    await reconfigure(one.replace('{ access: [a] }', '{ access: [a], agent: agent-7 }'))
    expect(await store.sandboxes()).toMatchObject([{ id: before?.id, agent: 'agent-7' }])
  })

  it('refuses a name that a living sandbox made at run time has, and writes nothing', async () => {
    const { store, reconfigure } = await identityBench('version: 1\n')
    await store.putSandbox({
      ...{ id: 'r1', name: 's', origin: 'runtime', tenant: 'default', template: 't', createdAt: 0 },
      ...{
        agent: undefined,
        run: undefined,
        expiresAt: undefined,
        pausedAt: undefined,
        destroyedAt: undefined,
      },
    })
    const before = store.writes.length
    await expect(reconfigure(one)).rejects.toMatchObject({ name: 'OperatorError', exitCode: 2 })
    expect(store.writes.length).toBe(before)
  })

  it('gives sandboxes made at run time their placeholders, and no token', async () => {
    const { store, reconfigure } = await identityBench('version: 1\n')
    const record = {
      ...{ id: 'r1', name: 'r', origin: 'runtime' as const, tenant: 'web', template: 't', createdAt: 0 },
      ...{
        agent: undefined,
        run: undefined,
        expiresAt: undefined,
        pausedAt: undefined,
        destroyedAt: undefined,
      },
    }
    await store.putSandbox(record)
    await store.putSandbox({ ...record, id: 'r2', name: 'stray', tenant: 'other' })
    await reconfigure(`version: 1\n${access}templates: { t: { tenant: web, access: [b] } }\n`)
    expect(await store.handles()).toMatchObject([{ sandboxId: 'r1', access: 'b' }])
    expect(await store.tokens()).toEqual([])
  })

  it('ends nothing when the store fails on the way', async () => {
    const { store, reconfigure } = await identityBench(one)
    store.failWrites = /putSandbox other/
    await expect(reconfigure(`version: 1\n${access}sandboxes: { other: {} }\n`)).rejects.toThrow(
      'cannot write',
    )
    expect(await store.sandboxes()).toMatchObject([{ name: 's', destroyedAt: undefined }])
    expect(await store.tokens()).toHaveLength(1)
  })
})

describe('a token that a reference names', () => {
  const referenced = 'version: 1\nsandboxes: { s: { identity: [{ token: { env: TOKEN } }] } }\n'
  const generated = 'version: 1\nsandboxes: { s: {} }\n'

  it("is the sandbox's, and no other", async () => {
    const { tokens, notes } = await identityBench(referenced, { TOKEN: token })
    expect(await tokens('s')).toEqual([token])
    expect(notes).toEqual([])
  })

  it.each([
    ['is not set', {}, 'TOKEN is not set'],
    ['is empty', { TOKEN: '' }, 'is empty'],
    ['is short', { TOKEN: 'short' }, 'shorter than 16'],
    ['has a line break', { TOKEN: `${token}\nx` }, 'control characters'],
  ])('leaves the sandbox without token, loudly, when it %s', async (_, env, note) => {
    const { tokens, notes } = await identityBench(referenced, env)
    expect(await tokens('s')).toEqual([])
    expect(notes).toEqual([expect.stringContaining(note)])
    expect(notes.join()).not.toContain(token)
  })

  it('takes the place of a generated one, and the other way round', async () => {
    const { tokens, reconfigure } = await identityBench(generated, { TOKEN: token })
    const [before] = await tokens('s')
    await reconfigure(referenced)
    expect(await tokens('s')).toEqual([token])
    await reconfigure(generated)
    const [after, ...more] = await tokens('s')
    expect(more).toEqual([])
    expect([before, token]).not.toContain(after)
    await reconfigure(referenced)
    expect(await tokens('s')).toEqual([token])
  })

  it('stays revoked while it is the same', async () => {
    const { store, provision, tokens } = await identityBench(referenced, { TOKEN: token })
    for (const { id } of await store.tokens()) await store.deleteToken(id)
    await provision()
    expect(await tokens('s')).toEqual([])
  })
})
