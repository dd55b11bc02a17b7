import type { HostRule, RegistryName, RegistryRule, Scheme } from '../model.ts'

/** A host that a package manager contacts while it installs from a public registry. */
export interface RegistryHost {
  /** Labels from the right, as in reverse domain names. */
  readonly labels: readonly string[]
  readonly role: 'metadata' | 'archive' | 'metadata and archive' | 'checksum'
  readonly schemes: readonly Scheme[]
  /** Absent: every path. Given where the host also serves what is no part of the registry. */
  readonly paths?: readonly string[]
  /** Where a reader can check the entry. */
  readonly source: string
  /** Day on which the entry was written down. */
  readonly recorded: string
}

const tls: readonly Scheme[] = ['https']
/** apt verifies signatures itself, and its stock lists still name plain http. */
const tlsOrPlain: readonly Scheme[] = ['https', 'http']
const defaultPorts: Readonly<Record<Scheme, number>> = { https: 443, http: 80 }

/** Installing reads only: publishing, yanking, account and audit endpoints all need another method. */
const installMethods: readonly string[] = ['GET', 'HEAD']

const catalogue: Readonly<Record<RegistryName, readonly RegistryHost[]>> = {
  npm: [
    {
      labels: ['org', 'npmjs', 'registry'],
      role: 'metadata and archive',
      schemes: tls,
      source: 'npm documentation, config page: default of the key "registry"',
      recorded: '2026-11-29',
    },
  ],
  pypi: [
    {
      labels: ['org', 'pypi'],
      role: 'metadata',
      schemes: tls,
      paths: ['/simple/**', '/pypi/**'],
      source: 'pip documentation, pip install: default of --index-url; JSON API page of the registry',
      recorded: '2026-11-29',
    },
    {
      labels: ['org', 'pythonhosted', 'files'],
      role: 'archive',
      schemes: tls,
      source: 'file URLs in the index pages of the registry (PEP 503)',
      recorded: '2026-11-29',
    },
  ],
  crates: [
    {
      labels: ['io', 'crates', 'index'],
      role: 'metadata',
      schemes: tls,
      source: 'cargo source, constant CRATES_IO_HTTP_INDEX',
      recorded: '2026-11-29',
    },
    {
      labels: ['io', 'crates', 'static'],
      role: 'archive',
      schemes: tls,
      source: 'the key "dl" in config.json of the index',
      recorded: '2026-11-29',
    },
  ],
  go: [
    {
      labels: ['org', 'golang', 'proxy'],
      role: 'metadata and archive',
      schemes: tls,
      source: 'go command documentation: default of GOPROXY',
      recorded: '2026-11-29',
    },
    {
      labels: ['org', 'golang', 'sum'],
      role: 'checksum',
      schemes: tls,
      source: 'go command documentation: default of GOSUMDB',
      recorded: '2026-11-29',
    },
    {
      labels: ['com', 'googleapis', 'storage'],
      role: 'archive',
      schemes: tls,
      paths: ['/proxy-golang-org-prod/**'],
      source: 'go issue tracker, "using the proxy directly": archives are redirected to this bucket',
      recorded: '2026-11-29',
    },
  ],
  maven: [
    {
      labels: ['org', 'apache', 'maven', 'repo'],
      role: 'metadata and archive',
      schemes: tls,
      source: 'Maven super POM: repository and plugin repository "central"',
      recorded: '2026-11-29',
    },
    {
      labels: ['org', 'maven', 'repo1'],
      role: 'metadata and archive',
      schemes: tls,
      source: 'Gradle documentation: mavenCentral(); the same content under its older name',
      recorded: '2026-11-29',
    },
  ],
  apt: [
    ...aptHosts('Debian installer and container images: sources.list', [
      ['org', 'debian', 'deb'],
      ['org', 'debian', 'security'],
    ]),
    ...aptHosts('Ubuntu installer and container images: sources.list', [
      ['com', 'ubuntu', 'archive'],
      ['com', 'ubuntu', 'security'],
      ['com', 'ubuntu', 'ports'],
    ]),
  ],
}

/** The host name that reversed labels stand for. */
export function hostOf(labels: readonly string[]): string {
  return labels.toReversed().join('.')
}

/** What a registry consists of. */
export function registryHosts(name: RegistryName): readonly RegistryHost[] {
  return catalogue[name]
}

/** The host rules that a registry rule stands for: one per host and scheme, reading methods only. */
export function registryRules(rule: RegistryRule): HostRule[] {
  return registryHosts(rule.registry).flatMap((entry) =>
    entry.schemes.map((scheme) => ({
      kind: 'host',
      id: rule.id,
      owner: rule.owner,
      note: rule.note,
      expires: rule.expires,
      host: hostOf(entry.labels),
      ports: [defaultPorts[scheme]],
      scheme,
      methods: installMethods,
      paths: entry.paths,
      addresses: rule.addresses,
      tls: 'terminate',
      ownCredentials: 'pass',
    })),
  )
}

function aptHosts(source: string, hosts: readonly (readonly string[])[]): RegistryHost[] {
  return hosts.map((labels) => ({
    labels,
    role: 'metadata and archive',
    schemes: tlsOrPlain,
    source,
    recorded: '2026-11-29',
  }))
}
