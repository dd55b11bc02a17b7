/** Round constants of FIPS 180-4 section 4.2.2. */
const roundConstants = new Uint32Array([
  0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98,
  0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
  0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8,
  0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
  0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819,
  0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
  0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
  0xc67178f2,
])

const start = [0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19]

/**
 * Lower-case hex SHA-256 of the UTF-8 bytes of `text`. Pure, since this folder may not reach for node:crypto;
 * it names rules and policies and protects nothing.
 */
export function sha256Hex(text: string): string {
  const message = pad(Buffer.from(text, 'utf8'))
  const state = new Uint32Array(start)
  const schedule = new Uint32Array(64)
  for (let from = 0; from < message.length; from += 64) {
    for (let i = 0; i < 16; i++) schedule[i] = message.readUInt32BE(from + i * 4)
    compress(state, schedule)
  }
  return Array.from(state, (word) => word.toString(16).padStart(8, '0')).join('')
}

/**
 * Ten hex digits that tell apart texts written without ill will (rules of one operator), many times faster
 * than SHA-256: two multiplicative lanes with the finalizer of MurmurHash3.
 */
export function shortHash(text: string): string {
  let high = 0x9e3779b9
  let low = 0x85ebca6b
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i)
    high = Math.imul(high ^ code, 0x9e3779b1)
    low = Math.imul(low ^ code, 0x5f356495)
  }
  const hex = (lane: number): string => (lane >>> 0).toString(16).padStart(8, '0')
  return hex(finalize(high ^ (low >>> 13))).slice(0, 2) + hex(finalize(low ^ (high >>> 11)))
}

function finalize(lane: number): number {
  const once = Math.imul(lane ^ (lane >>> 16), 0x85ebca6b)
  const twice = Math.imul(once ^ (once >>> 13), 0xc2b2ae35)
  return twice ^ (twice >>> 16)
}

function pad(bytes: Buffer): Buffer {
  const length = Math.ceil((bytes.length + 9) / 64) * 64
  const padded = Buffer.alloc(length)
  bytes.copy(padded)
  padded[bytes.length] = 0x80
  padded.writeUInt32BE(Math.floor(bytes.length / 0x20000000), length - 8)
  padded.writeUInt32BE((bytes.length << 3) >>> 0, length - 4)
  return padded
}

const rotate = (word: number, by: number): number => (word >>> by) | (word << (32 - by))

/** Element of a typed array whose bounds the caller keeps. */
const at = (words: Uint32Array, index: number): number => words[index] ?? 0

function compress(state: Uint32Array, schedule: Uint32Array): void {
  for (let i = 16; i < 64; i++) {
    const x = at(schedule, i - 15)
    const y = at(schedule, i - 2)
    const small0 = rotate(x, 7) ^ rotate(x, 18) ^ (x >>> 3)
    const small1 = rotate(y, 17) ^ rotate(y, 19) ^ (y >>> 10)
    schedule[i] = at(schedule, i - 16) + small0 + at(schedule, i - 7) + small1
  }
  let a = at(state, 0)
  let b = at(state, 1)
  let c = at(state, 2)
  let d = at(state, 3)
  let e = at(state, 4)
  let f = at(state, 5)
  let g = at(state, 6)
  let h = at(state, 7)
  for (let i = 0; i < 64; i++) {
    const big1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)
    const t1 = (h + big1 + ((e & f) ^ (~e & g)) + at(roundConstants, i) + at(schedule, i)) | 0
    const big0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)
    const t2 = (big0 + ((a & b) ^ (a & c) ^ (b & c))) | 0
    h = g
    g = f
    f = e
    e = (d + t1) | 0
    d = c
    c = b
    b = a
    a = (t1 + t2) | 0
  }
  const sums = [a, b, c, d, e, f, g, h]
  sums.forEach((word, i) => (state[i] = at(state, i) + word))
}
