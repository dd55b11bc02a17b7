import { z } from 'zod'
import {
  accessHost,
  address,
  adminListener,
  authScheme,
  cidr,
  count,
  duration,
  exactName,
  filePath,
  header,
  label,
  method,
  name,
  path,
  port,
  proxyListener,
  shape,
  size,
  valueRef,
  variable,
} from './leaf-schemas.ts'
import { allowRule, denyRule } from './rule-schemas.ts'

// YAML reads an empty `allow:` as null. It means what an empty list means: nothing is allowed.
const list = <T extends z.ZodType>(item: T) => z.array(item).nullish()

const listen = z.strictObject({
  proxy: z.union([proxyListener, z.array(proxyListener).min(1)]).optional(),
  admin: adminListener.optional(),
  insecure: z.boolean().optional().meta({ description: 'proxy passwords may cross a network in cleartext' }),
})

const resolver = z.strictObject({
  servers: z.array(z.string().min(1)).min(1).optional().meta({ description: '`system` or ADDRESS[:PORT]' }),
  hosts: z.record(z.string(), z.array(address).min(1)).optional(),
})

const trust = z.strictObject({ system: z.boolean().optional(), ca: z.array(filePath).optional() })

const audit = z.strictObject({
  retention: duration.optional(),
  sync: z.enum(['full', 'normal']).optional(),
  max_events: count.optional(),
})

/** One entry of `credentials`. */
export const credential = z.strictObject({
  issuer: z.literal('static'),
  value: valueRef,
  allow_short: z.boolean().optional(),
})

const destination = z.strictObject({
  host: accessHost,
  port: port.optional(),
  methods: z.array(method).min(1).optional(),
  paths: z.array(path).min(1).optional(),
  addresses: z.array(cidr).optional(),
})

const slot = z.union([
  z.strictObject({ header, scheme: authScheme.optional() }),
  z.strictObject({ basic: z.enum(['user', 'password']) }),
])

/** One entry of `access`. */
export const access = z.strictObject({
  credential: name,
  destinations: z.array(destination).min(1),
  slot: slot.optional().meta({ description: 'default { header: authorization, scheme: Bearer }' }),
  shape: shape.optional(),
  env: variable.optional(),
  foreign: z.enum(['refuse', 'allow']).optional(),
})

const limits = z.strictObject({
  tunnels: count.optional(),
  requests: count.optional(),
  requests_per_minute: count.optional(),
  body: size.optional(),
  response: size.optional(),
})

const policy = { allow: list(allowRule), deny: list(denyRule), access: list(name), limits: limits.optional() }

/** One entry of `templates`. */
export const template = z.strictObject({ tenant: name.optional(), ...policy, max_ttl: duration.optional() })

const fingerprint = z
  .string()
  .regex(/^[0-9A-Fa-f]{2}(?::?[0-9A-Fa-f]{2}){31}$/)
  .meta({ description: 'SHA-256 of the certificate, in hex' })

const proofs = z.strictObject({
  token: z.union([z.literal('generated'), ...valueRef.options]).optional(),
  socket: filePath.optional(),
  port: z.union([port, z.string()]).optional().meta({ description: 'PORT on loopback, or ADDRESS:PORT' }),
  source: cidr.optional(),
  client_certificate: z.union([fingerprint, z.strictObject({ file: filePath })]).optional(),
})

/** One entry of `sandboxes`. */
export const sandbox = z.strictObject({
  template: name.optional(),
  agent: label.optional(),
  tenant: name.optional(),
  ...policy,
  identity: z
    .array(proofs)
    .min(1)
    .optional()
    .meta({ description: 'alternatives; default [{ token: generated }]' }),
})

const sections = {
  credentials: z.record(name, credential),
  access: z.record(name, access),
  templates: z.record(name, template),
  sandboxes: z.record(name, sandbox),
} as const

const version = z.literal(1)

/** The main file. */
export const mainFile = z.strictObject({
  version,
  root: filePath.optional(),
  state: filePath.optional(),
  listen: listen.optional(),
  store: z.literal('sqlite').optional(),
  resolver: resolver.optional(),
  trust: trust.optional(),
  include: z.array(filePath).optional(),
  credentials: sections.credentials.nullish(),
  access: sections.access.nullish(),
  templates: sections.templates.nullish(),
  sandboxes: sections.sandboxes.nullish(),
  self: z.array(exactName).optional().meta({ description: 'names under which the broker itself is known' }),
  audit: audit.optional(),
})

/** A file that `include` names. */
export const includedFile = z.strictObject({
  version: version.optional(),
  credentials: sections.credentials.nullish(),
  access: sections.access.nullish(),
  templates: sections.templates.nullish(),
  sandboxes: sections.sandboxes.nullish(),
})

// The named entries are parsed one by one, so that a mistake in one does not hide those in the others.
const anything = z.unknown().optional()
const unread = { credentials: anything, access: anything, templates: anything, sandboxes: anything }

/** The main file without its named entries. */
export const mainShell = mainFile.extend(unread)

/** An included file without its named entries. */
export const includedShell = includedFile.extend(unread)

/** The main file as the schema reads it, named entries unread. */
export type MainWire = z.output<typeof mainShell>
/** An entry of `credentials` as the schema reads it. */
export type CredentialWire = z.output<typeof credential>
/** An entry of `access` as the schema reads it. */
export type AccessWire = z.output<typeof access>
/** An entry of `templates` as the schema reads it. */
export type TemplateWire = z.output<typeof template>
/** An entry of `sandboxes` as the schema reads it. */
export type SandboxWire = z.output<typeof sandbox>
/** One alternative of `identity` as the schema reads it. */
export type ProofsWire = z.output<typeof proofs>
/** `listen` as the schema reads it. */
export type ListenWire = z.output<typeof listen>
/** `limits` as the schema reads it. */
export type LimitsWire = z.output<typeof limits>
