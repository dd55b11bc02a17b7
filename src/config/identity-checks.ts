import type { SandboxConfig } from './model.ts'
import { below, describePlace, problemAt } from './problem.ts'
import type { Place, Problem } from './problem.ts'

/** A sandbox and where it is written. */
export interface PlacedSandbox {
  readonly sandbox: SandboxConfig
  readonly place: Place
}

/** Two sandboxes that the same proofs would name cannot be told apart: neither would ever be served. */
export function checkIdentities(sandboxes: readonly PlacedSandbox[]): Problem[] {
  const seen = new Map<string, { name: string; place: Place }>()
  return sandboxes.flatMap(({ sandbox, place }) =>
    sandbox.identity.flatMap((proofs, index) => {
      if (proofs.length === 0 || proofs.some((proof) => proof.kind === 'token')) return []
      const here = below(place, 'identity', index)
      const key = JSON.stringify(proofs)
      const first = seen.get(key)
      if (first === undefined) seen.set(key, { name: sandbox.name, place: here })
      if (first === undefined || first.name === sandbox.name) return []
      const message = `the same proofs name the sandbox \`${first.name}\` at ${describePlace(first.place)}`
      return [problemAt(here, message)]
    }),
  )
}

/** A sandbox that only its address names has placeholders that are never swapped: worth a warning. */
export function warnOfSourceAlone({ sandbox, place }: PlacedSandbox, hasAccess: boolean): Problem[] {
  const weak = sandbox.identity.every((proofs) => proofs.every((proof) => proof.kind === 'source'))
  if (!hasAccess || !weak) return []
  const message = 'an address alone never earns a credential; add a token, socket, port or client_certificate'
  return [problemAt(below(place, 'identity'), message)]
}
