import { createHash } from 'node:crypto'
import { createServer } from 'node:https'
import { gzipSync } from 'node:zlib'

/** The package of the stand-in registry. */
export const standInPackage = 'is-even-tour'

/**
 * A TLS server on loopback that returns every request to its sender, as it came or as `/echo/base64` or `/echo/gzip`
 * says, and remembers what it got. Below `/registry/` it is an npm registry with one package, for machines that reach
 * none.
 * @param {{ cert: string, key: string }} identity PEM
 * @returns {Promise<{ port: number, seen: { url: string, authorization: string | undefined }[], close: () => void }>}
 */
export async function startUpstream(identity) {
  /** @type {{ url: string, authorization: string | undefined }[]} */
  const seen = []
  const server = createServer(identity, (request, response) => {
    const url = request.url ?? '/'
    seen.push({ url, authorization: request.headers.authorization })
    const base = `https://${request.headers.host}/registry`
    const found = url.startsWith('/registry/')
      ? registryAnswer(url.slice('/registry'.length), base)
      : undefined
    const body = found ?? echo(url, `${request.method} ${url}\n${rawFields(request.rawHeaders)}`)
    const type = found instanceof Buffer ? 'application/octet-stream' : 'text/plain'
    const coding = url.endsWith('/gzip') ? { 'content-encoding': 'gzip' } : {}
    response.writeHead(200, { 'content-type': type, ...coding })
    response.end(body)
  })
  await new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(undefined)))
  const address = server.address()
  const port = typeof address === 'object' && address !== null ? address.port : 0
  return {
    port,
    seen,
    close() {
      server.close()
      server.closeAllConnections()
    },
  }
}

/** @param {readonly string[]} raw names and values in turn */
function rawFields(raw) {
  const lines = []
  for (let index = 0; index < raw.length; index += 2) lines.push(`${raw[index]}: ${raw[index + 1]}\n`)
  return lines.join('')
}

/** @param {string} url @param {string} text */
function echo(url, text) {
  if (url.endsWith('/base64')) return Buffer.from(text).toString('base64')
  return url.endsWith('/gzip') ? gzipSync(text) : text
}

/** @param {string} path @param {string} base URL of the registry */
function registryAnswer(path, base) {
  const tarball = packageTarball()
  if (path.endsWith('.tgz')) return tarball
  const integrity = `sha512-${createHash('sha512').update(tarball).digest('base64')}`
  const dist = { tarball: `${base}/${standInPackage}/-/${standInPackage}-1.0.0.tgz`, integrity }
  const version = { name: standInPackage, version: '1.0.0', dist }
  return JSON.stringify({
    name: standInPackage,
    'dist-tags': { latest: '1.0.0' },
    versions: { '1.0.0': version },
  })
}

function packageTarball() {
  const files = {
    'package/package.json': JSON.stringify({ name: standInPackage, version: '1.0.0' }),
    'package/index.js': 'module.exports = (n) => n % 2 === 0\n',
  }
  const blocks = Object.entries(files).flatMap(([name, text]) => [tarHead(name, text.length), tarBody(text)])
  return gzipSync(Buffer.concat([...blocks, Buffer.alloc(1024)]))
}

/** A header of the ustar format (POSIX.1-1988). @param {string} name @param {number} size */
function tarHead(name, size) {
  const head = Buffer.alloc(512)
  const fields = /** @type {const} */ ([
    [0, name],
    [100, '0000644\0'],
    [108, '0000000\0'],
    [116, '0000000\0'],
    [124, `${size.toString(8).padStart(11, '0')}\0`],
    [136, '00000000000\0'],
    [148, '        '],
    [156, '0'],
    [257, 'ustar\u000000'],
  ])
  for (const [at, text] of fields) head.write(text, at, 'latin1')
  const sum = head.reduce((total, byte) => total + byte, 0)
  head.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1')
  return head
}

/** @param {string} text */
function tarBody(text) {
  const body = Buffer.alloc(Math.ceil(text.length / 512) * 512)
  body.write(text, 'latin1')
  return body
}
