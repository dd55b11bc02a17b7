import type { KeySeal } from '../../src/tls/authority.ts'

/** A seal without cryptography: turns text around, and opens only what the same `mark` sealed. */
export const plainSeal = (mark = 'sealed'): KeySeal => ({
  seal: (plain) => Promise.resolve(`${mark}:${Buffer.from(plain).toString('base64')}`),
  open(sealed) {
    const [found, body = ''] = sealed.split(':')
    return found === mark
      ? Promise.resolve(Buffer.from(body, 'base64').toString())
      : Promise.reject(new TypeError('another seal'))
  },
})
