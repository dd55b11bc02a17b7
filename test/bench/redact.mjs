// Throughput of redaction: node test/bench/redact.mjs [seconds per row]. Prints MB/s; asserts nothing.
import { Secret } from '../../src/core/secret.ts'
import { compilePatterns } from '../../src/redact/forms.ts'
import { createRedactor } from '../../src/redact/redactor.ts'

const secondsPerRow = Number(process.argv[2] ?? 0.5)
const size = 1 << 20

let state = 20_270_301
function random(below) {
  state ^= state << 13
  state ^= state >>> 17
  state ^= state << 5
  return (state >>> 0) % below
}

const letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789'
const text = (length, from) => Array.from({ length }, () => from[random(from.length)]).join('')
const words = Array.from({ length: 2000 }, () => text(2 + random(9), 'abcdefghijklmnopqrstuvwxyz'))

function fill(piece) {
  let out = ''
  while (out.length < size) out += piece()
  return Buffer.from(out.slice(0, size), 'latin1')
}

const word = () => words[random(words.length)]
const line = () => `${Array.from({ length: 11 }, word).join(' ')}\n`
const row = () =>
  `{"id":${random(1e6)},"name":"${word()} \\"${word()}\\"","url":"https://${word()}.test/?a=${word()}%2F${word()}&b=${random(99)}","note":"${word()}\\n${word()}"}\n`

function hostileTexts(secrets) {
  const cut = (length) => {
    const secret = secrets[random(secrets.length)]
    const start = random(Math.max(1, secret.length - length))
    return secret.slice(start, start + length)
  }
  const everyByte = (value) => [...value].map((c) => `%${c.charCodeAt(0).toString(16)}`).join('')
  return {
    'base64 noise': fill(() => text(76, `${letters}+/`) + '\n'),
    'secret-shaped decoys': fill(() => `ghp_${text(36, letters)} `),
    'runs of 11': fill(() => `${cut(11)}~`),
    'percent, runs of 11': fill(() => `${everyByte(cut(11))}~`),
    'only escapes': fill(() => ['%', '%25', '\\', '\\u00', '&#', '\\\\'][random(6)]),
    'zero bytes': fill(() => `${letters[random(62)]}\0`),
  }
}

/** By CPU time, so that other work on the machine counts less. */
function rate(patterns, bytes) {
  const redactor = createRedactor(patterns, () => 'placeholder')
  const used = () => process.cpuUsage().user / 1e6
  const start = used()
  let done = 0
  do {
    for (let at = 0; at < bytes.length; at += 65_536) redactor.push(bytes.subarray(at, at + 65_536))
    done += bytes.length
  } while (used() - start < secondsPerRow)
  return `${Math.round(done / 1e6 / (used() - start))} MB/s`.padStart(10)
}

const clean = fill(line)
const ordinary = fill(() => (random(3) === 0 ? row() : line()))
for (const count of [1, 200, 5000]) {
  const secrets = Array.from({ length: count }, () => `ghp_${text(36, letters)}`)
  const entries = secrets.map((value, i) => ({ id: String(i), value: new Secret(value), short: false }))
  const start = performance.now()
  const patterns = compilePatterns(entries)
  console.log(`${count} values, compiled in ${Math.round(performance.now() - start)} ms`)
  const texts = {
    'clean lines': clean,
    'ordinary JSON and lines': ordinary,
    'JSON only': fill(row),
    ...hostileTexts(secrets),
    'one secret in 4 KB': fill(() => text(4096, `${letters}     `) + secrets[random(count)]),
    'nothing but secrets': fill(() => secrets[random(count)]),
  }
  for (const [name, bytes] of Object.entries(texts))
    console.log(`  ${name.padEnd(26)}${rate(patterns, bytes)}`)
}
