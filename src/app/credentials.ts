import type { BrokerInput } from '../broker/broker.ts'
import type { Config } from '../config/model.ts'
import type { Snapshot } from '../identity/model.ts'

/** Which credentials there are, and whose: a tenant's are those that an access of one of its templates or sandboxes names. */
export function brokerInput(config: Config, snapshot: Snapshot): BrokerInput {
  const tenants = new Map<string, Set<string>>()
  const add = (accessNames: readonly string[], tenant: string): void => {
    for (const name of accessNames) {
      const credential = config.access.get(name)?.credential
      if (credential === undefined) continue
      const known = tenants.get(credential)
      if (known === undefined) tenants.set(credential, new Set([tenant]))
      else known.add(tenant)
    }
  }
  for (const template of config.templates.values()) add(template.access, template.tenant)
  for (const sandbox of config.sandboxes.values()) add(sandbox.access, sandbox.tenant)
  for (const sandbox of snapshot.sandboxes.values()) {
    add(
      sandbox.grants.map(({ access }) => access.name),
      sandbox.tenant,
    )
  }
  return { credentials: config.credentials, tenants }
}
