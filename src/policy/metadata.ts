/**
 * Addresses of instance metadata and credential services. No setting opens them, in any embedding. Public
 * addresses that merely host a cloud's API are not here.
 */
export const metadataAddresses: readonly string[] = [
  // Amazon EC2 and most others: Azure, Google, Oracle, DigitalOcean, OpenStack, Hetzner, IBM, Vultr, Huawei
  '169.254.169.254',
  'fd00:ec2::254',
  // Amazon ECS task credentials and EKS pod identity
  '169.254.170.2',
  '169.254.170.23',
  'fd00:ec2::23',
  // Google: IPv6-only instances; the workload identity server of a GKE node
  'fd20:ce::254',
  '169.254.169.252',
  // Azure: the platform endpoint behind every virtual machine, a public address by its number
  '168.63.129.16',
  // Alibaba, Tencent, Volcano Engine
  '100.100.100.200',
  '169.254.0.23',
  '100.96.0.96',
  // Oracle Cloud Classic
  '192.0.0.192',
  // OpenStack over IPv6 link-local, Akamai/Linode, Scaleway, Rancher
  'fe80::a9fe:a9fe',
  'fd00:a9fe:a9fe::1',
  '169.254.42.42',
  'fd00:42::42',
  '169.254.169.250',
]

const names = new Set([
  'metadata',
  'metadata.google.internal',
  'metadata.goog',
  'metadata.azure.internal',
  'metadata.tencentyun.com',
  'metadata.packet.net',
  'metadata.platformequinix.com',
  'api.metadata.cloud.ibm.com',
  'instance-data',
  'instance-data.ec2.internal',
  'rancher-metadata',
])

/**
 * Is a canonical host the name of a metadata service, or below one? `metadata.*.internal` and
 * `instance-data.*.internal` are covered too: clouds serve them under each region's or project's search
 * domain.
 */
export function isMetadataName(host: string): boolean {
  // Every name above has one of these words; the test keeps most requests to two searches.
  if (!host.includes('metadata') && !host.includes('instance-data')) return false
  if (names.has(host)) return true
  for (let dot = host.indexOf('.'); dot !== -1; dot = host.indexOf('.', dot + 1)) {
    const parent = host.slice(dot + 1)
    if (parent.includes('.') && names.has(parent)) return true
  }
  if (!host.endsWith('.internal')) return false
  return host.startsWith('metadata.') || host.startsWith('instance-data.')
}
