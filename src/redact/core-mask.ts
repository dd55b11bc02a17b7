/**
 * Which characters of a value are its high-entropy core, as a byte of 1 for each: a run of these betrays the value,
 * while the rest stands in ordinary text too and is only replaced together with core.
 */
export function coreMask(value: string): Uint8Array {
  const mask = new Uint8Array(value.length).fill(1)
  const exclude = (from: number, to: number): void => void mask.fill(0, from, to)
  if (value.includes('-----BEGIN ')) excludeArmour(value, exclude)
  else if (!excludeJwtHeader(value, exclude) && !excludeUrlParts(value, exclude))
    excludePrefix(value, exclude)
  return mask
}

type Exclude = (from: number, to: number) => void

/** Starts of base64 bodies that every key of a kind shares: versions, lengths and algorithm identifiers in DER. */
const keyHeaders = [
  /^MII[\w+/]{5}ADANBgkqhkiG9w0BAQEFAASC[\w+/]{4}wgg[\w+/]{2,4}AgEAAoI[\w+/]{2}Q/, // PKCS #8, RSA
  /^MII[\w+/]{5}AKC[\w+/]{2}EA/, // PKCS #1
  /^MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg/, // PKCS #8, P-256
  /^MIG2AgEAMBAGByqGSM49AgEGBSuBBAAiBIGeMIGbAgEBBD/, // PKCS #8, P-384
  /^MHcCAQEEI/, // SEC 1, P-256
  /^MIGkAgEBBD/, // SEC 1, P-384
  /^MC4CAQAwBQYDK2VwBCIEI/, // PKCS #8, Ed25519
  /^b3BlbnNzaC1rZXktdjEA[\w+/]{76}/, // OpenSSH: ciphers, then the type of the public key
]

function excludeArmour(value: string, exclude: Exclude): void {
  for (const line of value.matchAll(/-----(?:BEGIN|END) [A-Z0-9 ]+-----/g)) {
    exclude(line.index, line.index + line[0].length)
  }
  // RFC 1421 header lines (`Proc-Type: 4,ENCRYPTED`) say nothing about the key.
  for (const line of value.matchAll(/^[A-Za-z-]+: .*$/gm)) exclude(line.index, line.index + line[0].length)
  for (const body of value.matchAll(/-----(?:\r?\n|\\n| )*([A-Za-z0-9+/])/g)) {
    const start = body.index + body[0].length - 1
    const spread = [...value.slice(start, start + 160)].map((character, i) => ({ character, at: start + i }))
    const letters = spread.filter(({ character }) => /[A-Za-z0-9+/]/.test(character))
    const text = letters.map(({ character }) => character).join('')
    const size = Math.max(...keyHeaders.map((header) => header.exec(text)?.[0].length ?? 0))
    const last = letters[size - 1]
    if (last !== undefined) exclude(start, last.at + 1)
  }
}

function excludeJwtHeader(value: string, exclude: Exclude): boolean {
  const jwt = /^(eyJ[\w-]*\.)[\w-]+\.[\w-]*(?:\.[\w-]*\.[\w-]*)?$/.exec(value)
  if (jwt === null) return false
  exclude(0, jwt[1]?.length ?? 0)
  return true
}

/** Of `scheme://user:password@host/rest` the password is the core; without one, what follows the host. */
function excludeUrlParts(value: string, exclude: Exclude): boolean {
  const url = /^([a-z][a-z0-9+.-]*:\/\/)(?:([^\s/?#]*)@)?([^\s/?#@]*)(?:[/?#]\S*)?$/i.exec(value)
  if (url === null) return false
  const scheme = url[1]?.length ?? 0
  const user = url[2]
  const host = scheme + (user === undefined ? 0 : user.length + 1)
  const colon = user?.indexOf(':') ?? -1
  exclude(0, colon < 0 ? scheme : scheme + colon + 1)
  exclude(colon < 0 ? host : host - 1, colon < 0 ? host + (url[3]?.length ?? 0) : value.length)
  return true
}

/**
 * What all tokens of a format begin with. It would be taken for a part of the value in tokens of other people, and who knows
 * it need not guess that much.
 */
const formatPrefixes = new RegExp(
  `^(?:${[
    ...[
      'sk-ant-[a-z]+\\d\\d-',
      'sk-(?:proj|svcacct|admin|None)-',
      'sk-or-v1-',
      'gsk_',
      'xai-',
      'pplx-',
      'hf_',
      'r8_',
    ],
    ...['gh[oprsu]_', 'github_pat_11', 'gl[a-z]{2,6}-', 'GR1348941', 'AT(?:ATT3xFfGF0|CTT3xFfGN0|BB)'],
    // The account, which is in the publishable key too.
    ...['[rs]k_(?:live|test)_(?:51[A-Za-z\\d]{15})?', 'shp[a-z]{2}_', 'sq0[a-z]{3}-', 'EAAA'],
    ...[
      'xox[a-z]\\.xox[a-z]-\\d-',
      'xox[a-z]-',
      'xapp-\\d-',
      'SG\\.',
      'xkeysib-',
      'lin_(?:api|oauth)_',
      'PMAK-',
    ],
    ...['npm_', 'rubygems_', 'dckr_[a-z]{3}_', 'cmVmdGtuOjAxOj', 'AKCp8'],
    // Macaroons: version, place and kind of the identifier.
    ...['pypi-AgEIcHlwaS5vcmcC', 'pypi-AgENdGVzdC5weXBpLm9yZwI', 'FlyV1 fm2_(?:lJPECAAAAAAA)?'],
    ...[
      'AIza',
      'ya29\\.',
      'GOCSPX-',
      'do[opr]_v1_',
      'hv[sb]\\.(?:CAESI|AAAAAQ)?',
      'dapi',
      'dp\\.[a-z]{2}\\.',
      'pul-',
    ],
    // base64 of JSON: its first name, or all of it where the secret follows.
    ...['glsa_', 'glc_eyJvIjoi', 'ops_eyJ(?:zaWduSW5BZGRyZXNzIjoi)?', 'sntrys_[A-Za-z\\d+/=]+_', 'sntryu_'],
    ...['NRAK-', 'AGE-SECRET-KEY-1', 'secret_', 'ntn_', 'figd_', 'pat-[a-z]{2}\\d-'],
  ].join('|')})`,
)

function excludePrefix(value: string, exclude: Exclude): void {
  exclude(0, formatPrefixes.exec(value)?.[0].length ?? 0)
}
