import { readFileSync, readdirSync, readlinkSync } from 'node:fs'
import { basename } from 'node:path'

/** `name (process N)` of whoever listens on a local TCP port, as far as `/proc` tells; `undefined` elsewhere. */
export function holderOf(port: number): string | undefined {
  try {
    const inode = listeningInode(port)
    return inode === undefined ? undefined : processWith(inode)
  } catch {
    return undefined
  }
}

const listening = '0A'

function listeningInode(port: number): string | undefined {
  const wanted = port.toString(16).toUpperCase().padStart(4, '0')
  for (const table of ['/proc/net/tcp', '/proc/net/tcp6']) {
    for (const line of readFileSync(table, 'utf8').split('\n').slice(1)) {
      const columns = line.trim().split(/\s+/)
      if (columns[1]?.endsWith(`:${wanted}`) === true && columns[3] === listening) return columns[9]
    }
  }
  return undefined
}

function processWith(inode: string): string | undefined {
  for (const pid of readdirSync('/proc').filter((name) => /^[0-9]+$/.test(name))) {
    try {
      const holds = readdirSync(`/proc/${pid}/fd`).some(
        (fd) => readlinkSync(`/proc/${pid}/fd/${fd}`) === `socket:[${inode}]`,
      )
      if (holds) return `${nameOf(pid)} (process ${pid})`
    } catch {
      // The process ended, or is another user's.
    }
  }
  return undefined
}

/** By its command line: Node names its main thread, and with it the process, `MainThread`. */
function nameOf(pid: string): string {
  const [program = ''] = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')
  return basename(program) || readFileSync(`/proc/${pid}/comm`, 'utf8').trim()
}
