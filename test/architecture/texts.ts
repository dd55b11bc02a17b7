import ts from 'typescript'
import { parse, walk } from './source.ts'
import type { Tree } from './source.ts'

/** Where the host names of package registries are kept, with their labels reversed. */
export const registryCatalogue = 'src/policy/registries/catalogue.ts'

/** Host names that the catalogue holds, spelled out; none while there is no catalogue. */
export function registryHosts(tree: Tree): string[] {
  const text = tree.get(registryCatalogue)
  if (text === undefined) return []
  const hosts = new Set<string>()
  walk(parse(registryCatalogue, text), (node) => {
    if (!ts.isPropertyAssignment(node) || node.name.getText() !== 'labels') return
    if (!ts.isArrayLiteralExpression(node.initializer)) return
    const labels = node.initializer.elements.flatMap((label) =>
      ts.isStringLiteralLike(label) ? [label.text] : [],
    )
    if (labels.length >= 2) hosts.add(labels.reverse().join('.'))
  })
  return [...hosts]
}

/** Files that spell the host name of a registry: they are looked up in one place, so that one place can be wrong. */
export function spelledHosts(tree: Tree, hosts: readonly string[]): string[] {
  return [...tree].flatMap(([path, text]) => {
    const lower = text.toLowerCase()
    return hosts.filter((host) => lower.includes(host)).map((host) => `${path}: spells ${host}`)
  })
}

/** Private keys in PEM or JWK form. */
export function privateKeys(tree: Tree): string[] {
  const pem = /-----BEGIN [A-Z ]*PRIVATE KEY-----(\\n|\s)+[A-Za-z0-9+/=\s\\]{64,}/
  const jwk = /"kty"\s*:\s*"[^"]+"[^}]*"d"\s*:\s*"[A-Za-z0-9_-]{32,}"/
  return [...tree].flatMap(([path, text]) =>
    pem.test(text) || jwk.test(text) ? [`${path}: holds a private key`] : [],
  )
}
