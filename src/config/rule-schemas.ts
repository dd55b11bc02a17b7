import { z } from 'zod'
import type { AddressRule, HostRule, RegistryRule, Rule, Scheme } from '../policy/model.ts'
import { cidr, expiry, host, label, method, path, port, ruleId } from './leaf-schemas.ts'

/** What every kind of rule may carry. */
const common = {
  id: ruleId.optional().meta({ description: 'shown in events; else derived from the content' }),
  owner: label.optional(),
  note: label.optional(),
  expires: expiry.optional(),
}

const matching = {
  ports: z.array(port).min(1).optional().meta({ description: 'default [443], with `scheme: http` [80]' }),
  scheme: z.enum(['https', 'http']).optional(),
  methods: z.array(method).min(1).optional(),
  paths: z.array(path).min(1).optional(),
}

const relay = {
  tls: z.enum(['terminate', 'splice']).optional(),
  own_credentials: z.enum(['pass', 'refuse']).optional(),
}

interface Written {
  readonly ports?: number[] | undefined
  readonly scheme?: Scheme | undefined
  readonly methods?: string[] | undefined
  readonly paths?: string[] | undefined
  readonly tls?: 'terminate' | 'splice' | undefined
  readonly own_credentials?: 'pass' | 'refuse' | undefined
}

function matched(rule: Written) {
  const scheme = rule.scheme ?? 'https'
  return {
    ports: rule.ports ?? (scheme === 'http' ? [80] : [443]),
    scheme,
    methods: rule.methods,
    paths: rule.paths,
    tls: rule.tls ?? 'terminate',
    ownCredentials: rule.own_credentials ?? 'pass',
  } as const
}

type Carried = Pick<Rule, 'id' | 'owner' | 'note' | 'expires'>

const carried = ({ id, owner, note, expires }: Carried): Carried => ({ id, owner, note, expires })

/** Splicing means that nothing inside is read, so nothing inside can be asked for. */
function checkSplice(rule: Written, context: z.RefinementCtx): void {
  if (rule.tls !== 'splice') return
  const unread = (['methods', 'paths', 'own_credentials'] as const).find((key) => rule[key] !== undefined)
  const complain = (message: string): void => {
    context.addIssue({ code: 'custom', path: ['tls'], message })
  }
  if (rule.scheme === 'http') complain('`tls: splice` needs TLS, which `scheme: http` has not')
  if (unread !== undefined) complain(`a spliced tunnel is not read, so \`${unread}\` cannot be enforced`)
}

const hostRule = z
  .strictObject({ host, addresses: z.array(cidr).optional(), ...matching, ...relay, ...common })
  .superRefine(checkSplice)
  .transform((rule): HostRule => ({
    kind: 'host',
    host: rule.host,
    addresses: rule.addresses ?? [],
    ...matched(rule),
    ...carried(rule),
  }))

const addressRule = z
  .strictObject({ address: cidr, ...matching, ...relay, ...common })
  .superRefine(checkSplice)
  .transform((rule): AddressRule => ({
    kind: 'address',
    address: rule.address,
    ...matched(rule),
    ...carried(rule),
  }))

const registry = z.enum(['npm', 'pypi', 'crates', 'go', 'maven', 'apt'])

const registryRule = z
  .strictObject({
    registry,
    mode: z.literal('install').optional(),
    addresses: z.array(cidr).optional(),
    ...common,
  })
  .transform((rule): RegistryRule => ({
    kind: 'registry',
    registry: rule.registry,
    mode: 'install',
    addresses: rule.addresses ?? [],
    ...carried(rule),
  }))

/** An allow rule in its canonical form. */
export const allowRule = z.union([hostRule, addressRule, registryRule])

// A deny opens no range, relays nothing, passes no credential and beats every scheme: keys for those are errors there.
const denied = { ports: matching.ports, methods: matching.methods, paths: matching.paths }

// No `ports` in a deny means every port: one that held for 443 alone would be dead on the others.
const matchedByDeny = (rule: Written) => ({ ...matched(rule), ports: rule.ports ?? [] })

const hostDeny = z.strictObject({ host, ...denied, ...common }).transform((rule): HostRule => ({
  kind: 'host',
  host: rule.host,
  addresses: [],
  ...matchedByDeny(rule),
  ...carried(rule),
}))

const addressDeny = z
  .strictObject({ address: cidr, ...denied, ...common })
  .transform((rule): AddressRule => ({
    kind: 'address',
    address: rule.address,
    ...matchedByDeny(rule),
    ...carried(rule),
  }))

const registryDeny = z
  .strictObject({ registry, mode: z.literal('install').optional(), ...common })
  .transform((rule): RegistryRule => ({
    kind: 'registry',
    registry: rule.registry,
    mode: 'install',
    addresses: [],
    ...carried(rule),
  }))

/** A deny rule in its canonical form. */
export const denyRule = z.union([hostDeny, addressDeny, registryDeny])
