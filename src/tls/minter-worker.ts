import type { KeyObject } from 'node:crypto'
import { parentPort, workerData } from 'node:worker_threads'
import type { LeafSigner } from './certificate.ts'
import { issueLeaf, readCertificate } from './certificate.ts'

/** What the worker is started with: the public half of the key that every leaf of this process shares. */
export interface MinterData {
  readonly publicKey: KeyObject
}

/** One leaf to make. `privateKey` is the CA's. */
export interface MintOrder {
  readonly id: number
  readonly certificatePem: string
  readonly privateKey: KeyObject
  readonly host: string
  /** `ms` since the epoch. */
  readonly now: number
  readonly lifetimeMs: number
}

/** The leaf, or in `failure` why there is none. */
export type Minted =
  | { readonly id: number; readonly pem: string; readonly notAfter: number }
  | { readonly id: number; readonly failure: string }

const algorithm = { name: 'ECDSA', namedCurve: 'P-256' }
const { publicKey } = workerData as MinterData
const leafKey = publicKey.toCryptoKey(algorithm, true, ['verify'])

let signer: { pem: string; value: LeafSigner } | undefined

function signerFor(order: MintOrder): LeafSigner {
  if (signer?.pem !== order.certificatePem) {
    signer = {
      pem: order.certificatePem,
      value: {
        certificate: readCertificate(order.certificatePem),
        privateKey: order.privateKey.toCryptoKey(algorithm, false, ['sign']),
      },
    }
  }
  return signer.value
}

async function mint(order: MintOrder): Promise<Minted> {
  try {
    const { host, now, lifetimeMs } = order
    return {
      id: order.id,
      ...(await issueLeaf(signerFor(order), { host, publicKey: leafKey, now, lifetimeMs })),
    }
  } catch (error) {
    return { id: order.id, failure: error instanceof Error ? error.message : String(error) }
  }
}

parentPort?.on('message', (order: MintOrder) => {
  void mint(order).then((minted) => parentPort?.postMessage(minted))
})
