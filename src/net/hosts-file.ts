import { readFile } from 'node:fs/promises'
import { parseAddress } from '../policy/address.ts'

/** Addresses that the text of a hosts file gives a canonical name, in its order. */
export function lookUpHosts(text: string, host: string): string[] {
  const found = new Set<string>()
  for (const line of text.split('\n')) {
    const [address = '', ...names] = (line.split('#', 1)[0] ?? '').trim().split(/\s+/)
    if (!names.some((name) => name.toLowerCase() === host)) continue
    const parsed = parseAddress(address)
    if (parsed) found.add(parsed.text)
  }
  return [...found]
}

/** Addresses from the hosts file of the machine; none when the file is missing or has no such name. */
export async function readHosts(path: string, host: string): Promise<string[]> {
  try {
    return lookUpHosts(await readFile(path, 'utf8'), host)
  } catch {
    return []
  }
}
