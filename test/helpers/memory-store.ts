import { OperatorError } from '../../src/core/errors.ts'
import type { HandleRecord, SandboxRecord, SecretRecord, TokenRecord } from '../../src/core/model.ts'
import { Secret } from '../../src/core/secret.ts'
import type { PastValue, Seal, Store } from '../../src/store/port.ts'

/** A store in memory: what the port promises, minus durability. Records are copied in and out. */
export interface MemoryStore extends Store {
  /** Every write in order, such as `putSandbox coder-1`, for tests of what was durable when. */
  readonly writes: readonly string[]
  /** While set, every write whose name it matches rejects, as a full disk would make it. */
  failWrites: RegExp | undefined
  /** Write number `failAt` (counted from 0 over the whole life) rejects: a crash in the middle of an operation. */
  failAt: number | undefined
}

/** An empty store that keeps everything in maps. */
export function memoryStore(): MemoryStore {
  const sandboxes = new Map<string, SandboxRecord>()
  const tokens = new Map<string, TokenRecord>()
  const handles = new Map<string, HandleRecord>()
  const secrets = new Map<string, SecretRecord>()
  let past: PastValue[] = []
  const settings = new Map<string, string>()
  const writes: string[] = []

  async function write(what: string, apply: () => void): Promise<void> {
    await Promise.resolve()
    if (store.failAt === writes.length || store.failWrites?.test(what)) {
      store.failAt = undefined
      throw new OperatorError(`store: cannot write (${what.split(' ')[0] ?? ''})`)
    }
    apply()
    writes.push(what)
  }
  const copies = <T extends object>(map: Map<string, T>): Promise<T[]> =>
    Promise.resolve([...map.values()].map((record) => ({ ...record })))

  const store: MemoryStore = {
    writes,
    failWrites: undefined,
    failAt: undefined,
    sandboxes: () => copies(sandboxes),
    putSandbox: (record) =>
      write(`putSandbox ${record.name}`, () => {
        const clash = [...sandboxes.values()].find(
          ({ id, name, destroyedAt }) =>
            name === record.name && id !== record.id && destroyedAt === undefined,
        )
        if (clash && record.destroyedAt === undefined)
          throw new OperatorError(`there is already a sandbox ${record.name}`)
        sandboxes.set(record.id, { ...record })
      }),
    tokens: () => copies(tokens),
    putToken: (record) => write(`putToken ${record.id}`, () => void tokens.set(record.id, { ...record })),
    deleteToken: (id) => write(`deleteToken ${id}`, () => void tokens.delete(id)),
    handles: () => copies(handles),
    putHandle: (record) =>
      write(`putHandle ${record.id}`, () => {
        if ([...handles.values()].some((h) => h.placeholder === record.placeholder && h.id !== record.id))
          throw new OperatorError('a placeholder is never given out twice')
        handles.set(record.id, { ...record })
      }),
    secrets: () => copies(secrets),
    putSecret: (record) =>
      write(`putSecret ${record.name}`, () => void secrets.set(record.name, { ...record })),
    deleteSecret: (name) => write(`deleteSecret ${name}`, () => void secrets.delete(name)),
    pastValues: () => Promise.resolve(past.map((value) => ({ ...value }))),
    putPastValue: (value) => write(`putPastValue ${value.credential}`, () => void past.push({ ...value })),
    deletePastValues: (credential, before = Infinity) =>
      write(`deletePastValues ${credential}`, () => {
        past = past.filter((value) => value.credential !== credential || value.at >= before)
      }),
    meta: (key) => Promise.resolve(settings.get(key)),
    putMeta: (key, value) =>
      write(
        `putMeta ${key}`,
        () => void (value === undefined ? settings.delete(key) : settings.set(key, value)),
      ),
    close: () => Promise.resolve(),
  }
  return store
}

/** A seal whose output shows nothing of the plain text and that only it can open. */
export function memorySeal(): Seal {
  const kept = new Map<string, string>()
  return {
    seal(plain) {
      const sealed = `sealed-${String(kept.size)}`
      kept.set(sealed, plain instanceof Secret ? plain.reveal() : plain)
      return Promise.resolve(sealed)
    },
    open(sealed) {
      const plain = kept.get(sealed)
      if (plain === undefined)
        return Promise.reject(new OperatorError('seal: this value was not sealed here'))
      return Promise.resolve(plain)
    },
  }
}
