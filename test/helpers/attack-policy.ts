/** What a test may add to the policy of the attack suite. */
export interface PolicyOptions {
  /** More of `sandboxes:`, indented by two. */
  readonly sandboxes?: string
  /** More entries of `s1`'s `allow:`, as YAML flow items. */
  readonly allow?: readonly string[]
  /** More top-level YAML. */
  readonly more?: string
}

const loopback = 'addresses: [127.0.0.0/8]'

/** The policy of the attack suite, on free ports. */
export const standardYaml = (ports: { tls: number; plain: number }, options: PolicyOptions = {}): string => `
trust: { system: false, ca: [root.pem] }
audit: { sync: normal }
credentials:
  k1: { issuer: static, value: { env: K1 } }
  k1e: { issuer: static, value: { env: K1E } }
  k1b: { issuer: static, value: { env: K1B } }
  k2: { issuer: static, value: { env: K2 } }
access:
  api:
    credential: k1
    destinations: [{ host: api.good.test, port: ${ports.tls}, methods: [GET, POST], paths: ["/v1/**"], ${loopback} }]
    slot: { header: authorization, scheme: Bearer }
  echo:
    credential: k1e
    destinations: [{ host: echo.good.test, port: ${ports.tls}, ${loopback} }]
    slot: { header: x-api-key }
  git:
    credential: k1b
    destinations: [{ host: git.good.test, port: ${ports.tls}, ${loopback} }]
    slot: { basic: password }
  other:
    credential: k2
    destinations: [{ host: other.good.test, port: ${ports.tls}, ${loopback} }]
    slot: { header: authorization, scheme: Bearer }
sandboxes:
  s1:
    agent: a1
    identity: [{ token: generated }]
    access: [api, echo, git]
    allow:
      - { host: "*.wild.test", ports: [${ports.tls}], ${loopback} }
      - { host: good.cdn.test, ports: [${ports.tls}], ${loopback} }
      - { host: free.good.test, ports: [${ports.tls}], ${loopback} }
      - { host: read.good.test, ports: [${ports.tls}], methods: [GET, POST], paths: ["/v1/**"], ${loopback} }
      - { host: plain.good.test, scheme: http, ports: [${ports.plain}], ${loopback} }
${(options.allow ?? []).map((rule) => `      - ${rule}\n`).join('')}    deny: [{ host: blocked.wild.test }]
  s2:
    agent: a2
    identity: [{ token: generated }]
    access: [other]
    allow: [{ host: api.good.test, ports: [${ports.tls}], ${loopback} }]
  s3:
    agent: a3
    identity: [{ token: generated }]
${options.sandboxes ?? ''}
${options.more ?? ''}`
