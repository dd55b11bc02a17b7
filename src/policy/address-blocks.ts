/** What an address is for. Only `public` may be reached without a rule that opens its range. */
export type AddressClass =
  | 'public'
  | 'metadata'
  | 'unspecified'
  | 'this_network'
  | 'loopback'
  | 'private'
  | 'cgnat'
  | 'link_local'
  | 'protocol'
  | 'documentation'
  | 'benchmarking'
  | 'relay_anycast'
  | 'multicast'
  | 'broadcast'
  | 'reserved'
  | 'unique_local'
  | 'site_local'
  | 'ipv4_compatible'
  | 'ipv4_translated'
  | 'nat64'
  | 'nat64_local'
  | 'sixto4'
  | 'teredo'
  | 'isatap'
  | 'discard'
  | 'orchid'
  | 'segment_routing'
  | 'unparsable'

/** One row: block, class, the RFC that sets it aside. `public` rows are those marked globally reachable. */
export type BlockRow = readonly [cidr: string, class_: AddressClass, rfc: string]

/**
 * The IANA IPv4 special-purpose address registry, row by row, and the multicast block of RFC 5771. The
 * longest matching row decides; an IPv4 address without a row is public. A block whose reachability the
 * registry leaves open ("N/A") is not public here.
 */
export const ipv4Blocks: readonly BlockRow[] = [
  ['0.0.0.0/8', 'this_network', 'RFC 791'],
  ['0.0.0.0/32', 'unspecified', 'RFC 1122'],
  ['10.0.0.0/8', 'private', 'RFC 1918'],
  ['100.64.0.0/10', 'cgnat', 'RFC 6598'],
  ['127.0.0.0/8', 'loopback', 'RFC 1122'],
  ['169.254.0.0/16', 'link_local', 'RFC 3927'],
  ['172.16.0.0/12', 'private', 'RFC 1918'],
  ['192.0.0.0/24', 'protocol', 'RFC 6890'],
  ['192.0.0.0/29', 'protocol', 'RFC 7335'],
  ['192.0.0.8/32', 'protocol', 'RFC 7600'],
  ['192.0.0.9/32', 'public', 'RFC 7723'],
  ['192.0.0.10/32', 'public', 'RFC 8155'],
  ['192.0.0.170/32', 'protocol', 'RFC 8880'],
  ['192.0.0.171/32', 'protocol', 'RFC 8880'],
  ['192.0.2.0/24', 'documentation', 'RFC 5737'],
  ['192.31.196.0/24', 'public', 'RFC 7535'],
  ['192.52.193.0/24', 'public', 'RFC 7450'],
  ['192.88.99.0/24', 'relay_anycast', 'RFC 7526'],
  ['192.88.99.2/32', 'relay_anycast', 'RFC 6751'],
  ['192.168.0.0/16', 'private', 'RFC 1918'],
  ['192.175.48.0/24', 'public', 'RFC 7534'],
  ['198.18.0.0/15', 'benchmarking', 'RFC 2544'],
  ['198.51.100.0/24', 'documentation', 'RFC 5737'],
  ['203.0.113.0/24', 'documentation', 'RFC 5737'],
  ['224.0.0.0/4', 'multicast', 'RFC 5771'],
  ['240.0.0.0/4', 'reserved', 'RFC 1112'],
  ['255.255.255.255/32', 'broadcast', 'RFC 8190'],
]

/**
 * The IANA IPv6 special-purpose address registry, row by row, with multicast, site-local and the embeddings
 * of IPv4. Unicast that the IETF has not handed out (everything outside 2000::/3, RFC 4291 section 2.4) is
 * `reserved`: nothing public lives there. Mapped IPv4 (::ffff:0:0/96) has no row, since a mapped address is
 * judged as the IPv4 address.
 */
export const ipv6Blocks: readonly BlockRow[] = [
  ['::/3', 'reserved', 'RFC 4291'],
  ['::/96', 'ipv4_compatible', 'RFC 4291'],
  ['::/128', 'unspecified', 'RFC 4291'],
  ['::1/128', 'loopback', 'RFC 4291'],
  ['::ffff:0:0:0/96', 'ipv4_translated', 'RFC 2765'],
  ['64:ff9b::/96', 'nat64', 'RFC 6052'],
  ['64:ff9b:1::/48', 'nat64_local', 'RFC 8215'],
  ['100::/64', 'discard', 'RFC 6666'],
  ['100:0:0:1::/64', 'discard', 'RFC 9780'],
  ['2001::/23', 'protocol', 'RFC 2928'],
  ['2001::/32', 'teredo', 'RFC 4380'],
  ['2001:1::1/128', 'public', 'RFC 7723'],
  ['2001:1::2/128', 'public', 'RFC 8155'],
  ['2001:1::3/128', 'public', 'RFC 9665'],
  ['2001:2::/48', 'benchmarking', 'RFC 5180'],
  ['2001:3::/32', 'public', 'RFC 7450'],
  ['2001:4:112::/48', 'public', 'RFC 7535'],
  ['2001:10::/28', 'orchid', 'RFC 4843'],
  ['2001:20::/28', 'public', 'RFC 7343'],
  ['2001:30::/28', 'public', 'RFC 9374'],
  ['2001:db8::/32', 'documentation', 'RFC 3849'],
  ['2002::/16', 'sixto4', 'RFC 3056'],
  ['2620:4f:8000::/48', 'public', 'RFC 7534'],
  ['3fff::/20', 'documentation', 'RFC 9637'],
  ['4000::/2', 'reserved', 'RFC 4291'],
  ['5f00::/16', 'segment_routing', 'RFC 9602'],
  ['8000::/1', 'reserved', 'RFC 4291'],
  ['fc00::/7', 'unique_local', 'RFC 4193'],
  ['fe80::/10', 'link_local', 'RFC 4291'],
  ['fec0::/10', 'site_local', 'RFC 3879'],
  ['ff00::/8', 'multicast', 'RFC 4291'],
]
