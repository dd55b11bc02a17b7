import type { Access } from '../../src/handles/model.ts'
import type { ValueSource } from '../../src/issuers/port.ts'

/** An access to a credential, with nothing else of interest. */
export function accessTo(credential: string): Access {
  return {
    name: credential,
    credential,
    destinations: [],
    slot: { kind: 'header', name: 'authorization', scheme: 'Bearer' },
    shape: { prefix: '', length: 40 },
    env: undefined,
    foreign: 'refuse',
  }
}

/** Credentials from these sources, granted to these tenants. */
export const inputOf = (
  sources: Record<string, ValueSource>,
  tenants: readonly string[] = ['web'],
  allowShort = false,
) => ({
  credentials: new Map(
    Object.entries(sources).map(([name, value]) => [
      name,
      { name, issuer: 'static' as const, value, allowShort },
    ]),
  ),
  tenants: new Map(Object.keys(sources).map((name) => [name, new Set(tenants)])),
})
