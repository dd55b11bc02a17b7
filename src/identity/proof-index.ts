import type { Cidr } from '../policy/address.ts'
import type { Proof, SandboxView, Snapshot } from './model.ts'

/** Which sandboxes a proof points at; built once per snapshot. */
export interface ProofIndex {
  readonly ids: ReadonlyMap<string, SandboxView>
  readonly sockets: ReadonlyMap<string, ReadonlySet<SandboxView>>
  readonly ports: ReadonlyMap<number, ReadonlySet<SandboxView>>
  readonly certificates: ReadonlyMap<string, ReadonlySet<SandboxView>>
  readonly sources: readonly { readonly range: Cidr; readonly sandbox: SandboxView }[]
}

const built = new WeakMap<Snapshot, ProofIndex>()

/** The index of a snapshot's identities. */
export function proofIndex(snapshot: Snapshot): ProofIndex {
  const known = built.get(snapshot)
  if (known !== undefined) return known
  const sockets = new Map<string, Set<SandboxView>>()
  const ports = new Map<number, Set<SandboxView>>()
  const certificates = new Map<string, Set<SandboxView>>()
  const sources: { range: Cidr; sandbox: SandboxView }[] = []
  const add = (sandbox: SandboxView, proof: Proof): void => {
    if (proof.kind === 'socket') addTo(sockets, proof.path, sandbox)
    if (proof.kind === 'port') addTo(ports, proof.port, sandbox)
    if (proof.kind === 'client_certificate') addTo(certificates, proof.sha256, sandbox)
    if (proof.kind === 'source') sources.push({ range: proof.range, sandbox })
  }
  for (const sandbox of snapshot.sandboxes.values()) {
    for (const proof of sandbox.identity.flat()) add(sandbox, proof)
  }
  const ids = new Map(Array.from(snapshot.sandboxes.values(), (sandbox) => [sandbox.id, sandbox]))
  const index = { ids, sockets, ports, certificates, sources }
  built.set(snapshot, index)
  return index
}

function addTo<K>(map: Map<K, Set<SandboxView>>, key: K, sandbox: SandboxView): void {
  const set = map.get(key)
  if (set === undefined) map.set(key, new Set([sandbox]))
  else set.add(sandbox)
}
